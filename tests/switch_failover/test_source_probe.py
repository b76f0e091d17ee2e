"""Whether the source of a failover answers, asked beside its steps."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self

import pytest

from mirror.errors import AuthorizationFailed, ClientClosed, KafkaTimeout
from mirror.switch.failover import source_probe
from mirror.switch.failover.source_probe import SourceProbe
from tests.polling import eventually
from tests.relay.fake_pair import FakePair

AWAY = KafkaTimeout("it does not answer")


@pytest.mark.parametrize("answers", [False, True])
def test_a_source_is_away_if_none_of_its_addresses_answers(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    monkeypatch.setattr(source_probe, "PROBE_MS", 300)
    address = FakePair(monkeypatch).source.bootstrap
    with closing(socket.socket()) as port:
        port.bind(("127.0.0.1", 0))  # nothing listens there
        if not answers:
            monkeypatch.undo()
            monkeypatch.setattr(source_probe, "PROBE_MS", 300)
            address = f"127.0.0.1:{port.getsockname()[1]}"
        with SourceProbe({"bootstrap.servers": address}) as probe:
            assert bool(probe.why_away()) is not answers


class Clients:
    """Clients whose calls end as they are to, address by address; the others wait until they are closed."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[Exception | None]] = {}
        self.waiting = threading.Semaphore(0)
        """Counts the calls that have begun to wait."""

    def __call__(self, options: dict[str, Any]) -> Client:
        return Client(self, str(options["bootstrap.servers"]))


class Client:
    def __init__(self, clients: Clients, address: str) -> None:
        self._clients, self._address = clients, address
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()

    def describe_cluster(self, timeout_ms: int) -> None:
        assert timeout_ms == source_probe.PROBE_MS
        outcomes = self._clients.outcomes[self._address]
        if not outcomes:
            self._clients.waiting.release()
            assert self._closed.wait(30)
            raise ClientClosed("the client is closed")
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    found = Clients()
    monkeypatch.setattr(source_probe, "Admin", found)
    monkeypatch.setattr(source_probe, "_PAUSE_S", 0.0)
    yield found
    assert not [one for one in threading.enumerate() if one.name.startswith("probe-")]


def asked(clients: Clients, **outcomes: list[Exception | None]) -> SourceProbe:
    clients.outcomes = {f"{name}:1": found for name, found in outcomes.items()}
    return SourceProbe({"bootstrap.servers": ",".join(clients.outcomes)})


def test_only_the_first_step_waits_for_a_source_that_does_not_answer(clients: Clients) -> None:
    with asked(clients, a=[AWAY]) as probe:
        assert probe.why_away() == str(AWAY)
        assert clients.waiting.acquire(timeout=30), "the next probe has begun, and gets no answer"
        assert probe.why_away() == str(AWAY)


def test_a_source_that_answers_at_one_address_is_not_waited_for_at_the_others(clients: Clients) -> None:
    with asked(clients, a=[], b=[None]) as probe:
        assert probe.why_away() == ""


@pytest.mark.parametrize("answer", [None, AuthorizationFailed("refused")])
def test_a_source_that_comes_back_is_seen(clients: Clients, answer: Exception | None) -> None:
    """Whatever it answers."""
    with asked(clients, a=[AWAY, AWAY, answer], b=[AWAY]) as probe:
        eventually(lambda: probe.why_away() == "", what="its answer")


def test_an_answer_that_is_too_old_is_waited_for_again(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may have been suspended, and the source may have come back meanwhile."""
    monkeypatch.setattr(source_probe, "_FRESH_S", -1.0)
    with asked(clients, a=[*[AWAY] * 300, None]) as probe:
        assert probe.why_away() == ""


def test_a_source_that_ends_is_seen(clients: Clients) -> None:
    with asked(clients, a=[None, None, AWAY]) as probe:
        eventually(lambda: probe.why_away() == str(AWAY), what="its end")


def test_a_probe_that_fails_is_no_source_that_is_away(clients: Clients) -> None:
    with asked(clients, a=[ZeroDivisionError("a fault of this program")]) as probe, pytest.raises(ZeroDivisionError):
        probe.why_away()
