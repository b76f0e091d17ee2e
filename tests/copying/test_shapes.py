"""Records of every shape, in batches of every size and codec: the target equals the source."""

from __future__ import annotations

import pytest

from mirror.relay.batches.reencode import ReencodeReason
from mirror.wire.encode import CODECS
from tests.copying.pair import MAX_BYTES, TwoClusters, same
from tests.copying.writers import Made, batch_of, made, write, write_batches
from tests.e2e.broker_side import FIRST_MS

pytestmark = pytest.mark.brokers

SHAPES = [
    Made(None, None),
    Made(b"", b""),
    Made(None, b"value"),
    Made(b"key", None),
    Made(b"key", b"", (("h", None), ("h", b""), ("h", b"third"), ("h", None))),
    Made(b"key", b"value", (("", b""), ("\u00e9\u4e2d", bytes(range(256))))),
    Made(bytes(range(256)), bytes(1000), tuple((f"name-{number}", b"x" * number) for number in range(200))),
    Made(b"huge header", b"v", (("huge", b"h" * 300_000),)),
    Made(b"one of the first times", b"v", (), 1),
    Made(b"earlier than the one before", b"v", (), FIRST_MS - 86_400_000),
]


@pytest.mark.parametrize(
    "exactly_once",
    [pytest.param(True, id="exactly once"), pytest.param(False, id="at least once", marks=pytest.mark.cluster)],
)
def test_records_of_every_shape_are_copied_in_every_codec(pair: TwoClusters, exactly_once: bool) -> None:
    """The batches of another client's producer are passed on unchanged."""
    topic = pair.topics(len(CODECS))
    expected = [*SHAPES, *made(300), *SHAPES]
    for partition, codec in enumerate(CODECS):
        write(pair.source.producer(compression_type=codec), topic, expected, partition)
    results = pair.complete(topic, exactly_once=exactly_once)
    for partition, (codec, (theirs, found)) in enumerate(zip(CODECS, pair.both(topic, len(CODECS)), strict=True)):
        same(found, theirs, codec)
        assert [Made(*record[:3], record.time_ms) for record in found] == [
            record._replace(headers=tuple(record.headers)) for record in expected
        ]
        payloads = pair.source.payloads(topic, partition)
        assert pair.target.payloads(topic, partition) == payloads
        assert {payload.codec for payload in payloads} == {CODECS[codec]}
        assert (results[partition].deep, results[partition].skipped, results[partition].gaps) == ({}, {}, {})
        assert (results[partition].records, results[partition].batches) == (len(expected), len(payloads))


def test_batches_of_one_to_ten_thousand_records_are_copied(pair: TwoClusters) -> None:
    counts = [1_000, 100, 50, 1, 10_000, 1, 2]
    records = [made(count, first=10_000 * turn) for turn, count in enumerate(counts)]
    topic = pair.topics(len(CODECS))
    for partition, codec in enumerate(CODECS):
        write_batches(pair.source.address, topic, [batch_of(of_batch, codec) for of_batch in records], partition)
    # Nothing is merged: no two batches are this small.
    results = pair.complete(topic, writing={"batch.size": 1})
    assert [result.deep for result in results] == [{}] * len(CODECS)
    assert [result.records for result in results] == [sum(counts)] * len(CODECS)
    for partition in range(len(CODECS)):
        payloads = pair.target.payloads(topic, partition)
        assert payloads == pair.source.payloads(topic, partition)
        assert [payload.records for payload in payloads] == counts
    pair.equal(topic, len(CODECS))


def test_small_batches_are_merged(pair: TwoClusters) -> None:
    topic = pair.topics(len(CODECS))
    for partition, codec in enumerate(CODECS):
        batches = [batch_of(made(1 + number % 3, first=10 * number), codec) for number in range(150)]
        write_batches(pair.source.address, topic, batches, partition)
    results = pair.complete(topic)
    for partition, result in enumerate(results):
        assert set(result.deep) == {ReencodeReason.SMALL}
        assert result.deep[ReencodeReason.SMALL] > 130
        assert len(pair.target.batches(topic, partition)) == result.batches < 20
    pair.equal(topic, len(CODECS))


@pytest.mark.parametrize(("writing", "together"), [({}, 8), ({"batch.size": 65_536}, 2), ({"batch.size": 1}, 1)])
def test_reencoded_batches_are_merged_up_to_batch_size_or_256_kib(
    pair: TwoClusters, writing: dict[str, int], together: int
) -> None:
    topic = pair.topics()
    write_batches(pair.source.address, topic, [batch_of([Made(b"", bytes(10_000))] * 3) for _ in range(64)])
    (result,) = pair.complete(topic, writing=writing, headers=(("by", b"mirror"),))
    assert result.deep == {ReencodeReason.CONFIGURED: 64}
    # At the end of a fetch response, there may be fewer.
    most = max(batch.size for batch in pair.target.batches(topic))
    assert together * 30_000 < most < (together + 1) * 30_000
    assert 64 // together <= result.batches <= 64 // together + 8


def test_larger_batches_are_passed_on_as_bytes(pair: TwoClusters) -> None:
    topic = pair.topics()
    write_batches(pair.source.address, topic, [batch_of([Made(b"", bytes(10_000))] * 3) for _ in range(8)])
    (result,) = pair.complete(topic)
    assert (result.deep, result.batches) == ({}, 8)
    pair.equal(topic)


def test_small_buffer_limits_the_merged_size(pair: TwoClusters) -> None:
    topic = pair.topics()
    write_batches(pair.source.address, topic, [batch_of([Made(b"", bytes(1_000))] * 3) for _ in range(64)])
    (result,) = pair.complete(topic, writing={"buffer.memory": 20_000})
    assert result.batches >= 64 // 6
    assert max(batch.size for batch in pair.target.batches(topic)) < 20_000
    pair.equal(topic)


def test_records_of_ten_megabytes_are_copied(pair: TwoClusters) -> None:
    """The huge record stands alone, among small ones, and in a batch that is re-encoded."""
    topic = pair.topics(3, both={"max_message_bytes": MAX_BYTES})
    huge = [Made(b"huge", bytes(number % 251 for number in range(size))) for size in (1 << 20, 10_000_000)]
    for partition, codec in enumerate(("none", "zstd")):
        ready = [
            batch_of(made(100), codec),
            *(batch_of([record], codec) for record in huge),
            batch_of([Made(b"", b"")]),
        ]
        write_batches(pair.source.address, topic, ready, partition)
    both_in_one = [batch_of([Made(None, b"0" * 5_000_000), *made(10), Made(b"", b"1" * 5_000_000)])]
    write_batches(pair.source.address, topic, both_in_one, 2)
    ranges = pair.ranges(topic)
    options = {"buffer.memory": 64 << 20, "max.request.size": MAX_BYTES}
    results = pair.complete(ranges, writing=options)
    assert [result.records for result in results] == [103, 103, 12]
    pair.equal(topic, 3)

    again = pair.topics(both={"max_message_bytes": MAX_BYTES})
    write_batches(pair.source.address, again, [batch_of([*huge, *made(10)])])
    (result,) = pair.complete(again, writing=options, headers=(("by", b"mirror"),))
    assert result.deep == {ReencodeReason.CONFIGURED: 1}
    assert [record._replace(headers=record.headers[:-1]) for record in pair.target.records(again)] == (
        pair.source.records(again)
    )


def test_range_may_begin_and_end_inside_batches(pair: TwoClusters) -> None:
    """The plan's offsets need not be those of batches."""
    topic = pair.topics()
    write_batches(pair.source.address, topic, [batch_of(made(100, first=first), "lz4") for first in (0, 100, 200)])
    (result,) = pair.complete(pair.ranges(topic, start=37, end=250))
    assert result.deep == {ReencodeReason.TRIMMED: 2}
    assert (result.start, result.end, result.records) == (37, 250, 213)
    assert pair.target.records(topic) == pair.source.records(topic)[37:250]
    assert pair.target.payloads(topic)[1] == pair.source.payloads(topic)[1]
    (rest,) = pair.complete(pair.ranges(topic))
    assert (rest.start, rest.end, rest.records, rest.deep) == (250, 300, 50, {ReencodeReason.TRIMMED: 1})
    assert pair.target.records(topic) == pair.source.records(topic)[37:]


def test_log_whose_start_was_deleted_is_copied_from_its_first_offset(pair: TwoClusters) -> None:
    """DeleteRecords sets the log start inside a batch, which the broker still returns whole."""
    topic = pair.topics(2)
    for partition in (0, 1):
        write_batches(pair.source.address, topic, [batch_of(made(100, first=at), "zstd") for at in (0, 100)], partition)
    pair.source.delete_records(topic, 30)
    pair.source.delete_records(topic, 100, 1)
    results = pair.complete(topic)
    assert [result.deep for result in results] == [{ReencodeReason.TRIMMED: 1}, {}]
    assert [(result.start, result.records) for result in results] == [(30, 170), (100, 100)]
    assert len(pair.target.records(topic)) == 170
    pair.equal(topic, 2)
