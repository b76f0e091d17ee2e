"""What stops a partition on a real broker, and that a seek makes it go on; and polls that are woken."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.client import Admin, Consumer, TopicPartition
from mirror.errors import KafkaError, LogTruncated, OffsetOutOfRange
from mirror.sandbox.cluster import Cluster
from tests.conformance.conftest import NewConsumer
from tests.conformance.topics import Topics, read
from tests.polling import eventually

pytestmark = pytest.mark.brokers

NO_RESET = {"auto.offset.reset": "none", "fetch.max.wait.ms": 100}


def stopped_by(consumer: Consumer) -> KafkaError:
    for fetched in consumer.poll(60_000):
        assert fetched.error is not None
        return fetched.error
    raise AssertionError("nothing has stopped it")


def make_again(broker: Cluster, tp: TopicPartition) -> None:
    """Delete the topic and make one of its name, which takes the broker a moment to allow."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([tp.topic])[tp.topic].result(60)

    def made() -> bool:
        with contextlib.suppress(KafkaException):
            admin.create_topics([NewTopic(tp.topic, 1, 1)])[tp.topic].result(60)
            return True
        return False

    eventually(made, within_s=60, what="the topic is there again")


def offsets(found: list[tuple[int, bytes]]) -> list[int]:
    return [offset for offset, _ in found]


def test_a_paused_partition_is_sought_stopped_and_sought_again(
    broker: Cluster, topics: Topics, new_consumer: NewConsumer
) -> None:
    (tp,) = topics.create()
    topics.fill(tp, 10)
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.delete_records({tp: 4})
    consumer = new_consumer(broker.bootstrap_servers, **NO_RESET)
    consumer.assign([tp], paused=True)
    assert consumer.poll(300) == []
    for gone in (1, 99):
        consumer.seek(tp, gone)
        consumer.resume([tp])
        error = stopped_by(consumer)
        assert isinstance(error, OffsetOutOfRange)
        assert error.log_start is None, "now this broker tells it: docstring and fake are out of date"
    consumer.seek(tp, 4)
    assert offsets(read(consumer, 6)) == list(range(4, 10))
    consumer.seek(tp, 7)
    assert offsets(read(consumer, 3)) == [7, 8, 9]


def test_a_topic_made_again_is_read_after_a_seek(broker: Cluster, topics: Topics, new_consumer: NewConsumer) -> None:
    (tp,) = topics.create()
    topics.fill(tp, 10)
    consumer = new_consumer(broker.bootstrap_servers, **NO_RESET)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    assert len(read(consumer, 10)) == 10
    make_again(broker, tp)
    topics.fill(tp, 12)
    error = stopped_by(consumer)
    assert isinstance(error, LogTruncated)
    assert "made again" in str(error)
    consumer.seek(tp, 0)
    assert offsets(read(consumer, 12)) == list(range(12))


def test_a_long_poll_is_woken(broker: Cluster, topics: Topics, new_consumer: NewConsumer) -> None:
    (tp,) = topics.create()
    consumer = new_consumer(broker.bootstrap_servers, **NO_RESET)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    timer = threading.Timer(0.2, consumer.wake)
    began = time.monotonic()
    timer.start()
    assert consumer.poll(120_000) == []
    assert 0.19 < time.monotonic() - began < 60
    timer.join()


def test_answers_are_taken_bit_by_bit_and_released(broker: Cluster, topics: Topics, new_consumer: NewConsumer) -> None:
    """Each entry's bytes are right until it is released, whatever was released before."""
    tps = topics.create(4)
    for tp in tps:
        topics.fill(tp, 3_000, linger_ms=20, batch_size=20_000)
    consumer = new_consumer(broker.bootstrap_servers, **NO_RESET)
    consumer.assign(tps)
    for tp in tps:
        consumer.seek(tp, 0)
    found: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
    kept = []
    until = time.monotonic() + 60
    while sum(map(len, found.values())) < 4 * 3_000 and time.monotonic() < until:
        some = consumer.poll(1_000, max_bytes=30_000)
        assert len(some) <= 1 or sum(one.size for one in some) <= 30_000
        for one in some:
            for batch in one.batches:
                batch.verify()
            found[one.tp] += [record.offset for record in one.records()]
            if one.tp == tps[0]:
                kept.append((one, zlib.crc32(one.batches[0].view)))
            else:
                one.release()
    assert found == {tp: list(range(3_000)) for tp in tps}
    assert [zlib.crc32(one.batches[0].view) for one, _ in kept] == [checksum for _, checksum in kept]
