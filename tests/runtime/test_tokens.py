"""Tokens: fetched in the background, kept, replaced in time, and never shown."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.backoff import Backoff
from mirror.cluster.auth.security import SaslSettings
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError
from mirror.runtime.network.background import Background
from mirror.runtime.network.login import PasswordLogin
from mirror.runtime.network.oauth import Token, TokenKeeper, from_callback


class Held(Background):
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.futures: list[Future[Any]] = []

    def run(self, name: str, work: Callable[[], Any]) -> Future[Any]:
        del name, work
        self.futures.append(Future())
        return self.futures[-1]

    def unused(self) -> Token[Any]:
        raise AssertionError("the work is not done")

    def give(self, value: object, lifetime_ms: int) -> None:
        self.futures[-1].set_result(Token(value, lifetime_ms))

    def fail(self, error: BaseException) -> None:
        self.futures[-1].set_exception(error)


def keeper(held: Held) -> TokenKeeper[str]:
    return TokenKeeper(held.unused, held, Backoff(100, 1_000, random.Random(1)))


def test_a_token_is_kept_until_most_of_its_life_has_passed() -> None:
    held = Held()
    tokens = keeper(held)
    assert tokens.token(0) is None
    assert tokens.token(50) is None
    held.give("first", 101_000)
    assert tokens.token(500) == "first"
    assert tokens.token(79_999) == "first"
    assert len(held.futures) == 1
    assert tokens.token(80_000) is None  # the session it is wanted for would soon have to be renewed
    held.give("second", 101_000)
    assert tokens.token(80_500) == "second"


def test_while_it_cannot_be_replaced_the_old_one_serves_as_long_as_it_lives() -> None:
    held = Held()
    tokens = keeper(held)
    tokens.token(0)
    held.give("first", 101_000)
    assert tokens.token(1) == "first"
    assert tokens.token(90_000) is None
    held.fail(ConnectionFailed("down"))
    assert tokens.token(90_001) == "first"
    assert len(held.futures) == 2
    assert tokens.token(99_999) is None
    held.fail(ConnectionFailed("down"))
    with pytest.raises(ConnectionFailed, match="down"):
        tokens.token(100_000)


def test_failures_are_reported_and_tried_again_with_growing_distance() -> None:
    held = Held()
    tokens = keeper(held)
    now, waits = 0, []
    for _ in range(5):
        assert tokens.token(now) is None
        held.fail(ConnectionFailed("down"))
        failed = now
        while True:
            try:
                if tokens.token(now) is None:
                    break
            except ConnectionFailed:
                now += 1
        waits.append(now - failed)
        held.fail(ConnectionFailed("down"))
        with pytest.raises(ConnectionFailed):
            tokens.token(now)
        now += 2_000
    assert all(80 <= wait <= 1_200 for wait in waits)
    assert waits[-1] > waits[0]


def test_something_unforeseen_is_reported_by_its_kind_alone() -> None:
    held = Held()
    tokens = keeper(held)
    tokens.token(0)
    held.fail(RuntimeError("hunter2"))
    with pytest.raises(ConnectionFailed, match="no token or ticket: RuntimeError") as caught:
        tokens.token(1)
    assert "hunter2" not in str(caught.value)


def test_a_token_that_lives_no_time_is_not_fetched_without_end() -> None:
    held = Held()
    tokens = keeper(held)
    tokens.token(0)
    held.give("short", 1)
    assert [tokens.token(now) for now in range(5, 50)] == ["short"] * 45
    assert len(held.futures) == 1


def _raise(error: BaseException) -> tuple[str, int]:
    raise error


@pytest.mark.parametrize(
    ("callback", "expected", "text"),
    [
        (lambda: _raise(ValueError("hunter2")), AuthenticationFailed, "token.callback raised ValueError"),
        (lambda: _raise(ConnectionFailed("later")), ConnectionFailed, "later"),
        (lambda: ("hunter2", 0), AuthenticationFailed, "must return"),
        (lambda: ("hunter2", "soon"), AuthenticationFailed, "must return"),
        (lambda: (b"hunter2", 5), AuthenticationFailed, "must return"),
    ],
)
def test_what_callbacks_do_wrong(
    callback: Callable[[], tuple[str, int]], expected: type[KafkaError], text: str
) -> None:
    with pytest.raises(expected, match=text) as caught:
        from_callback(callback, "sasl.oauthbearer.token.callback")()
    assert "hunter2" not in str(caught.value)


def test_a_token_has_no_repr_of_its_value() -> None:
    assert "hunter2" not in repr(from_callback(lambda: ("hunter2", 1000), "it")())


def test_a_delegation_token_is_sent_as_one() -> None:
    """Its id and HMAC are the user and the password of SCRAM (KIP-48)."""
    settings = SaslSettings("SCRAM-SHA-256", "id-1", "hmac", by_token=True)
    mechanism = PasswordLogin(settings, random.Random(1)).begin(0)
    assert mechanism is not None
    assert mechanism.first().endswith(b",tokenauth=true")
