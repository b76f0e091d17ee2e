"""Logs that are no plain rows of batches: compacted, transactional, with times of the broker's, of the old formats."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka import Producer as Confluent

from mirror.relay.batches.classify import Skip
from mirror.relay.batches.reencode import Reason
from mirror.relay.progress.gaps import GapKind
from mirror.wire.records import DELETE_HORIZON
from tests.copying.pair import Pair
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


def test_compacted_topics_with_tombstones(pair: Pair) -> None:
    """Holes inside batches, whole batches gone, tombstones, and batches that came through compaction untouched."""
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
        # Only another segment makes the one before it old enough.
        write_batches(pair.source.address, topic, [batch_of([Made(b"turn", b"v", (), int(time.time() * 1000))])])
        batches = pair.source.batches(topic)
        return batches[0].base_offset > 0 and any(one.attributes & DELETE_HORIZON for one in batches)

    eventually(compacted, within_s=25, what="the cleaner has been at the log")
    write_batches(pair.source.address, topic, [batch_of(last, "snappy")])
    (one,) = pair.ranges(topic)
    (result,) = pair.complete([one])
    assert result.deep[Reason.GAPS] >= 1
    found = pair.target.records(topic)
    # The source may be compacted further at any time: then what was copied is more than it has now.
    assert found[-50:] == pair.source.records(topic)[-50:]
    assert [(seen.key, seen.value, seen.time_ms) for seen in found if seen.key != b"turn"] == [
        (each.key, each.value, each.time_ms) for each in [*first[90:], *second, *alone, *last]
    ]
    assert result.records == len(found)
    assert result.gaps[GapKind.COMPACTED] == one.end - one.start - len(found)


def test_transactions_of_several_producers(pair: Pair) -> None:
    """Committed, aborted, interleaved, in many codecs; beyond the first open one nothing is stable."""
    topic = pair.topics()
    one, two, three = (transactional(pair.source.address, name("producer")) for _ in range(3))
    plain = pair.source.producer(compression_type="lz4")
    committed: list[Made] = []

    def put(producer: Confluent, first: int, count: int = 40) -> list[Made]:
        records = made(count, first=first)
        write(producer, topic, records)
        return records

    for turn in range(4):
        for producer in (one, two, three):
            producer.begin_transaction()
        base = turn * 10_000
        committed += put(one, base)
        put(two, base + 1000)
        committed += put(plain, base + 2000)
        committed += put(three, base + 3000)
        put(two, base + 4000)
        committed += put(one, base + 5000)
        two.abort_transaction(WITHIN_S)
        committed += put(three, base + 6000)
        one.commit_transaction(WITHIN_S)
        three.commit_transaction(WITHIN_S)
    one.begin_transaction()
    two.begin_transaction()
    late = put(one, 90_000)
    put(two, 91_000)
    late += put(plain, 92_000)
    stable = len(committed) + 8 * 40 + 12  # with what is aborted, and the markers
    eventually(lambda: pair.source.ends(topic)[1] == stable, what="all markers are written")
    (result,) = pair.complete(topic)
    # confluent-kafka may cut what it was given at once into several batches.
    assert result.skipped[Skip.CONTROL] == 12
    assert result.skipped[Skip.ABORTED] >= 8
    assert result.gaps == {GapKind.MARKERS: 12}
    assert result.end == stable
    assert [seen.key for seen in pair.target.records(topic)] == [each.key for each in committed]
    pair.equal(topic)

    two.abort_transaction(WITHIN_S)
    one.commit_transaction(WITHIN_S)
    pair.source.await_stable(topic)
    (result,) = pair.complete(topic)
    assert result.skipped[Skip.CONTROL] == 2
    assert result.skipped[Skip.ABORTED] >= 1
    assert [seen.key for seen in pair.target.records(topic)] == [each.key for each in committed + late]
    pair.equal(topic)


def test_a_transaction_that_stays_open_holds_nothing_up_before_it(pair: Pair) -> None:
    topic = pair.topics()
    write(pair.source.producer(), topic, made(50))
    one = transactional(pair.source.address, name("producer"))
    one.begin_transaction()
    write(one, topic, made(50, first=50))
    write(pair.source.producer(), topic, made(50, first=100))
    (result,) = pair.complete(topic)
    assert (result.records, result.end) == (50, 50)
    one.abort_transaction(WITHIN_S)
    pair.source.await_stable(topic)
    (result,) = pair.complete(topic)
    assert (result.records, result.end) == (50, 151)
    assert [seen.key for seen in pair.target.records(topic)] == [each.key for each in made(50) + made(50, first=100)]


def test_times_set_by_the_source(pair: Pair) -> None:
    """LogAppendTime into CreateTime: each record's own time is the source's append time then."""
    topic = pair.topics(len(CODECS), source={"message_timestamp_type": "LogAppendTime"})
    for partition, codec in enumerate(CODECS):
        write_batches(
            pair.source.address,
            topic,
            [batch_of(made(count, first=1000 * count), codec) for count in (1, 100, 1000)],
            partition,
        )
    results = pair.complete(topic)
    assert [result.deep for result in results] == [{Reason.APPEND_TIME: 3}] * len(CODECS)
    for source, target in pair.both(topic, len(CODECS)):
        assert {seen.kind for seen in source} == {TIMESTAMP_LOG_APPEND_TIME}
        assert target == [seen._replace(kind=TIMESTAMP_CREATE_TIME) for seen in source]
        assert target[0].time_ms > FIRST_MS + 1_000_000


def test_times_set_by_both(pair: Pair) -> None:
    """LogAppendTime into LogAppendTime: passed on as bytes, all but the times."""
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


def test_times_set_by_the_target(pair: Pair) -> None:
    """CreateTime into LogAppendTime: times far in the future do not matter there."""
    topic = pair.topics(
        source={"message_timestamp_after_max_ms": str(2**63 - 1)}, target={"message_timestamp_type": "LogAppendTime"}
    )
    far = [one._replace(time_ms=4_000_000_000_000) for one in made(100)]
    write_batches(pair.source.address, topic, [batch_of(far, "zstd")])
    (result,) = pair.complete(topic)
    assert result.deep == {}
    assert [seen[:3] for seen in pair.target.records(topic)] == [seen[:3] for seen in pair.source.records(topic)]
    assert pair.target.payloads(topic) == pair.source.payloads(topic)


def test_a_topic_whose_times_changed_hands(pair: Pair) -> None:
    """Who sets the time is decided batch by batch: the topic's configuration may have been another one before."""
    topic = pair.topics()
    write_batches(pair.source.address, topic, [batch_of(made(100))])
    pair.source.configure(topic, message_timestamp_type="LogAppendTime")
    write_batches(pair.source.address, topic, [batch_of(made(100, first=100))])
    (result,) = pair.complete(topic)
    assert result.deep == {Reason.APPEND_TIME: 1}
    source = pair.source.records(topic)
    assert {seen.kind for seen in source} == {TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME}
    assert pair.target.records(topic) == [seen._replace(kind=TIMESTAMP_CREATE_TIME) for seen in source]
