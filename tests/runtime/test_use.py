"""Who may use a client, and when: refused calls change nothing, and closing is always possible."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mirror.client import Consumer, Producer, TopicPartition
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ClientClosed, ConfigError, KafkaError, NetworkThreadDied
from tests.client_state import is_in_use
from tests.fakes.record_batches import batch, build
from tests.polling import eventually

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_refused_assign_changes_nothing(silent: str) -> None:
    """Another thread's, and one after the end."""
    consumer = Consumer({"bootstrap.servers": silent})
    consumer.assign([TP])
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(consumer.poll, 120_000)
        eventually(lambda: is_in_use(consumer), what="the poll has begun")
        with pytest.raises(KafkaError, match="one thread at a time"):
            consumer.assign([OTHER])
        # Whose turn it is not hears that, and not what only holds for the one whose turn it is.
        with pytest.raises(KafkaError, match="one thread at a time"):
            consumer.seek(OTHER, 0)
        assert consumer.assignment() == {TP}
        consumer.wake()
        assert waiting.result(30) == []
    with pytest.raises(KafkaError, match="not assigned to this consumer: t-1"):
        consumer.seek(OTHER, 0)
    consumer.close(0)
    with pytest.raises(ClientClosed):
        consumer.assign([OTHER])
    with pytest.raises(ClientClosed):
        consumer.seek(OTHER, 0)
    assert consumer.assignment() == {TP}


def test_partitions_are_assigned_beside_others_and_taken_away(silent: str) -> None:
    with Consumer({"bootstrap.servers": silent}) as consumer:
        consumer.assign([TP])
        consumer.incremental_assign([OTHER, TP], paused=True)
        assert consumer.assignment() == {TP, OTHER}
        consumer.seek(OTHER, 0)
        consumer.incremental_unassign([TP])
        with pytest.raises(KafkaError, match="not assigned to this consumer: t-0"):
            consumer.incremental_unassign([OTHER, TP])
        assert consumer.assignment() == {OTHER}
    with pytest.raises(ClientClosed):
        consumer.incremental_assign([TP])
    with pytest.raises(ClientClosed):
        consumer.incremental_unassign([OTHER])
    assert consumer.assignment() == {OTHER}


def test_a_producer_closes_after_the_death_of_its_thread(silent: str) -> None:
    """As the consumer does; what was sent says why it was not written."""
    producer = Producer({"bootstrap.servers": silent})
    sent = producer.send_batch(TP, batch(build((b"one",))), block=False)

    def run_once() -> None:
        raise RuntimeError("a bug in the loop")

    producer.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    producer.network_thread.network.wakeup()
    assert isinstance(sent.exception(30), NetworkThreadDied)
    began = time.monotonic()
    producer.close()
    producer.close()
    assert time.monotonic() - began < 20
    with pytest.raises(ClientClosed):
        producer.send_batch(TP, batch(build((b"two",))))


def test_a_producer_does_not_wait_long_for_a_stuck_thread(silent: str) -> None:
    producer = Producer({"bootstrap.servers": silent})
    going_on = threading.Event()

    def run_once() -> None:
        going_on.wait(120)

    original = producer.network_thread.loop.run_once
    producer.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    producer.network_thread.network.wakeup()
    try:
        began = time.monotonic()
        producer.close(timeout_ms=100)
        assert time.monotonic() - began < 40
    finally:
        producer.network_thread.loop.run_once = original  # type: ignore[method-assign]
        going_on.set()
    eventually(lambda: producer.network_thread.dead, what="its end, once it turns again")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fetch.max.bytes": 0}, "fetch.max.bytes = 0: must be a whole number from 1 to 2^31 - 1"),
        ({"max.partition.fetch.bytes": 0}, "max.partition.fetch.bytes = 0: must be a whole number from 1 to 2^31 - 1"),
        (
            {"fetch.max.wait.ms": 2_000, "request.timeout.ms": 2_000},
            "fetch.max.wait.ms = 2000: must be below request.timeout.ms (2000)",
        ),
    ],
)
def test_settings_that_could_never_read_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ConsumerSettings.parse({"bootstrap.servers": "here:1", **options})
    assert str(raised.value) == problem


def test_settings_that_are_just_right() -> None:
    options = {"fetch.max.bytes": 1, "max.partition.fetch.bytes": 1, "fetch.max.wait.ms": 1_999}
    settings = ConsumerSettings.parse({"bootstrap.servers": "here:1", "request.timeout.ms": 2_000, **options})
    assert (settings.fetch_max_bytes, settings.max_partition_fetch_bytes, settings.fetch_max_wait_ms) == (1, 1, 1_999)


def test_the_default_wait_for_records_follows_a_short_request_timeout() -> None:
    settings = ConsumerSettings.parse({"bootstrap.servers": "127.0.0.1:9", "request.timeout.ms": 400})
    assert settings.fetch_max_wait_ms == 200
