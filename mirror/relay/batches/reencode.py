"""The deep path: decodes source batches and encodes their records again. Pure.

A record costs about 1 us of CPU and each KB of it as much again (bench_deep), several times the cost of the shallow
path, so batches are re-encoded only for a :class:`ReencodeReason`. It may run in a thread of its own: compression
releases the interpreter's lock. The process then needs ``sys.setswitchinterval(0.0005)``: with the default of 5 ms, a
network thread may wait that long for the lock after every call on a socket.
"""

from __future__ import annotations

import enum
import functools
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from mirror.errors import RecordNotMasked, RecordRejected
from mirror.relay.batches.aside import CORRUPT, AsideSpec
from mirror.relay.batches.topic_config import TIME_KEYS
from mirror.relay.batches.transforms import Transform, transform_error, transformed
from mirror.wire.decode import CodedRecord, Record, coded_records_of, records_of
from mirror.wire.decompress import MAX_DECOMPRESSED_BYTES
from mirror.wire.encode import CODECS, BatchBuilder
from mirror.wire.header_names import Headers
from mirror.wire.integers import INT32_MAX, INT64_MAX
from mirror.wire.legacy import NO_TIMESTAMP
from mirror.wire.records import CODEC_MASK, AnyBatch, Batch

Steps = Generator[int, None, "ReencodeResult"]

DROPPED_BY_TRANSFORM: Final = "dropped"
"""The key that counts the records dropped by a transform."""

INVALID_TIMESTAMP: Final = 32
"""The error code of a broker that refuses a record's timestamp (Kafka's ``Errors.INVALID_TIMESTAMP``)."""

_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}
_RECORDS_PER_STEP: Final = 1_024
"""About 1 ms."""
_MOST_BRIEF_RECORDS: Final = 16
_MOST_BRIEF_BYTES: Final = 16 * 1024


class ReencodeReason(enum.StrEnum):
    """Why batches are re-encoded, or records dropped. The values are keys of the results' counts."""

    GAPS = "offset gaps"
    TRIMMED = "trimmed"
    SMALL = "small batches"
    OLD_FORMAT = "old format"
    APPEND_TIME = "log append time"
    CONFIGURED = "asked for"
    TOO_LARGE = "too large"
    BAD_TIMESTAMP = "bad timestamp"
    NO_KEY = "no key"
    CORRUPT = CORRUPT
    UNMASKABLE = "unmaskable"


@dataclass(frozen=True, slots=True)
class TimestampRule:
    """The timestamps that a CreateTime target allows, and what to do with a record that has another one.

    A record without a timestamp (-1) is always allowed.
    """

    earliest_ms: int
    """In ms since 1970, inclusive, as is ``latest_ms``."""
    latest_ms: int
    policy: str
    """One of "fail", "skip", "aside" and "clamp" (to the nearest timestamp that is allowed)."""
    keys: tuple[str, str] = TIME_KEYS
    """The topic's keys that set ``earliest_ms`` and ``latest_ms`` (KIP-937)."""

    def allows(self, timestamp_ms: int) -> bool:
        """Whether the target takes a record with this timestamp (``LogValidator``)."""
        return self.earliest_ms <= timestamp_ms <= self.latest_ms or timestamp_ms == NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ReencodeSpec:
    """How to re-encode source batches."""

    codec: str | None = None
    """A ``compression.type``; None: the codec of the first source batch that has one."""
    limit: int | None = None
    """The largest new batch in bytes before compression, header included; a larger record gets a batch of its own.

    None: everything goes into one batch, as far as a batch can hold it.
    """
    start: int = 0
    """Records before this offset are left out."""
    end: int = INT64_MAX
    """Records from this offset on are left out."""
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)  # a value may be a secret
    """Added after each record's own headers."""
    transform: Transform | None = None
    """Returns the record to copy instead, or None to drop it; ``timestamps`` and ``keyless`` apply to its result."""
    max_source_bytes: int = MAX_DECOMPRESSED_BYTES
    """The largest size of a source batch, decompressed."""
    timestamps: TimestampRule | None = None
    keyless: str = "keep"
    """What to do with records without a key, which a compacted target refuses: "keep", "skip" or "aside"."""
    aside: AsideSpec | None = None
    """How records go aside, as ``transform`` and ``headers`` have made them; None: none does."""


@dataclass(frozen=True, slots=True)
class ReencodedBatch:
    """A new batch, to be patched and sent, with the source offsets ``[base_offset, next_offset)`` of its records."""

    batch: Batch
    base_offset: int
    next_offset: int
    """Where progress may stand once the batch is written."""
    leader_epoch: int
    """The source's leader epoch there; -1: not known."""
    jumps: array[int]
    """Two numbers for each record that does not follow its predecessor in the source: its index, its source offset."""
    aside: Mapping[str, int] = field(default_factory=dict)
    """The number of its records by reason, if they go aside; a batch has such records only, or none."""


@dataclass(slots=True)
class ReencodeResult:
    """The result of re-encoding source batches."""

    batches: list[ReencodedBatch] = field(default_factory=list)
    """In order, the last one up to the end of the sources; empty if no record is left."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The number of dropped records by :class:`ReencodeReason`, or :data:`DROPPED_BY_TRANSFORM`."""


def is_brief(sources: Sequence[AnyBatch], spec: ReencodeSpec) -> bool:
    """Whether :func:`reencode` takes less time (0.1 ms) than to wake another thread for it.

    It may take any time where it has to decompress, or to call a transform.
    """
    if spec.transform is not None or (spec.codec or "none") != "none":
        return False
    plain = [source for source in sources if isinstance(source, Batch) and not source.attributes & CODEC_MASK]
    records, size = sum(source.count for source in plain), sum(source.size for source in plain)
    return len(plain) == len(sources) and records <= _MOST_BRIEF_RECORDS and size <= _MOST_BRIEF_BYTES


def reencode(sources: Sequence[AnyBatch], spec: ReencodeSpec) -> ReencodeResult:
    """Encode the records of ``sources`` into new batches, in the order of their offsets. The sources stay unchanged.

    Keys, values, headers and timestamps are copied (those of a LogAppendTime batch were set by its broker); null and
    empty remain distinct. The records are read once. Held in memory are one source batch, decompressed, and the new
    batches, of which the last one twice while it is compressed: beside the sources, about three times the bytes of the
    largest source, decompressed (gzip: five times), if one source becomes one batch.

    Raises CorruptBatch and BatchTooLarge (which name the offset), RecordRejected if ``timestamps`` says "fail", and
    FlowError if a transform fails.
    """
    steps = reencode_steps(sources, spec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: ReencodeResult = end.value
            return result


def reencode_steps(sources: Sequence[AnyBatch], spec: ReencodeSpec) -> Steps:
    """Do what :func:`reencode` does step by step, for an encoder that switches between jobs.

    A step decompresses a source, or copies about :data:`_RECORDS_PER_STEP` records, or compresses a new batch. It
    yields the bytes that are held beside the sources.
    """
    writer = _Writer(spec.codec or _codec_of(sources), spec.limit)
    dropped: Counter[str] = Counter()
    change = record_change(spec)
    since_step = 0  # records
    for source in sources:
        writer.begin_source(source.leader_epoch)
        if source.attributes & CODEC_MASK:
            since_step = _RECORDS_PER_STEP  # its decompression is a step, which ends at the first record
        records: Iterator[Any]
        if change is None and isinstance(source, Batch):
            copy: Callable[[Any], bool] = writer.add_coded  # without creating a Record for each, which takes CPU
            records = coded_records_of(source, spec.max_source_bytes, on_decompressed=writer.hold_source)
        else:
            copy = functools.partial(_add_changed, writer, spec, change, dropped)
            records = records_of(source, spec.max_source_bytes, on_decompressed=writer.hold_source)
        for record in records:
            cut = spec.start <= record.offset < spec.end and copy(record)
            since_step += 1
            if cut or since_step >= _RECORDS_PER_STEP:
                since_step = 0
                yield writer.held
    yield writer.held
    result = ReencodeResult(writer.finish(), dict(dropped))
    if result.batches:
        last = result.batches[-1]
        next_offset = min(sources[-1].next_offset, spec.end)
        result.batches[-1] = replace(last, next_offset=next_offset, leader_epoch=sources[-1].leader_epoch)
    return result


def _add_changed(
    writer: _Writer, spec: ReencodeSpec, change: RecordChange | None, dropped: Counter[str], record: Record
) -> bool:
    """Add ``record`` as ``change`` returns it; return whether a batch was completed."""
    try:
        copy = change(record, dropped) if change is not None else record
        if copy is None:
            return False
        reason = None if spec.aside is None else _aside_reason(spec, spec.aside, copy, record.offset)
        if reason is None:
            return writer.add(record.offset, *copy[1:])
        return _add_aside(writer, spec, reason, copy, record.offset)
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        # Mostly raised by the record codec, which never refuses an unchanged record.
        if spec.transform is None:
            raise
        raise transform_error(spec.transform, record.offset, "gave what is no record", error) from error


def _aside_reason(spec: ReencodeSpec, aside: AsideSpec, copy: Record, offset: int) -> ReencodeReason | None:
    """Return why the record of the source ``offset`` goes aside; None if it does not."""
    if offset in aside.too_large:
        return ReencodeReason.TOO_LARGE
    if copy.key is None and spec.keyless == "aside":
        return ReencodeReason.NO_KEY
    rule = spec.timestamps
    refused = rule is not None and rule.policy == "aside" and not rule.allows(copy.timestamp_ms)
    return ReencodeReason.BAD_TIMESTAMP if refused else None


def _add_aside(writer: _Writer, spec: ReencodeSpec, reason: ReencodeReason, copy: Record, offset: int) -> bool:
    assert spec.aside is not None  # noqa: S101 - it has given the reason
    origin = spec.aside.origin.headers(reason.value, offset, offset + 1, copy.timestamp_ms)
    headers = (*copy.headers, *origin)
    return writer.add_aside(offset, spec.aside.time_ms, copy.key, copy.value, headers, reason.value)


class _Writer:
    """Distributes records over batches."""

    def __init__(self, codec: str, limit: int | None) -> None:
        self._codec = codec
        # The length of a batch is an int32.
        self._limit = INT32_MAX if limit is None else min(limit, INT32_MAX)
        self._done: list[ReencodedBatch] = []
        self._encoded_bytes = self._source_bytes = 0
        self._builder = BatchBuilder(self._codec, self._limit)
        self._append = self._builder.append
        self._base_offset = self._next_offset = self._leader_epoch = self._source_epoch = -1
        self._jumps = array("q")
        self._aside: Counter[str] | None = None

    def add_coded(self, record: CodedRecord) -> bool:
        """Add a record of a source as it is; return whether a batch was completed."""
        return self.add(record.offset, record.timestamp, record.key, record.value, record.headers)

    def add(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Add a record from source ``offset``; return whether a batch was completed."""
        ended = self._aside is not None and self._end_batch(None)
        full = not self._append(key, value, headers, timestamp_ms)
        if full:
            self._cut()
            self._append(key, value, headers, timestamp_ms)
        if self._base_offset < 0:
            self._base_offset = offset
        elif offset != self._next_offset:
            self._jumps.append(self._builder.count - 1)
            self._jumps.append(offset)
        self._next_offset, self._leader_epoch = offset + 1, self._source_epoch
        return full or ended

    # Invariant: The batches of the target and those that go aside are in the order of the source's offsets, so that
    #   each progress that can be committed has all of both in front of it.
    # Test: tests/relay/batches/test_aside.py::test_batches_are_cut_where_a_record_goes_aside
    def add_aside(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers, reason: str
    ) -> bool:
        """Add a record that goes aside; return whether a batch was completed."""
        ended = self._end_batch(Counter()) if self._aside is None else False
        full = not self._append(key, value, headers, timestamp_ms)
        if full:
            self._end_batch(Counter())
            self._append(key, value, headers, timestamp_ms)
        if self._base_offset < 0:
            self._base_offset = offset
        assert self._aside is not None  # noqa: S101 - it was begun above
        self._aside[reason] += 1
        self._next_offset, self._leader_epoch = offset + 1, self._source_epoch
        return full or ended

    def _end_batch(self, aside: Counter[str] | None) -> bool:
        """Let records ``aside`` begin, or end; return whether a batch was completed."""
        has_records = bool(self._builder.count)
        if has_records:
            self._cut()
        self._aside = aside
        return has_records

    @property
    def held(self) -> int:
        """Bytes of the present source, decompressed, and of the new batches."""
        return self._source_bytes + self._encoded_bytes + self._builder.size

    def begin_source(self, leader_epoch: int) -> None:
        """Begin a source batch of ``leader_epoch``, of which nothing is decompressed yet."""
        self._source_epoch, self._source_bytes = leader_epoch, 0

    def hold_source(self, source_bytes: int) -> None:
        """Count the decompressed bytes of the present source."""
        self._source_bytes = source_bytes

    def finish(self) -> list[ReencodedBatch]:
        """Complete the last batch, and return all batches."""
        if self._builder.count:
            self._cut()
        return self._done

    def _cut(self) -> None:
        batch = self._builder.build()
        self._encoded_bytes += batch.size
        aside = {} if self._aside is None else dict(self._aside)
        done = ReencodedBatch(batch, self._base_offset, self._next_offset, self._leader_epoch, self._jumps, aside)
        self._done.append(done)
        self._builder = BatchBuilder(self._codec, self._limit)
        self._append = self._builder.append
        self._base_offset, self._jumps = -1, array("q")


def _codec_of(sources: Sequence[AnyBatch]) -> str:
    """Return the codec of the first compressed source: uncompressed ones may have been too small to gain by it."""
    codecs = (source.attributes & CODEC_MASK for source in sources)
    return _CODEC_NAMES.get(next((codec for codec in codecs if codec), 0), "none")


# --- changes to a record

RecordChange = Callable[[Record, Counter[str]], Record | None]
"""Returns the record to copy instead, or None to drop it, and counts the dropped ones by reason."""


def record_change(spec: ReencodeSpec) -> RecordChange | None:
    """Return the change that the spec makes to each record; None if it makes none."""
    plain = spec.transform is None and spec.timestamps is None and spec.aside is None
    if plain and spec.keyless == "keep" and not spec.headers:
        return None

    def change(record: Record, dropped: Counter[str]) -> Record | None:
        try:
            copy = record if spec.transform is None else transformed(spec.transform, record)
        except RecordNotMasked as error:
            if not error.left_out:
                raise
            dropped[ReencodeReason.UNMASKABLE.value] += 1
            return None
        if copy is None:
            dropped[DROPPED_BY_TRANSFORM] += 1
            return None
        if copy.key is None and spec.keyless == "skip":
            dropped[ReencodeReason.NO_KEY.value] += 1
            return None
        rule = spec.timestamps
        if rule is not None and rule.policy != "aside" and not rule.allows(copy.timestamp_ms):
            if rule.policy == "skip":
                dropped[ReencodeReason.BAD_TIMESTAMP.value] += 1
                return None
            copy = _clamp_or_raise(rule, copy, record.offset)
        return copy._replace(headers=(*copy.headers, *spec.headers)) if spec.headers else copy

    return change


def _clamp_or_raise(rule: TimestampRule, record: Record, offset: int) -> Record:
    if rule.policy == "clamp":
        return record._replace(timestamp_ms=max(rule.earliest_ms, min(rule.latest_ms, record.timestamp_ms)))
    early = record.timestamp_ms < rule.earliest_ms
    beyond, bound_ms, key = (
        ("before", rule.earliest_ms, rule.keys[0]) if early else ("after", rule.latest_ms, rule.keys[1])
    )
    msg = (
        f"the record at offset {offset} has the time {time_text(record.timestamp_ms)}, {beyond} what the target allows"
        f" ({time_text(bound_ms)}): raise {key} of the target topic,"
        ' or set on-bad-timestamp = "clamp", "skip" or "aside"'
    )
    raise RecordRejected(msg, INVALID_TIMESTAMP)


def time_text(timestamp_ms: int) -> str:
    """Return a timestamp in ms since 1970 as a number, with the date if the calendar has it."""
    try:
        return f"{timestamp_ms} ({datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return str(timestamp_ms)
