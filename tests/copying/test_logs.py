"""Logs with gaps, transactions and append times: compacted, transactional, and with LogAppendTime."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka import Producer as Confluent

from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.batches.reencode_decision import SkipReason
from mirror.relay.progress.gaps import GapKind
from mirror.wire.records import DELETE_HORIZON
from tests.copying.pair import TwoClusters
from tests.copying.site import name
from tests.copying.writers import Made, batch_of, made, transactional, write, write_batches
from tests.e2e.broker_side import CODECS, FIRST_MS, WITHIN_S
from tests.polling import eventually

pytestmark = pytest.mark.brokers

QUICK_COMPACTION = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "100",
    "max_compaction_lag_ms": "200",
}


def test_compacted_topic_with_tombstones_is_copied(pair: TwoClusters) -> None:
    """The log has gaps inside and between batches, tombstones, and batches that compaction left unchanged."""
    topic = pair.topics(source=QUICK_COMPACTION, target={"cleanup_policy": "compact"})
    now = int(time.time() * 1000) - 60_000
    first = [Made(b"k%d" % (number % 20), b"old %d" % number, (), now + number) for number in range(100)]
    second = [
        Made(b"k%d" % number, None if number % 3 == 0 else b"new", (), now + 200 + number) for number in range(10)
    ]
    alone = [Made(b"a%d" % number, None if number % 2 else b"once", (), now + 300 + number) for number in range(50)]
    last = made(50, first=1000)
    write_batches(pair.source.address, topic, [batch_of(first[:50], "lz4"), batch_of(first[50:], "gzip")])
    write_batches(pair.source.address, topic, [batch_of(second), batch_of(alone, "zstd")])

    def compacted() -> bool:
        # The cleaner compacts a segment only when there is a newer one.
        write_batches(pair.source.address, topic, [batch_of([Made(b"turn", b"v", (), int(time.time() * 1000))])])
        batches = pair.source.batches(topic)
        return batches[0].base_offset > 0 and any(batch.attributes & DELETE_HORIZON for batch in batches)

    eventually(compacted, what="the cleaner has compacted the log")
    write_batches(pair.source.address, topic, [batch_of(last, "snappy")])
    (planned,) = pair.ranges(topic)
    (result,) = pair.complete([planned])
    assert result.deep[ReencodeReason.GAPS] >= 1
    found = pair.target.records(topic)
    # The source may be compacted further at any time: then more was copied than it has now.
    assert found[-50:] == pair.source.records(topic)[-50:]
    assert [(seen.key, seen.value, seen.time_ms) for seen in found if seen.key != b"turn"] == [
        (record.key, record.value, record.time_ms) for record in [*first[90:], *second, *alone, *last]
    ]
    assert result.records == len(found)
    assert result.gaps[GapKind.COMPACTED] == planned.end - planned.start - len(found)


def test_interleaved_transactions_are_copied_up_to_the_last_stable_offset(pair: TwoClusters) -> None:
    """Committed and aborted transactions interleave; nothing behind the first open one is stable."""
    topic = pair.topics()
    first, second, third = (transactional(pair.source.address, name("producer")) for _ in range(3))
    plain = pair.source.producer(compression_type="lz4")
    committed: list[Made] = []

    def put(producer: Confluent, first_number: int, count: int = 40) -> list[Made]:
        records = made(count, first=first_number)
        write(producer, topic, records)
        return records

    for turn in range(4):
        for producer in (first, second, third):
            producer.begin_transaction()
        base = turn * 10_000
        committed += put(first, base)
        put(second, base + 1000)
        committed += put(plain, base + 2000)
        committed += put(third, base + 3000)
        put(second, base + 4000)
        committed += put(first, base + 5000)
        second.abort_transaction(WITHIN_S)
        committed += put(third, base + 6000)
        first.commit_transaction(WITHIN_S)
        third.commit_transaction(WITHIN_S)
    first.begin_transaction()
    second.begin_transaction()
    late = put(first, 90_000)
    put(second, 91_000)
    late += put(plain, 92_000)
    stable = len(committed) + 8 * 40 + 12  # including aborted records and markers
    eventually(lambda: pair.source.ends(topic)[1] == stable, what="all markers are written")
    (result,) = pair.complete(topic)
    # confluent-kafka may split the records of one transaction into several batches.
    assert result.skipped[SkipReason.CONTROL] == 12
    assert result.skipped[SkipReason.ABORTED] >= 8
    assert result.gaps == {GapKind.MARKERS: 12}
    assert result.end == stable
    assert [seen.key for seen in pair.target.records(topic)] == [record.key for record in committed]
    pair.equal(topic)

    second.abort_transaction(WITHIN_S)
    first.commit_transaction(WITHIN_S)
    pair.source.await_stable(topic)
    (result,) = pair.complete(topic)
    assert result.skipped[SkipReason.CONTROL] == 2
    assert result.skipped[SkipReason.ABORTED] >= 1
    assert [seen.key for seen in pair.target.records(topic)] == [record.key for record in committed + late]
    pair.equal(topic)


def test_records_before_an_open_transaction_are_copied(pair: TwoClusters) -> None:
    topic = pair.topics()
    write(pair.source.producer(), topic, made(50))
    producer = transactional(pair.source.address, name("producer"))
    producer.begin_transaction()
    write(producer, topic, made(50, first=50))
    write(pair.source.producer(), topic, made(50, first=100))
    (result,) = pair.complete(topic)
    assert (result.records, result.end) == (50, 50)
    producer.abort_transaction(WITHIN_S)
    pair.source.await_stable(topic)
    (result,) = pair.complete(topic)
    assert (result.records, result.end) == (50, 151)
    assert [seen.key for seen in pair.target.records(topic)] == [
        record.key for record in made(50) + made(50, first=100)
    ]


def test_append_times_of_the_source_become_record_timestamps(pair: TwoClusters) -> None:
    """From LogAppendTime to CreateTime: the source's append time becomes the timestamp of each record."""
    topic = pair.topics(len(CODECS), source={"message_timestamp_type": "LogAppendTime"})
    for partition, codec in enumerate(CODECS):
        write_batches(
            pair.source.address,
            topic,
            [batch_of(made(count, first=1000 * count), codec) for count in (1, 100, 1000)],
            partition,
        )
    results = pair.complete(topic)
    assert [result.deep for result in results] == [{ReencodeReason.APPEND_TIME: 3}] * len(CODECS)
    for source, target in pair.both(topic, len(CODECS)):
        assert {seen.kind for seen in source} == {TIMESTAMP_LOG_APPEND_TIME}
        assert target == [seen._replace(kind=TIMESTAMP_CREATE_TIME) for seen in source]
        assert target[0].time_ms > FIRST_MS + 1_000_000


def test_append_times_of_the_target_replace_those_of_the_source(pair: TwoClusters) -> None:
    """From LogAppendTime to LogAppendTime: everything but the timestamps is passed on as bytes."""
    topic = pair.topics(2, both={"message_timestamp_type": "LogAppendTime"})
    for partition in range(2):
        batches = [batch_of(made(100, first=100 * number), "lz4") for number in range(3)]
        write_batches(pair.source.address, topic, batches, partition)
    began = int(time.time() * 1000)
    results = pair.complete(topic)
    assert [result.deep for result in results] == [{}, {}]
    for partition, (source, target) in enumerate(pair.both(topic, 2)):
        assert [seen[:4] for seen in target] == [seen[:4] for seen in source]
        assert {seen.kind for seen in target} == {TIMESTAMP_LOG_APPEND_TIME}
        assert all(seen.time_ms >= began for seen in target)
        assert pair.target.payloads(topic, partition) == pair.source.payloads(topic, partition)


def test_append_times_of_the_target_allow_any_source_timestamp(pair: TwoClusters) -> None:
    """From CreateTime to LogAppendTime: timestamps far in the future do not matter."""
    topic = pair.topics(
        source={"message_timestamp_after_max_ms": str(2**63 - 1)}, target={"message_timestamp_type": "LogAppendTime"}
    )
    far = [record._replace(time_ms=4_000_000_000_000) for record in made(100)]
    write_batches(pair.source.address, topic, [batch_of(far, "zstd")])
    (result,) = pair.complete(topic)
    assert result.deep == {}
    assert [seen[:3] for seen in pair.target.records(topic)] == [seen[:3] for seen in pair.source.records(topic)]
    assert pair.target.payloads(topic) == pair.source.payloads(topic)


def test_topic_whose_timestamp_type_changed_is_decided_per_batch(pair: TwoClusters) -> None:
    """The timestamp type is that of each batch: the topic's configuration may have been another one before."""
    topic = pair.topics()
    write_batches(pair.source.address, topic, [batch_of(made(100))])
    pair.source.configure(topic, message_timestamp_type="LogAppendTime")
    write_batches(pair.source.address, topic, [batch_of(made(100, first=100))])
    (result,) = pair.complete(topic)
    assert result.deep == {ReencodeReason.APPEND_TIME: 1}
    source = pair.source.records(topic)
    assert {seen.kind for seen in source} == {TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME}
    assert pair.target.records(topic) == [seen._replace(kind=TIMESTAMP_CREATE_TIME) for seen in source]
