"""The deep path: records out of source batches and into new ones (design: "Which batches go deep"). Pure.

A record costs about 1 us of CPU and each KB of it as much again (bench_deep), several times what the shallow path
takes, so that batches come here only for a :class:`Reason`. It may run in a thread of its own: compression goes on
without the interpreter's lock. ``sys.setswitchinterval(0.0005)`` belongs to that: with the default of 5 ms, a network
thread beside it may wait that long for the lock behind every call on a socket.
"""

from __future__ import annotations

import enum
import importlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from mirror.errors import FlowError, RecordRejected
from mirror.relay.batches.topic_config import TIME_KEYS
from mirror.wire.decode import Record, records_of
from mirror.wire.decompress import MOST
from mirror.wire.encode import CODECS, BatchBuilder
from mirror.wire.legacy import NO_TIMESTAMP
from mirror.wire.records import CODEC_MASK, AnyBatch, Batch

Transform = Callable[[Record], Record | None]
Steps = Generator[int, None, "ReencodeResult"]

DROPPED_BY_TRANSFORM: Final = "dropped"
"""Under this are counted the records that a transform left out."""

_NO_LIMIT: Final = 2**31 - 1
"""The longest that a batch can be (its length is an int32)."""

_INVALID_TIMESTAMP: Final = 32
"""What the broker would answer (``Errors.INVALID_TIMESTAMP``)."""

_NAMES: Final = {number: name for name, number in CODECS.items()}
_TEXT_LIMIT: Final = 200
_STEP: Final = 1_024
"""Records, about 1 ms."""


class Reason(enum.StrEnum):
    """Why batches are encoded again, or records left out; counted under these names."""

    GAPS = "offset gaps"
    TRIMMED = "trimmed"
    SMALL = "small batches"
    OLD_FORMAT = "old format"
    APPEND_TIME = "log append time"
    CONFIGURED = "asked for"
    TOO_LARGE = "too large"
    BAD_TIMESTAMP = "bad timestamp"
    NO_KEY = "no key"


@dataclass(frozen=True, slots=True)
class TimestampRule:
    """What times the target allows, in ms since 1970, both inclusive, and what becomes of a record with another one.

    Both come from a CreateTime topic's configuration; ``keys`` are the keys that set them (KIP-937).
    ``policy`` is "fail", "clamp" (to the nearest that is allowed) or "skip". No time (-1) is always allowed.
    """

    earliest_ms: int
    latest_ms: int
    policy: str
    keys: tuple[str, str] = TIME_KEYS

    def allows(self, timestamp_ms: int) -> bool:
        """Whether the target takes a record of that time (``LogValidator``)."""
        return self.earliest_ms <= timestamp_ms <= self.latest_ms or timestamp_ms == NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ReencodeSpec:
    """What to make of source batches.

    ``codec`` is a ``compression.type`` (None: that of the first source that has one). ``limit`` is the most bytes of a
    new batch before compression, header included; a larger record goes alone (None: all in one, where a batch can hold
    it). ``most`` is how many bytes one source may be, decompressed. Records before ``start``, and from ``end`` on, are
    left out. ``headers`` are added behind each record's own. ``transform`` gives the record to copy instead, or None to
    leave it out; of what it gives, ``timestamps`` and ``keyless`` ("keep" or "skip" those without a key, which a
    compacted target refuses) are asked.
    """

    codec: str | None = None
    limit: int | None = None
    start: int = 0
    end: int = 2**63 - 1
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)  # one may hold a secret
    transform: Transform | None = None
    max_source_bytes: int = MOST
    timestamps: TimestampRule | None = None
    keyless: str = "keep"


@dataclass(frozen=True, slots=True)
class ReencodedBatch:
    """A new batch, to be patched and sent, and the source offsets of what is in it: ``[base_offset, next_offset)``.

    Progress may stand at ``next_offset`` once it is written, with ``leader_epoch``, the source's there (-1: not known).
    """

    batch: Batch
    base_offset: int
    next_offset: int
    leader_epoch: int


@dataclass(slots=True)
class ReencodeResult:
    """The new batches in order, the last up to the end of the sources; none where no record is left.

    ``dropped`` counts the records left out, by why: a :class:`Reason`, or :data:`DROPPED_BY_TRANSFORM`.
    """

    batches: list[ReencodedBatch] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)


def reencode(sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> ReencodeResult:
    """New batches with the records of ``sources``, which stay as they are; in offset order, as they were.

    Keys, values, headers and times are the records' own (a LogAppendTime batch's: its broker's), null and empty told
    apart. One pass; what is held at once is one source batch decompressed and the new batches, of which the last twice
    while it is compressed: beside the sources about three times the bytes of the largest, decompressed (gzip: five),
    where one source becomes one batch.

    Raises CorruptBatch and BatchTooLarge (they name the offset), RecordRejected where ``timestamps`` says "fail", and
    FlowError for a transform that fails.
    """
    steps = reencode_steps(sources, recipe)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: ReencodeResult = end.value
            return made


def reencode_steps(sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> Steps:
    """As :func:`reencode`, a step at a time, for who encodes in turns.

    A step is a source decompressed, :data:`_STEP` records, or a new batch compressed, and gives the bytes that are held
    beside the sources.
    """
    writer = _Writer(recipe.codec or _codec_of(sources), recipe.limit)
    dropped: Counter[str] = Counter()
    change = _change(recipe)
    for source in sources:
        writer.reads(0)
        cut = False
        for number, record in enumerate(records_of(source, recipe.max_source_bytes, unfolded=writer.reads)):
            if recipe.start <= record.offset < recipe.end:
                try:
                    copy = change(record, dropped) if change is not None else record
                    if copy is not None:
                        cut = writer.add(copy, record.offset, source.leader_epoch)
                except (TypeError, ValueError, OverflowError, BufferError) as error:
                    # The record codec's refusals, mostly; of records as they were, it has none.
                    if recipe.transform is None:
                        raise
                    raise _failed(recipe.transform, record.offset, "gave what is no record", error) from error
            if cut or not number % _STEP:
                cut = False
                yield writer.held
    made = ReencodeResult(writer.end(), dict(dropped))
    if made.batches:
        last = made.batches[-1]
        next_offset = min(sources[-1].next_offset, recipe.end)
        made.batches[-1] = ReencodedBatch(last.batch, last.base_offset, next_offset, sources[-1].leader_epoch)
    return made


class _Writer:
    """Cuts records into batches, between records."""

    def __init__(self, codec: str, limit: int | None) -> None:
        self._codec = codec
        self._limit = _NO_LIMIT if limit is None else min(limit, _NO_LIMIT)
        self._done: list[ReencodedBatch] = []
        self._made_bytes = self._source_bytes = 0
        self._builder = BatchBuilder(self._codec, self._limit)
        self._append = self._builder.append
        self._base_offset = self._next_offset = self._leader_epoch = -1

    def add(self, record: Record, offset: int, leader_epoch: int) -> bool:
        """``record`` comes from the source's ``offset``, in a batch of ``leader_epoch``; whether a batch was full."""
        _, timestamp_ms, key, value, headers = record
        full = not self._append(key, value, headers, timestamp_ms)
        if full:
            self._cut()
            self._append(key, value, headers, timestamp_ms)
        if self._base_offset < 0:
            self._base_offset = offset
        self._next_offset, self._leader_epoch = offset + 1, leader_epoch
        return full

    @property
    def held(self) -> int:
        """Bytes of the source that is being read, decompressed, and of the batches so far."""
        return self._source_bytes + self._made_bytes + self._builder.size

    def reads(self, source_bytes: int) -> None:
        """A source is read that has so many bytes decompressed."""
        self._source_bytes = source_bytes

    def end(self) -> list[ReencodedBatch]:
        """All batches."""
        if self._builder.count:
            self._cut()
        return self._done

    def _cut(self) -> None:
        batch = self._builder.build()
        self._made_bytes += batch.size
        self._done.append(ReencodedBatch(batch, self._base_offset, self._next_offset, self._leader_epoch))
        self._builder = BatchBuilder(self._codec, self._limit)
        self._append = self._builder.append
        self._base_offset = -1


def _codec_of(sources: Sequence[AnyBatch]) -> str:
    """Of the first that is compressed: a batch too small to gain by it says nothing about its neighbours."""
    codecs = (source.attributes & CODEC_MASK for source in sources)
    return _NAMES.get(next((codec for codec in codecs if codec), 0), "none")


# --- what becomes of one record

_Change = Callable[[Record, Counter[str]], Record | None]


def _change(recipe: ReencodeSpec) -> _Change | None:
    """What the recipe does to each record, None where that is nothing."""
    if recipe.transform is None and recipe.timestamps is None and recipe.keyless == "keep" and not recipe.headers:
        return None

    def change(record: Record, dropped: Counter[str]) -> Record | None:
        copy = record if recipe.transform is None else _transformed(recipe.transform, record)
        if copy is None:
            dropped[DROPPED_BY_TRANSFORM] += 1
            return None
        if copy.key is None and recipe.keyless == "skip":
            dropped[Reason.NO_KEY.value] += 1
            return None
        rule = recipe.timestamps
        if rule is not None and not rule.allows(copy.timestamp_ms):
            if rule.policy == "skip":
                dropped[Reason.BAD_TIMESTAMP.value] += 1
                return None
            copy = _in_time(rule, copy, record.offset)
        return copy._replace(headers=(*copy.headers, *recipe.headers)) if recipe.headers else copy

    return change


def _in_time(rule: TimestampRule, record: Record, offset: int) -> Record:
    if rule.policy == "clamp":
        return record._replace(timestamp_ms=max(rule.earliest_ms, min(rule.latest_ms, record.timestamp_ms)))
    early = record.timestamp_ms < rule.earliest_ms
    beyond, bound_ms, key = (
        ("before", rule.earliest_ms, rule.keys[0]) if early else ("after", rule.latest_ms, rule.keys[1])
    )
    msg = (
        f"the record at offset {offset} has the time {_shown(record.timestamp_ms)}, {beyond} what the target allows"
        f" ({_shown(bound_ms)}): raise {key} of the target topic,"
        ' or set on-bad-timestamp = "clamp" or "skip"'
    )
    raise RecordRejected(msg, _INVALID_TIMESTAMP)


def _shown(timestamp_ms: int) -> str:
    try:
        return f"{timestamp_ms} ({datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return str(timestamp_ms)


# --- transforms


def load_transform(name: str) -> Transform:
    """The function called ``name`` ("package.module:function"), imported. Raises FlowError, with why."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise FlowError(f'transform = "{name}": give it as "package.module:function"')
    try:
        found: object = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a module's own code may raise anything
        raise FlowError(f'transform = "{name}" cannot be loaded: {_one_line(error)}') from error
    if not callable(found):
        raise FlowError(f'transform = "{name}" is {type(found).__name__}, not a function of one record')
    return found


def _transformed(transform: Transform, record: Record) -> Record | None:
    try:
        copy = transform(record)
    except Exception as error:
        raise _failed(transform, record.offset, "failed", error) from error
    if copy is not None and not isinstance(copy, Record):
        raise _failed(transform, record.offset, f"gave a {type(copy).__name__}, not a Record or None")
    return copy


def _failed(transform: Transform, offset: int, what: str, error: Exception | None = None) -> FlowError:
    function = getattr(transform, "__qualname__", type(transform).__qualname__)
    why = f": {_one_line(error)}" if error is not None else ""
    module = getattr(transform, "__module__", None) or type(transform).__module__
    return FlowError(f"transform {module}:{function} {what} at offset {offset}{why}")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_TEXT_LIMIT]
