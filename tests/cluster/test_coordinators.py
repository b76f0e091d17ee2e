"""Looking up coordinators: in batches, with backoff, refused for good."""

from __future__ import annotations

import random

import pytest

from mirror.causes import OFFSETS_REPLICAS, REFUSING_POLICY, TRANSACTION_REPLICAS, Cause
from mirror.cluster.coordinators import Coordinators, KeyType
from mirror.cluster.requests import Request
from mirror.errors import AuthorizationFailed, ConnectionFailed
from mirror.wire.messages.metadata import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.cluster.probes import settings


class Asked:
    """Coordinators, and their look-ups answered by hand."""

    def __init__(self) -> None:
        self.coordinators = Coordinators(settings(), random.Random(1))
        self.now = 1_000

    def node(self, key: str, kind: KeyType = KeyType.GROUP) -> int | None:
        return self.coordinators.node(kind, key)

    def requests(self) -> list[Request]:
        return list(self.coordinators.poll(self.now).requests)

    def keys(self, request: Request) -> tuple[str, ...]:
        assert isinstance(request.body, FindCoordinatorRequest)
        return request.body.coordinator_keys

    def answer(self, request: Request, *coordinators: Coordinator) -> None:
        request.on_response(FindCoordinatorResponse(coordinators), self.now)


def _at(key: str, node: int, code: int = 0) -> Coordinator:
    return Coordinator(key, node, "broker", 9092, code)


def test_nothing_is_looked_up_until_somebody_asks() -> None:
    assert Asked().requests() == []


def test_keys_of_a_kind_share_a_request() -> None:
    asked = Asked()
    for key in ("b", "a"):
        assert asked.node(key) is None
    assert asked.node("x", KeyType.TRANSACTION) is None
    groups, transactions = asked.requests()
    assert asked.keys(groups) == ("a", "b")
    assert asked.keys(transactions) == ("x",)
    assert asked.requests() == [], "one at a time"
    asked.answer(groups, _at("a", 1), _at("b", 2))
    asked.answer(transactions, _at("x", 3))
    assert (asked.node("a"), asked.node("b"), asked.node("x", KeyType.TRANSACTION)) == (1, 2, 3)
    assert asked.requests() == []


def test_a_key_that_is_wanted_during_a_look_up_comes_next() -> None:
    asked = Asked()
    asked.node("a")
    (first,) = asked.requests()
    asked.node("b")
    asked.answer(first, _at("a", 1))
    (second,) = asked.requests()
    assert asked.keys(second) == ("b",)


def test_a_forgotten_one_is_looked_up_again() -> None:
    asked = Asked()
    asked.node("a")
    asked.answer(asked.requests()[0], _at("a", 1))
    asked.coordinators.forget(KeyType.GROUP, "a")
    assert asked.node("a") is None
    assert len(asked.requests()) == 1


@pytest.mark.parametrize("code", [14, 15])
def test_a_new_clusters_not_yet_is_retried_with_backoff(code: int) -> None:
    asked = Asked()
    asked.node("a")
    waits = []
    for _ in range(6):
        (request,) = asked.requests()
        asked.answer(request, _at("a", -1, code))
        requests, wait = asked.coordinators.poll(asked.now)
        assert requests == []
        waits.append(wait)
        asked.now += wait
    for number, wait in enumerate(waits):
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number), waits
    assert "coordinator of group 'a'" in str(asked.coordinators.why_unknown(KeyType.GROUP, "a"))
    (request,) = asked.requests()
    asked.answer(request, _at("a", 2))
    assert asked.node("a") == 2
    assert asked.coordinators.why_unknown(KeyType.GROUP, "a") is None


def test_success_resets_attempts() -> None:
    asked = Asked()
    for _ in range(2):
        asked.node("a")
        for _ in range(5):
            (request,) = asked.requests()
            asked.answer(request, _at("a", -1, 15))
            asked.now += asked.coordinators.poll(asked.now).wait_ms
        (request,) = asked.requests()
        asked.answer(request, _at("a", 2))
        asked.coordinators.forget(KeyType.GROUP, "a")
        asked.node("a")
        (request,) = asked.requests()
        asked.answer(request, _at("a", -1, 15))
        assert asked.coordinators.poll(asked.now).wait_ms <= 120
        asked.now += 120
        asked.answer(asked.requests()[0], _at("a", 2))
        asked.coordinators.forget(KeyType.GROUP, "a")


def test_a_key_that_the_answer_leaves_out_is_looked_up_again_after_a_wait() -> None:
    asked = Asked()
    asked.node("a")
    asked.node("b")
    asked.answer(asked.requests()[0], _at("a", 1))
    assert asked.requests() == []
    assert "group 'b': the broker's answer leaves it out" in str(asked.coordinators.why_unknown(KeyType.GROUP, "b"))
    asked.now += 120
    (request,) = asked.requests()
    assert asked.keys(request) == ("b",)


def test_a_lost_connection_is_retried() -> None:
    asked = Asked()
    asked.node("a")
    asked.requests()[0].on_failure(ConnectionFailed("gone"), asked.now)
    assert asked.requests() == []
    asked.now += 120
    assert len(asked.requests()) == 1


def test_a_refusal_is_reported_to_who_asks_once_and_not_asked_again() -> None:
    asked = Asked()
    asked.node("a")
    asked.answer(asked.requests()[0], _at("a", -1, 30))
    with pytest.raises(AuthorizationFailed, match="coordinator of group 'a': GROUP_AUTHORIZATION_FAILED"):
        asked.node("a")
    assert asked.requests() == []
    assert asked.node("a") is None, "a later call may try again: permissions change"
    assert len(asked.requests()) == 1


def test_one_refused_key_does_not_hold_up_the_others() -> None:
    asked = Asked()
    asked.node("good")
    asked.node("bad")
    asked.answer(asked.requests()[0], _at("bad", -1, 30), _at("good", 1))
    assert asked.node("good") == 1


@pytest.mark.parametrize(
    ("kind", "setting"), [(KeyType.GROUP, OFFSETS_REPLICAS), (KeyType.TRANSACTION, TRANSACTION_REPLICAS)]
)
def test_a_coordinator_that_is_not_there_names_the_setting_that_may_keep_it_away(kind: KeyType, setting: Cause) -> None:
    asked = Asked()
    assert asked.node("a", kind) is None
    (request,) = asked.requests()
    asked.answer(request, _at("a", -1, 15))
    assert str(asked.coordinators.why_unknown(kind, "a")).endswith(
        f"; if this stays so: {setting.words}; {REFUSING_POLICY}"
    )
