"""Records that the target refuses, and changes that the flow requests: by its policy, and never silently."""

from __future__ import annotations

import os
import time

import pytest
from _pytest.mark import ParameterSet
from confluent_kafka import TIMESTAMP_CREATE_TIME

from mirror.relay.batches.reencode import DROPPED_BY_TRANSFORM, ReencodeReason
from mirror.relay.model.ranges import Outcome
from mirror.wire.encode import CODECS
from tests.copying.pair import MAX_BYTES, TwoClusters
from tests.copying.writers import Made, batch_of, made, write_batches

pytestmark = pytest.mark.brokers

HOUR_MS = 3_600_000
EXACTLY, AT_LEAST = pytest.param(True, id="exactly once"), pytest.param(False, id="at least once")


def in_cluster(*values: object, name: str | None = None) -> ParameterSet:
    """Parameters that the suite has in another test, or with another one of the same test's."""
    return pytest.param(*values, id=name, marks=pytest.mark.cluster)


def test_batches_above_the_target_s_limit_are_split(pair: TwoClusters) -> None:
    limit = 20_000
    topic = pair.topics(len(CODECS), target={"max_message_bytes": limit})
    for partition, codec in enumerate(CODECS):
        noise = [record._replace(value=os.urandom(500)) for record in made(300)]
        write_batches(pair.source.address, topic, [batch_of(made(50)), batch_of(noise, codec)], partition)
    results = pair.complete(topic)
    for partition, result in enumerate(results):
        assert result.deep == {ReencodeReason.TOO_LARGE: 1}
        assert result.records == 350
        assert all(batch.size <= limit for batch in pair.target.batches(topic, partition))
    pair.equal(topic, len(CODECS))


def test_batch_above_the_limit_after_the_broker_s_recompression_is_split(pair: TwoClusters) -> None:
    """The target recompresses less well: a batch that was small enough is refused, and then split."""
    limit = 60_000
    topic = pair.topics(target={"max_message_bytes": limit, "compression_type": "uncompressed"})
    write_batches(pair.source.address, topic, [batch_of(made(2_000, size=200), "zstd"), batch_of(made(100), "zstd")])
    assert pair.source.batches(topic)[0].size < limit
    (result,) = pair.complete(topic)
    assert result.deep == {ReencodeReason.TOO_LARGE: 1}
    pair.equal(topic)


@pytest.mark.parametrize("exactly_once", [EXACTLY, in_cluster(False, name="at least once")])
def test_record_above_the_target_s_limit_fails_or_is_skipped_by_policy(pair: TwoClusters, exactly_once: bool) -> None:
    topic = pair.topics(source={"max_message_bytes": MAX_BYTES}, target={"max_message_bytes": 50_000})
    huge = Made(b"huge", os.urandom(200_000))
    batches = [batch_of(made(40)), batch_of([*made(10, first=40), huge, *made(10, first=50)]), batch_of(made(40))]
    write_batches(pair.source.address, topic, batches)
    (result,) = pair.copy(topic, exactly_once=exactly_once)
    assert (result.outcome, result.skipped) == (Outcome.FAILED, {})
    assert "the record at offset 50 " in str(result.error)
    assert "max.message.bytes" in str(result.error)
    assert 40 <= result.end <= 50, "the records before it are committed"
    assert len(pair.target.records(topic)) == result.end

    (result,) = pair.complete(topic, exactly_once=exactly_once, on_too_large="skip")
    assert result.skipped[ReencodeReason.TOO_LARGE] == 1
    assert ReencodeReason.TOO_LARGE in result.deep
    expected = pair.source.records(topic)
    assert expected.pop(50).key == b"huge"
    assert pair.target.records(topic) == expected


@pytest.mark.parametrize(
    ("policy", "exactly_once"),
    [
        ("fail", True),
        ("clamp", True),
        ("skip", False),
        in_cluster("fail", False),
        in_cluster("clamp", False),
        in_cluster("skip", True),
    ],
)
def test_refused_timestamps_follow_the_policy(pair: TwoClusters, policy: str, exactly_once: bool) -> None:
    """The timestamps are beyond message.timestamp.after.max.ms, an hour by default."""
    topic = pair.topics(source={"message_timestamp_after_max_ms": str(2**62)})
    far_ms = int(time.time() * 1000) + 10 * HOUR_MS
    mixed = [
        record._replace(time_ms=far_ms) if number in {7, 30} else record
        for number, record in enumerate(made(40, first=40))
    ]
    batches = [batch_of(made(40), "lz4"), batch_of(mixed, "lz4"), batch_of(made(40, first=80), "lz4")]
    write_batches(pair.source.address, topic, batches)
    (result,) = pair.copy(topic, exactly_once=exactly_once, on_bad_timestamp=policy)
    source, target = pair.source.records(topic), pair.target.records(topic)
    if policy == "fail":
        assert result.outcome is Outcome.FAILED
        assert "offset 47 " in str(result.error)
        assert "message.timestamp.after.max.ms" in str(result.error)
        assert (result.end, len(target)) == (40, 40)
        return
    assert (result.outcome, result.deep) == (Outcome.COMPLETE, {ReencodeReason.BAD_TIMESTAMP: 1})
    if policy == "skip":
        assert result.skipped == {ReencodeReason.BAD_TIMESTAMP: 2}
        assert target == [seen for number, seen in enumerate(source) if number not in {47, 70}]
        return
    clamped = [target[number].time_ms for number in (47, 70)]
    assert all(abs(time_ms - (far_ms - 9 * HOUR_MS)) < HOUR_MS / 4 for time_ms in clamped)
    assert [
        seen._replace(time_ms=far_ms) if number in {47, 70} else seen for number, seen in enumerate(target)
    ] == source


@pytest.mark.parametrize("policy", ["clamp", in_cluster("skip")])
def test_old_timestamps_are_clamped_or_skipped(pair: TwoClusters, policy: str) -> None:
    topic = pair.topics(target={"message_timestamp_before_max_ms": HOUR_MS})
    now = int(time.time() * 1000)
    records = [
        record._replace(time_ms=now - (5 * HOUR_MS if number == 3 else 0)) for number, record in enumerate(made(50))
    ]
    write_batches(pair.source.address, topic, [batch_of(records)])
    (result,) = pair.complete(topic, on_bad_timestamp=policy)
    assert result.deep == {ReencodeReason.BAD_TIMESTAMP: 1}
    source, target = pair.source.records(topic), pair.target.records(topic)
    if policy == "clamp":
        assert now - HOUR_MS <= target[3].time_ms <= now
        target[3] = target[3]._replace(time_ms=source[3].time_ms)
    else:
        assert result.skipped == {ReencodeReason.BAD_TIMESTAMP: 1}
        del source[3]
    assert target == source


@pytest.mark.parametrize("exactly_once", [in_cluster(True, name="exactly once"), AT_LEAST])
def test_records_without_keys_fail_or_are_skipped_in_a_compacted_topic(pair: TwoClusters, exactly_once: bool) -> None:
    topic = pair.topics(target={"cleanup_policy": "compact"})
    mixed = [
        record._replace(key=None) if number in {5, 6} else record for number, record in enumerate(made(40, first=40))
    ]
    write_batches(pair.source.address, topic, [batch_of(made(40)), batch_of(mixed), batch_of(made(40, first=80))])
    (result,) = pair.copy(topic, exactly_once=exactly_once)
    assert result.outcome is Outcome.FAILED
    assert "offset 40" in str(result.error)
    assert "on-no-key" in str(result.error)
    assert (result.end, len(pair.target.records(topic))) == (40, 40)

    (result,) = pair.complete(topic, exactly_once=exactly_once, on_no_key="skip")
    assert (result.deep, result.skipped) == ({ReencodeReason.NO_KEY: 1}, {ReencodeReason.NO_KEY: 2})
    assert pair.target.records(topic) == [seen for seen in pair.source.records(topic) if seen.key is not None]


def test_refusal_fails_only_its_partition(pair: TwoClusters) -> None:
    topic = pair.topics(4, target={"cleanup_policy": "compact"})
    for partition in range(4):
        keyless = [record._replace(key=None) for record in made(10)]
        write_batches(
            pair.source.address,
            topic,
            [batch_of(made(100)), *([batch_of(keyless)] if partition == 2 else []), batch_of(made(100, first=200))],
            partition,
        )
    results = pair.copy(topic)
    assert [result.outcome for result in results] == [Outcome.COMPLETE] * 2 + [Outcome.FAILED, Outcome.COMPLETE]
    assert [result.records for result in results] == [200, 200, 100, 200]
    for partition in (0, 1, 3):
        assert pair.target.records(topic, partition) == pair.source.records(topic, partition)


@pytest.mark.parametrize("codec", [codec if codec in {"none", "zstd"} else in_cluster(codec) for codec in CODECS])
def test_compression_and_headers_of_the_flow_are_applied(pair: TwoClusters, codec: str) -> None:
    before = ("none", "lz4" if codec == "zstd" else "zstd")
    topic = pair.topics(2)
    for partition, source_codec in enumerate(before):
        write_batches(pair.source.address, topic, [batch_of(made(100), source_codec)], partition)
    added = (("from", b"here"), ("n", b""))
    results = pair.complete(topic, compression=codec, headers=added)
    assert [result.deep for result in results] == [{ReencodeReason.CONFIGURED: 1}] * 2
    for partition, (source, target) in enumerate(pair.both(topic, 2)):
        assert {payload.codec for payload in pair.target.payloads(topic, partition)} == {CODECS[codec]}
        assert target == [seen._replace(headers=(*seen.headers, *added)) for seen in source]


def test_transform_of_the_flow_changes_and_drops_records(pair: TwoClusters) -> None:
    topic = pair.topics()
    nulls = [record._replace(value=None) for record in made(10, first=100)]
    write_batches(pair.source.address, topic, [batch_of(made(100), "gzip"), batch_of(nulls), batch_of([*made(3)])])
    (result,) = pair.complete(topic, transform="tests.copying.hooks:upper_without_odd")
    assert result.skipped == {DROPPED_BY_TRANSFORM: 56}
    assert set(result.deep) == {ReencodeReason.CONFIGURED}
    assert pair.target.records(topic) == [
        seen._replace(value=None if seen.value is None else seen.value.upper(), kind=TIMESTAMP_CREATE_TIME)
        for offset, seen in pair.source.seen(topic)
        if offset % 2 == 0
    ]
