"""The deep path: records are unchanged, however batches are split, merged and compressed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.errors import CorruptBatch
from mirror.relay.batches.reencode import DROPPED_BY_TRANSFORM, ReencodeReason, ReencodeResult, ReencodeSpec, reencode
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import CODECS, BatchBuilder
from mirror.wire.legacy import MessageSet
from mirror.wire.records import CODEC_MASK, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, AnyBatch, Batch
from tests.fakes.record_batches import COMMIT, batch, build, build_marker, record

TIME = 1_700_000_000_123
_Made = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

_bytes = st.none() | st.binary(max_size=60) | st.integers(0, 4_000).map(lambda size: b"ab" * size)
_made = st.tuples(
    _bytes,
    _bytes,
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3),
    st.integers(-2, 2**41),
)
_CODEC = st.sampled_from(sorted(CODECS))


@st.composite
def sources(draw: st.DrawFn) -> list[Batch]:
    """Batches of a log, with different codecs and leader epochs, and gaps inside, between and after them."""
    found: list[Batch] = []
    at, epoch = draw(st.integers(0, 2**40)), 0
    for records in draw(st.lists(st.lists(_made, max_size=6), min_size=1, max_size=4)):
        at += draw(st.integers(0, 3))
        epoch += draw(st.integers(0, 2))
        made = gappy(records, draw(st.lists(st.integers(1, 3), min_size=7, max_size=7)), draw(_CODEC), at, epoch)
        found.append(made)
        at = made.next_offset
    return found


def gappy(records: Sequence[_Made], steps: Sequence[int], codec: str, base_offset: int, epoch: int) -> Batch:
    """Remove records as the log cleaner does, which keeps the offsets of the others."""
    builder = BatchBuilder(codec, 2**31 - 1)
    for key, value, headers, time in records:
        assert builder.append(key, value, headers, time)
    if not records:
        return batch(build((), base_offset=base_offset, leader_epoch=epoch, last_offset_delta=steps[0]))
    if all(step == 1 for step in steps[: len(records)]):
        plain = builder.build()
        struct.pack_into(">q", plain.view, 0, base_offset)
        struct.pack_into(">i", plain.view, 12, epoch)
        return Batch(plain.view)
    data = b""
    delta = -1
    for (key, value, headers, time), step in zip(records, steps, strict=False):
        delta += step
        data += by_hand(delta, key, value, headers, time)
    return batch(
        build(
            (b"",) * len(records),
            base_offset=base_offset,
            leader_epoch=epoch,
            timestamp=0,
            payload=data,
            last_offset_delta=delta + steps[-1] - 1,
        )
    )


def by_hand(
    delta: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]], time: int
) -> bytes:
    """Encode a record relative to the base timestamp 0."""

    def varint(number: int) -> bytes:
        number = number << 1 ^ number >> 63
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes([*out, number])

    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    result = b"\0" + varint(time) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    result += b"".join(sized(name.encode()) + sized(data) for name, data in headers)
    return varint(len(result)) + result


def read(made: ReencodeResult) -> list[Record]:
    """Decode with aiokafka's pure Python codec; the product uses the compiled one."""
    found = []
    for one in made.batches:
        one.batch.verify()
        pure: Any = _DefaultRecordBatchPy(bytes(one.batch.view))
        found += [
            Record(r.offset, r.timestamp, r.key, r.value, tuple(tuple(header) for header in r.headers)) for r in pure
        ]
    return found


def without_offsets(records: Sequence[Record]) -> list[Record]:
    return [one._replace(offset=0) for one in records]


@settings(max_examples=80)
@given(
    given_sources=sources(),
    codec=st.none() | _CODEC,
    limit=st.none() | st.integers(1, 20_000),
    skipped=st.integers(0, 12),
)
def test_reencoded_batches_hold_the_records_of_their_sources(
    given_sources: list[Batch], codec: str | None, limit: int | None, skipped: int
) -> None:
    whole = [(one, source) for source in given_sources for one in records_of(source)]
    start = given_sources[0].base_offset + skipped
    before = [bytes(source.view) for source in given_sources]
    made = reencode(given_sources, ReencodeSpec(codec=codec, limit=limit, start=start))
    assert [bytes(source.view) for source in given_sources] == before, "the sources stay as they are"

    kept = [(one, source) for one, source in whole if one.offset >= start]
    assert without_offsets(read(made)) == without_offsets([one for one, _ in kept])
    assert made.dropped == {}, "what comes before the start is no part of this copy"

    at = 0
    for number, part in enumerate(made.batches):
        assert_as_nobody_has_sent(part.batch)
        of_part = kept[at : at + part.batch.count]
        at += part.batch.count
        assert part.base_offset == of_part[0][0].offset
        if number < len(made.batches) - 1:
            assert part.next_offset == of_part[-1][0].offset + 1
            assert part.leader_epoch == of_part[-1][1].leader_epoch
    assert at == len(kept)
    if made.batches:
        last = made.batches[-1]
        assert (last.next_offset, last.leader_epoch) == (given_sources[-1].next_offset, given_sources[-1].leader_epoch)
    assert len(made.batches) <= 1 or limit is not None


def assert_as_nobody_has_sent(one: Batch) -> None:
    """Check what a broker requires of a producer's batch (LogValidator, error 87)."""
    assert (one.base_offset, one.last_offset_delta) == (0, one.count - 1)
    assert [record.offset for record in records_of(one)] == list(range(one.count))
    assert (one.leader_epoch, one.producer_id, one.magic) == (-1, -1, 2)
    assert not one.attributes & ~CODEC_MASK
    times = [record.timestamp_ms for record in records_of(one)]
    assert one.max_timestamp == max(times)
    assert one.count > 0


@settings(max_examples=40)
@given(given_sources=sources(), limit=st.integers(1, 20_000))
def test_batch_exceeds_the_limit_only_for_a_single_record(given_sources: list[Batch], limit: int) -> None:
    for part in reencode(given_sources, ReencodeSpec(codec="none", limit=limit)).batches:
        assert part.batch.size <= limit or part.batch.count == 1


def plain(
    values: Sequence[bytes] = (b"a", b"b", b"c"), *, codec: str = "none", base_offset: int = 0, epoch: int = 0
) -> Batch:
    return gappy([(b"key", value, [], TIME) for value in values], [1] * len(values), codec, base_offset, epoch)


def values(made: ReencodeResult) -> list[list[bytes | None]]:
    return [[one.value for one in records_of(part.batch)] for part in made.batches]


def test_small_batches_are_merged_into_one() -> None:
    made = reencode([plain((b"%d" % n,), base_offset=n, epoch=n // 50) for n in range(100)], ReencodeSpec())
    (one,) = made.batches
    assert (one.base_offset, one.next_offset, one.leader_epoch, one.batch.count) == (0, 100, 1, 100)


def test_large_batch_is_split_and_progress_may_stand_between_the_parts() -> None:
    source = plain([b"%d" % n * 100 for n in range(10)], base_offset=50, epoch=7)
    made = reencode([source], ReencodeSpec(limit=400))
    assert [(part.base_offset, part.next_offset) for part in made.batches] == [
        (50, 53),
        (53, 56),
        (56, 59),
        (59, 60),
    ]
    assert {part.leader_epoch for part in made.batches} == {7}


def test_parts_of_a_compacted_batch_end_after_their_last_record() -> None:
    source = batch(build((b"a" * 50, b"b" * 50, b"c" * 50), base_offset=100, deltas=(3, 8, 20), last_offset_delta=30))
    made = reencode([source], ReencodeSpec(limit=1))
    assert [(part.base_offset, part.next_offset) for part in made.batches] == [(103, 104), (108, 109), (120, 131)]


@pytest.mark.parametrize("codec", CODECS)
def test_codec_of_the_source_is_kept(codec: str) -> None:
    (part,) = reencode([plain([b"x" * 1_000], codec=codec)], ReencodeSpec()).batches
    assert part.batch.attributes == CODECS[codec]


def test_codec_is_that_of_the_first_compressed_source() -> None:
    mixed = [plain([b"x"]), plain([b"x" * 1_000], codec="zstd", base_offset=1), plain([b"x" * 900], base_offset=2)]
    assert [part.batch.attributes for part in reencode(mixed, ReencodeSpec()).batches] == [CODECS["zstd"]]
    assert [part.batch.attributes for part in reencode(mixed, ReencodeSpec(codec="none")).batches] == [0]


def test_log_append_time_becomes_the_timestamp_of_each_record() -> None:
    source = batch(build((b"a", b"b"), timestamp=TIME, attributes=LOG_APPEND_TIME))
    (part,) = reencode([source], ReencodeSpec()).batches
    assert not part.batch.has_log_append_time
    assert [one.timestamp_ms for one in records_of(part.batch)] == [TIME, TIME]


def test_only_the_codec_of_the_source_attributes_is_kept() -> None:
    source = batch(build((b"a",), attributes=TRANSACTIONAL | DELETE_HORIZON, producer_id=9, producer_epoch=1))
    (part,) = reencode([source], ReencodeSpec()).batches
    assert (part.batch.attributes, part.batch.producer_id) == (0, -1)


@pytest.mark.parametrize(
    "nothing",
    [[], [build_marker(5, 0, COMMIT, base_offset=3)], [build((), last_offset_delta=4)]],
    ids=["no source", "a marker", "emptied by compaction"],
)
def test_sources_without_records_give_no_batch(nothing: list[bytearray]) -> None:
    assert reencode([batch(data) for data in nothing], ReencodeSpec()) == ReencodeResult([], {})


def test_source_before_the_start_gives_no_batch() -> None:
    assert reencode([plain(base_offset=5)], ReencodeSpec(start=8)) == ReencodeResult([], {})


def test_spec_does_not_show_its_headers() -> None:
    assert "hush" not in repr(ReencodeSpec(headers=(("token", b"hush"),)))


def test_last_batch_covers_an_empty_source_at_the_end() -> None:
    emptied = batch(build((), base_offset=3, leader_epoch=2, last_offset_delta=6))
    (part,) = reencode([plain(), emptied], ReencodeSpec()).batches
    assert (part.base_offset, part.next_offset, part.leader_epoch) == (0, 10, 2)


def test_corrupt_source_is_named_by_its_offset() -> None:
    bad = plain(base_offset=17)
    bad.view[-1] ^= 1
    with pytest.raises(CorruptBatch, match="offset 17"):
        reencode([plain(), bad], ReencodeSpec())
    unreadable = batch(build((b"a",), base_offset=18, payload=record(b"a", 0) + b"more"))
    with pytest.raises(CorruptBatch, match="offset 18"):
        reencode([unreadable], ReencodeSpec())


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_becomes_a_batch(magic: int) -> None:
    """A message of magic 0 has no timestamp, and still has none beside records that have one."""
    old: list[AnyBatch] = []
    for offset, (key, value) in enumerate([(None, b"a"), (b"k", None), (b"", b"")], start=5):
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=10_000)
        builder.append(offset, TIME + offset, key, value)
        old.append(MessageSet(memoryview(bytearray(builder.build()))))
    made = reencode([*old, plain((b"new",), base_offset=8, epoch=3)], ReencodeSpec(start=6))
    (part,) = made.batches
    assert (part.base_offset, part.next_offset, part.leader_epoch) == (6, 9, 3)
    assert_as_nobody_has_sent(part.batch)
    times = [-1, -1] if magic == 0 else [TIME + 6, TIME + 7]
    assert read(made) == [
        Record(0, times[0], b"k", None, ()),
        Record(1, times[1], b"", b"", ()),
        Record(2, TIME, b"key", b"new", ()),
    ]


def test_records_of_20_mb_are_reencoded() -> None:
    value = bytes(range(256)) * 80_000
    (part,) = reencode([plain([value], codec="lz4")], ReencodeSpec(limit=1_000_000)).batches
    assert [one.value for one in records_of(part.batch)] == [value]


# --- what the flow asks for


def test_added_headers_follow_the_headers_of_the_record() -> None:
    source = gappy([(b"k", b"v", [("own", b"1"), ("own", None)], TIME)], [1], "none", 0, 0)
    (part,) = reencode([source], ReencodeSpec(headers=(("from", b"paris"), ("none", None)))).batches
    (one,) = records_of(part.batch)
    assert one.headers == (("own", b"1"), ("own", None), ("from", b"paris"), ("none", None))


def test_transform_replaces_and_drops_records() -> None:
    def shout(one: Record) -> Record | None:
        return None if one.value == b"b" else one._replace(offset=99, value=(one.value or b"").upper() * 2)

    made = reencode([plain(base_offset=10)], ReencodeSpec(transform=shout, headers=(("h", b"1"),)))
    assert values(made) == [[b"AA", b"CC"]]
    assert made.dropped == {DROPPED_BY_TRANSFORM: 1}
    assert [(part.base_offset, part.next_offset) for part in made.batches] == [(10, 13)], "offsets are the source's"
    assert [one.headers for part in made.batches for one in records_of(part.batch)] == [(("h", b"1"),)] * 2


def test_transform_that_drops_every_record_gives_no_batch() -> None:
    made = reencode([plain()], ReencodeSpec(transform=lambda _: None))
    assert (made.batches, made.dropped) == ([], {DROPPED_BY_TRANSFORM: 3})


def test_records_without_a_key_are_skipped_if_the_spec_says_so() -> None:
    records: list[_Made] = [(None, b"a", [], TIME), (b"", b"b", [], TIME), (b"k", None, [], TIME)]
    source = gappy(records, [1] * 3, "none", 0, 0)
    assert values(reencode([source], ReencodeSpec())) == [[b"a", b"b", None]]
    made = reencode([source], ReencodeSpec(keyless="skip"))
    assert values(made) == [[b"b", None]], "empty is a key"
    assert made.dropped == {ReencodeReason.NO_KEY: 1}


def test_transform_may_repair_records_that_the_target_would_refuse() -> None:
    keyed: Callable[[Record], Record] = lambda one: one._replace(key=one.value)  # noqa: E731 - a type for mypy
    source = gappy([(None, b"a", [], TIME)], [1], "none", 0, 0)
    assert values(reencode([source], ReencodeSpec(transform=keyed, keyless="skip"))) == [[b"a"]]
