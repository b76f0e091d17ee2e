"""When the transaction of an exactly-once writer is open, and when it is aborted."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, KafkaError
from mirror.producer.settings import ProducerSettings
from mirror.relay.futures import done
from mirror.relay.partition.writers import fence
from mirror.relay.partition.writers.target_writer import ExactlyOnceWriter
from tests.relay.copy_harness import progress_at
from tests.relay.hand_context import TARGET

SETTINGS = ProducerSettings.parse({"bootstrap.servers": "any:1", "transactional.id": "any"})


class _NoSearch:
    """A search that is never begun."""

    advanced_ms = 0

    def timeout_error(self) -> None:
        """Nothing takes too long."""

    def close(self) -> None:
        """Nothing is read."""


STAND_INS: Any = (None, None, _NoSearch())


class HandProducer:
    """A producer whose commits are answered by the test."""

    def __init__(self, settings: ProducerSettings, *, memory: object) -> None:
        del memory
        self.settings = settings
        self.calls: list[str] = []
        self.pending_step: tuple[str | None, KafkaError | None] = None, None
        self.committed: Future[None] = Future()

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def send_offsets_to_transaction_async(self, offsets: object, group: str, timeout_ms: int) -> Future[None]:
        assert offsets
        assert group
        assert timeout_ms
        return done(None)

    def commit_transaction_async(self, timeout_ms: int) -> Future[None]:
        assert timeout_ms
        self.calls.append("commit")
        self.committed = Future()
        return self.committed

    def abort_transaction_async(self, timeout_ms: int) -> Future[None]:
        assert timeout_ms
        self.calls.append("abort")
        return done(None)

    def close_async(self) -> None:
        self.calls.append("close")


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[HandProducer]:
    """The producers that writers create."""
    created: list[HandProducer] = []

    def create(settings: ProducerSettings, *, memory: object, on_producer_id: object) -> HandProducer:
        assert on_producer_id is None
        created.append(HandProducer(settings, memory=memory))
        return created[-1]

    monkeypatch.setattr(fence, "Producer", create)
    return created


@pytest.mark.parametrize("error", [None, BrokerError("odd", 99)])
def test_a_transaction_is_open_until_its_commit_has_succeeded(
    error: KafkaError | None, producers: list[HandProducer]
) -> None:
    """A transaction whose commit had failed was not aborted, and consumers waited behind it until it expired."""
    writer = ExactlyOnceWriter("flow", TARGET, SETTINGS, *STAND_INS)
    (producer,) = producers
    committed = writer.commit(progress_at(1), 1_000)
    if error is None:
        producer.committed.set_result(None)
    else:
        producer.committed.set_exception(error)
    assert committed.exception() is error
    assert writer.close(1_000).done()
    assert producer.calls == ["begin", "commit", *(["abort"] if error is not None else []), "close"]


def test_the_next_commit_begins_another_transaction(producers: list[HandProducer]) -> None:
    writer = ExactlyOnceWriter("flow", TARGET, SETTINGS, *STAND_INS)
    (producer,) = producers
    for _ in range(2):
        writer.commit(progress_at(1), 1_000)
        producer.committed.set_result(None)
    assert producer.calls == ["begin", "commit"] * 2


def test_writers_share_the_task_s_settings_but_for_the_transactional_id(producers: list[HandProducer]) -> None:
    partitions = [TARGET, TopicPartition(TARGET.topic, 1)]
    for tp in partitions:
        ExactlyOnceWriter("flow", tp, SETTINGS, *STAND_INS)
    settings = [producer.settings for producer in producers]
    assert [own.transactional_id for own in settings] == ["mirror.flow.paris.t.0", "mirror.flow.paris.t.1"]
    assert [replace(own, transactional_id="any") for own in settings] == [SETTINGS, SETTINGS]


@pytest.mark.parametrize(
    ("pending", "text"),
    [
        (("fencing older producers", None), "paris.t-0: fencing older producers did not succeed"),
        (
            ("fencing older producers", BrokerError("concurrent", 51)),
            "paris.t-0: fencing older producers did not succeed: concurrent",
        ),
        ((None, None), "paris.t-0: reading the progress"),
    ],
)
def test_acquisition_that_takes_too_long_names_its_step(
    pending: tuple[str | None, KafkaError | None], text: str, producers: list[HandProducer]
) -> None:
    writer = ExactlyOnceWriter("flow", TARGET, SETTINGS, *STAND_INS)
    producers[0].pending_step = pending
    assert text in str(writer.acquire_timeout())
