"""Producer ids that are written to the registry before they are used."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest

from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.origin.registration import IdRegistration
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue
from tests.polling import eventually


class HandTopic:
    """A registry whose writes wait for the test, and fail as it says."""

    def __init__(self, **options: object) -> None:
        self.settings = ClusterSettings.parse({"bootstrap.servers": "a:1", **options})
        self.written: list[set[int]] = []
        self.failing: set[int] = set()
        self.broken: Exception | None = None
        self.may_write = threading.Semaphore(0)

    def write(self, records: Mapping[int, KeyValue], timeout_ms: int) -> dict[int, KafkaError]:
        assert timeout_ms > 0
        self.written.append(set(records))
        assert self.may_write.acquire(timeout=30)
        if self.broken is not None:
            raise self.broken
        return {id_: KafkaTimeout("no leader") for id_ in self.failing & records.keys()}


@pytest.fixture
def topic() -> HandTopic:
    return HandTopic(**{"retry.backoff.ms": 1, "retry.backoff.max.ms": 1})


def _registration(topic: HandTopic) -> IdRegistration:
    return IdRegistration(cast("FlowTopic", topic), "a-b", set())


def _ask(to: IdRegistration, producer_id: int, admitted: list[int]) -> None:
    to.on_producer_id(producer_id, lambda: admitted.append(producer_id))


def test_ids_that_wait_are_written_together_and_admitted_once_acknowledged(topic: HandTopic) -> None:
    ids, admitted = _registration(topic), list[int]()
    _ask(ids, 1, admitted)
    eventually(lambda: topic.written == [{1}], what="the first write")
    for producer_id in (2, 3, 2):
        _ask(ids, producer_id, admitted)
    assert admitted == []
    topic.may_write.release(2)
    eventually(lambda: len(admitted) == 4, what="all ids")
    assert topic.written == [{1}, {2, 3}]
    assert admitted[0] == 1
    assert sorted(admitted) == [1, 2, 2, 3]


def test_a_registered_id_is_admitted_at_once(topic: HandTopic) -> None:
    ids, admitted = _registration(topic), list[int]()
    _ask(ids, 1, admitted)
    topic.may_write.release()
    eventually(lambda: admitted == [1], what="the id")
    _ask(ids, 1, admitted)
    assert admitted == [1, 1]
    assert topic.written == [{1}]


def test_an_id_that_was_not_written_is_written_again_and_the_user_is_warned_once(
    topic: HandTopic, caplog: pytest.LogCaptureFixture
) -> None:
    ids, admitted = _registration(topic), list[int]()
    topic.failing = {1}
    _ask(ids, 1, admitted)
    topic.may_write.release(2)
    eventually(lambda: len(topic.written) == 3, what="the third write")
    assert admitted == []
    topic.failing = set()
    topic.may_write.release()
    eventually(lambda: admitted == [1], what="the id")
    warnings: list[Any] = [record for record in caplog.records if "cannot be registered in" in record.getMessage()]
    assert len(warnings) == 1


class Waits(threading.Event):
    """An event that is never set, and keeps how long it was waited for (s). That takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return False


def test_waits_between_writes_that_fail_double_up_to_the_maximum_and_begin_again_after_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = HandTopic(**{"retry.backoff.ms": 100, "retry.backoff.max.ms": 1_000})
    ids, admitted, closed = _registration(topic), list[int](), Waits()
    monkeypatch.setattr(ids, "_closed", closed)
    topic.failing = {1, 2}
    _ask(ids, 1, admitted)
    topic.may_write.release(6)
    eventually(lambda: len(topic.written) == 7, what="the seventh write")
    topic.failing = {2}
    _ask(ids, 2, admitted)
    topic.may_write.release(2)
    eventually(lambda: len(topic.written) == 9, what="the ninth write")
    topic.failing = set()
    topic.may_write.release()
    eventually(lambda: admitted == [1, 2], what="the ids")
    expected = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1]
    assert closed.waits == [pytest.approx(one, rel=0.21) for one in expected]
    assert 0.8 <= max(closed.waits) <= 1.0


def test_an_unexpected_error_does_not_end_the_registration(topic: HandTopic) -> None:
    ids, admitted = _registration(topic), list[int]()
    topic.broken = RuntimeError("can't start new thread")
    _ask(ids, 1, admitted)
    topic.may_write.release()
    eventually(lambda: len(topic.written) == 2, what="the second write")
    topic.broken = None
    topic.may_write.release()
    eventually(lambda: admitted == [1], what="the id")


def test_nothing_is_written_or_admitted_once_it_is_closed(topic: HandTopic) -> None:
    ids, admitted = _registration(topic), list[int]()
    topic.failing = {1}
    _ask(ids, 1, admitted)
    eventually(lambda: len(topic.written) == 1, what="the first write")
    ids.close()
    topic.may_write.release(5)
    eventually(lambda: not any(one.name == "mirror-registration" for one in threading.enumerate()), what="its thread")
    assert admitted == []
    assert topic.written == [{1}]


def test_a_client_that_has_ended_keeps_no_other_id_waiting(topic: HandTopic) -> None:
    ids, admitted = _registration(topic), list[int]()

    def ended() -> None:
        raise RuntimeError("the client has ended")

    _ask(ids, 9, admitted)
    eventually(lambda: topic.written == [{9}], what="the first write")  # what follows waits for it, and is one write
    ids.on_producer_id(1, ended)
    _ask(ids, 1, admitted)
    topic.may_write.release(2)
    eventually(lambda: admitted == [9, 1], what="the id, for another client")
    _ask(ids, 2, admitted)
    topic.may_write.release()
    eventually(lambda: admitted == [9, 1, 2], what="the next id")
    assert topic.written == [{9}, {1}, {2}]
