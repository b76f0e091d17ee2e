"""Messages of the old formats in a real broker's log, as clusters that came a long way still have them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic

from mirror.client import Consumer, Producer, TopicPartition
from mirror.relay.batches.reencode import ReencodeSpec, reencode
from mirror.sandbox.cluster import Cluster
from mirror.wire.decode import Record, records_of
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch
from tests.conftest import NewCluster
from tests.polling import eventually
from tests.wire.legacy_sets import whole_set

# In the suite, tests/copying/test_harm.py copies such a log.
pytestmark = [pytest.mark.brokers, pytest.mark.cluster]

TIME = 1_500_000_000_000
SETS = [(magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")]


def segment() -> tuple[bytes, list[Record]]:
    """Three records for each format and codec, null and empty among them; and what should be read."""
    data = bytearray()
    expected: list[Record] = []
    for magic, codec in SETS:
        first = len(expected)
        made = [
            (TIME + first, f"{magic} {codec}".encode(), b"value" * 50),
            (TIME + first + 1, None, b""),
            (TIME + first + 2, b"", None),
        ]
        data += whole_set(magic, made, codec, first)
        expected += [
            Record(first + number, when if magic else -1, key, value, ())
            for number, (when, key, value) in enumerate(made)
        ]
    return bytes(data), expected


def create(cluster: Cluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    # What is so old is not to be deleted while it is looked at.
    topics = [ConfluentTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in names]
    for made in admin.create_topics(topics).values():
        made.result(timeout=60)


def plant(cluster: Cluster, tp: TopicPartition, data: bytes) -> None:
    """Put ``data`` in place of an empty partition's log while its broker is away; it builds the indices again."""
    folder = cluster.directory / "broker-1" / "data"
    names = [f"{'0' * 20}.{suffix}" for suffix in ("log", "index", "timeindex")]
    eventually(lambda: leader_of(cluster, tp) == 1, within_s=60, what="the partition's leader")
    # An orderly stop: a killed broker's replicas may have no leader for a while.
    os.kill(cluster.pids[1], signal.SIGTERM)
    eventually(lambda: not cluster.pids, within_s=60, what="the broker's end")
    (folder / ".kafka_cleanshutdown").unlink()  # else it would take the log for as long as it was
    log, *indices = [folder / f"{tp.topic}-{tp.partition}" / name for name in names]
    assert log.stat().st_size == 0
    log.write_bytes(data)
    for index in indices:
        index.unlink()
    cluster.restart(1)


def leader_of(cluster: Cluster, tp: TopicPartition) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = admin.list_topics(tp.topic, timeout=30).topics[tp.topic].partitions
    return partitions[tp.partition].leader if tp.partition in partitions else -1


def batches_of(cluster: Cluster, tp: TopicPartition, end: int) -> list[AnyBatch]:
    """By our consumer."""
    found: list[AnyBatch] = []
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "none"})
    try:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        until = time.monotonic() + 60
        while (not found or found[-1].next_offset < end) and time.monotonic() < until:
            for fetched in consumer.poll(timeout_ms=500):
                assert fetched.error is None
                found += fetched.batches
    finally:
        consumer.close(timeout_ms=0)
    return found


def by_confluent(cluster: Cluster, tp: TopicPartition, count: int) -> list[Record]:
    """The independent client, which shares no code with this project."""
    found: list[Record] = []
    consumer = Confluent({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "check.crcs": True})
    try:
        consumer.assign([ConfluentPartition(tp.topic, tp.partition, OFFSET_BEGINNING)])
        until = time.monotonic() + 60
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(0.5)
            if message is None:
                continue
            assert message.error() is None, message.error()
            offset, (kind, when) = message.offset(), message.timestamp()
            assert offset is not None
            # Its types do not know that keys and values are bytes, and headers none.
            key: Any = message.key()
            value: Any = message.value()
            assert not message.headers()
            found.append(Record(offset, -1 if kind == TIMESTAMP_NOT_AVAILABLE else when, key, value, ()))
    finally:
        consumer.close()
    return found


def test_old_messages_of_a_real_log_are_read_and_copied(new_cluster: NewCluster, unique: Callable[[str], str]) -> None:
    cluster = new_cluster()
    old, new = TopicPartition(unique("old"), 0), TopicPartition(unique("new"), 0)
    create(cluster, old.topic, new.topic)
    data, expected = segment()
    plant(cluster, old, data)

    found = batches_of(cluster, old, len(expected))
    assert {type(one) for one in found} == {MessageSet}
    assert [record for one in found for record in records_of(one)] == expected
    assert by_confluent(cluster, old, len(expected)) == expected

    made = reencode(found, ReencodeSpec(codec="lz4", limit=600))
    assert len(made.batches) > 1
    assert made.batches[-1].next_offset == len(expected)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    try:
        for future in [producer.send_batch(new, part.batch) for part in made.batches]:
            future.result(timeout=60)
    finally:
        producer.close(timeout_ms=0)
    assert by_confluent(cluster, new, len(expected)) == expected
