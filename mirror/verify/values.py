"""What is compared, by which rules, and what came of it: plain values, without clients and configuration."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mirror.wire.decode import Record
from mirror.wire.decompress import MAX_DECOMPRESSED_BYTES
from mirror.wire.legacy import NO_TIMESTAMP
from mirror.wire.records import AnyBatch

DEFAULT_WINDOW: Final = 65_536
DEFAULT_MAX_FINDINGS: Final = 10_000


_CLOCK_MARGIN_MS: Final = 60_000
"""A copy stays away from the limits of timestamps by so much at most, because of the brokers' clocks."""


class Kind(enum.StrEnum):
    """What is wrong with a record of the target."""

    MISSING = "missing"
    """The source has it, and the target does not."""
    DOUBLED = "doubled"
    """The target has it once more than the source."""
    ORDER = "order"
    """Both have it, at different places among the others."""
    CONTENT = "content"
    """The target has another key, value, header or timestamp in its place."""
    FOREIGN = "foreign"
    """The target has it, and the source does not."""


class Named(enum.StrEnum):
    """What differs, and may differ: it is counted, and is no difference. The values are JSON keys."""

    FOREIGN = "foreign records, which the flow permits"
    REPEATED = "repeated records, which at-least-once delivery permits"
    SOURCE_COMPACTED = "records that compaction has removed from the source"
    TARGET_COMPACTED = "records that compaction has removed from the target"
    CLAMPED = "timestamps that on-bad-timestamp has clamped"
    BAD_TIMESTAMP = "records that on-bad-timestamp leaves out"
    TOO_LARGE = "records that on-too-large leaves out"
    NO_KEY = "records that on-no-key leaves out"
    UNMASKABLE = "records that on-unmaskable leaves out"
    ASIDE = "records that are in the aside topic"
    ASIDE_BATCHES = "batches that cannot be decoded, and are in the aside topic"
    SETTLED = "records that went aside, and were copied again or dismissed"
    COPIED_AGAIN = "records that were copied again from the aside topic"
    DROPPED = "records that the transform or the sample leaves out"
    APPEND_TIME = "records whose timestamps the target's brokers have set"
    ABORTED = "batches of aborted transactions"
    MARKERS = "transaction markers"
    NOT_LOCAL = "batches that flows have written to the source"


_REFUSED: Final = (Named.BAD_TIMESTAMP, Named.TOO_LARGE, Named.NO_KEY, Named.ASIDE)
LEFT_OUT: Final = (*_REFUSED, Named.UNMASKABLE, Named.ASIDE_BATCHES)
"""Each counts what the flow was to copy, and the target's partition lacks."""
_LACKED_BY_TARGET: Final = (Named.TARGET_COMPACTED, Named.SETTLED, *_REFUSED)
"""Each counts a record of the source that it writes."""
_OF_SOURCE: Final = (Kind.MISSING, Kind.ORDER, Kind.CONTENT)
"""Each is the finding of a record of the source; the others are of the target only."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding, or several of a kind in a row."""

    kind: Kind
    source_offset: int
    """That of the record; of a foreign record, that of the source's next record."""
    target_offset: int
    """That of the record; of a missing record, that of the target's next record."""
    count: int = 1
    """How many records in a row."""
    parts: tuple[str, ...] = ()
    """Of content: which of key, value, headers and timestamp."""
    excerpts: tuple[str, str] | None = field(default=None, repr=False)
    """The beginning of what differs, of source and target, if it was asked for: it is what users have written."""
    digest: str = ""
    """Of the record without its timestamp, to find it in another partition; of the first one, if there are several."""

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        record: dict[str, Any] = {
            "kind": self.kind.value,
            "source_offset": self.source_offset,
            "target_offset": self.target_offset,
            "records": self.count,
        }
        if self.parts:
            record["parts"] = list(self.parts)
        if self.excerpts is not None:
            record["excerpts"] = dict(zip(("source", "target"), self.excerpts, strict=True))
        return record


PROVED_BEFORE: Final = "they were proved before"
NOT_COPIED_YET: Final = "they are not copied yet"
"""The reason of what is behind the progress: the task looks whether there are records, and not only markers."""


@dataclass(frozen=True, slots=True)
class Uncompared:
    """Offsets that were not compared, and why not."""

    side: str
    """ "source" or "target": whose offsets they are."""
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.side} {self.start} to {self.end - 1} not compared: {self.reason}"

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"side": self.side, "start": self.start, "end": self.end, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Absent:
    """Records that flows have written to the source, and that the target does not have."""

    start: int
    """The source offset of the first one."""
    end: int
    """Behind the last one."""
    records: int
    is_exact: bool = True
    """Whether all were counted."""

    def __str__(self) -> str:
        at_least = "" if self.is_exact else "at least "
        records = "1 record" if self.records == 1 else f"{self.records:,} records"
        return (
            f"{at_least}{records} at the source offsets {self.start} to {self.end - 1}, left out because flows have"
            " written them there, not found among what others have written to the target"
        )

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"start": self.start, "end": self.end, "records": self.records, "is_exact": self.is_exact}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Which part of both logs is compared."""

    source_start: int
    source_end: int
    """What is copied: the target must have every record in front of it."""
    target_start: int
    """Where the record at ``source_start`` is, or would be."""
    target_end: int
    """The end of the target's log, read after ``source_end`` was."""
    withheld: bool = False
    """Whether the target has records from ``target_end`` on that an open transaction withholds."""
    source_trimmed: bool = False
    """Whether the target may have records in front of those of ``source_start``: the source's log begins later."""
    target_trimmed: bool = False
    """The same with the sides exchanged."""


# Invariant: A policy explains only what it can have done: a timestamp is clamped only to where the target's limits were
#   since the first copy.
# Test: tests/verify/test_damage_and_rules.py::test_timestamp_to_which_nothing_is_clamped_is_found
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Which timestamps a CreateTime target accepts, relative to the time at which it is written to."""

    before_ms: int
    after_ms: int
    first_copy_ms: int
    """The flow has copied nothing before (ms since 1970); 0: not known."""
    now_ms: int
    policy: str
    """The flow's ``on-bad-timestamp``: "fail", "skip" or "clamp"."""

    def may_leave_out(self, timestamp_ms: int) -> bool:
        """Whether the target may have refused a record at some time since the first copy."""
        if self.policy != "skip" or timestamp_ms == NO_TIMESTAMP:
            return False
        latest_ms = self.first_copy_ms + self.after_ms - _CLOCK_MARGIN_MS
        return timestamp_ms < self.now_ms - self.before_ms + _CLOCK_MARGIN_MS or timestamp_ms > latest_ms

    def may_clamp(self, source_ms: int, target_ms: int) -> bool:
        """Whether ``source_ms`` may have been clamped to ``target_ms`` at some time since the first copy."""
        if self.policy != "clamp" or source_ms == NO_TIMESTAMP:
            return False
        limit_ms = -self.before_ms if source_ms < target_ms else self.after_ms - _CLOCK_MARGIN_MS
        return self.first_copy_ms + limit_ms <= target_ms <= self.now_ms + limit_ms + _CLOCK_MARGIN_MS


class Aside(NamedTuple):
    """A record of the aside topic."""

    digest: bytes
    """As of :func:`mirror.verify.items.digest_of`, of the record as the flow would have written it."""
    timestamp_ms: int
    settled: bool
    """Whether it was copied again, or dismissed."""


@dataclass(frozen=True, slots=True)
class AsideContents:
    """What the aside topic has of one partition."""

    records: Mapping[int, Aside] = field(default_factory=dict)
    """By source offset."""
    batches: Mapping[tuple[int, int], bool] = field(default_factory=dict)
    """Whether each was settled, of batches that cannot be decoded, by the source offsets [start, end)."""
    copied: frozenset[int] = frozenset()
    """The target offsets of records that were copied again."""


# Invariant: The comparison loads no code of the copier: the progress and the settings of a flow reach it as values and
#   functions.
# Test: tests/verify/test_independence.py::test_verification_loads_nothing_of_the_copier
@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a flow does to records, and what else may differ."""

    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)  # a value may be a secret
    """Added behind each record's own headers."""
    transform: Callable[[Record], Record | None] | None = None
    is_left_out: Callable[[AnyBatch], bool] | None = None
    """Whether a batch of the source was written by a flow, and is not copied (``origin = "local"``)."""
    is_own: Callable[[AnyBatch], bool] | None = None
    """Whether the flow has written a batch of the target (``origin = "local"``): no record of others is in it."""
    foreign_allowed: bool = False
    """Whether others write to the target, too."""
    repeats_allowed: bool = False
    """Whether delivery is at least once."""
    source_compacted: bool = False
    target_compacted: bool = False
    times: TimeLimits | None = None
    skips_above_bytes: int | None = None
    """A record whose batch is larger may be left out; None: none is."""
    skips_keyless: bool = False
    aside: AsideContents = AsideContents()
    window: int = DEFAULT_WINDOW
    """In so many records of each side, the next common one is looked for."""
    window_bytes: int = 32 * 1024 * 1024
    """The window's records have at most so many bytes on each side."""
    max_findings: int = DEFAULT_MAX_FINDINGS
    """With so many, the comparison ends."""
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES
    """The largest size of a batch, decompressed."""
    excerpts: bool = False
    hashes: bool = False
    """Whether the bytes of the source are hashed, for a proof."""

    @property
    def rewrites(self) -> bool:
        """Whether records change on the way, so that no batch can be compared as bytes."""
        return bool(self.headers) or self.transform is not None

    @property
    def compacted(self) -> bool:
        """Whether compaction may have removed records from a side."""
        return self.source_compacted or self.target_compacted


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What the comparison of one partition came to."""

    source_start: int
    target_start: int
    source_end: int
    """Up to here, and up to ``target_end``, both sides are equal."""
    target_end: int
    records: int = 0
    """Equal ones, as are ``batches`` and ``bytes``."""
    batches: int = 0
    """Of the target, compared as bytes."""
    bytes: int = 0
    """Of the source, as in its log."""
    decoded: int = 0
    """How many of ``records`` were compared one by one."""
    passed: int = 0
    """Records of the source that were read in the range; ``skipped`` of them have nothing to be compared with."""
    skipped: int = 0
    differences: list[Difference] = field(default_factory=list)
    """By target offset."""
    named: Counter[Named] = field(default_factory=Counter)
    uncompared: list[Uncompared] = field(default_factory=list)
    absent: Absent | None = None
    """What was left out, and is not on the target either; None if all of it is there."""
    complete: bool = True
    """Whether everything up to the end was compared, or named as what could not be."""
    notes: list[str] = field(default_factory=list)
    """What else is to be known of the partition."""
    digest: str = ""
    """Of the source's batches in the range (SHA-256, in hex); empty if it was not asked for."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs of what was compared."""
        return not self.differences

    @property
    def nothing_compared(self) -> bool:
        """Whether the source has records in the range, and none of them has anything to be compared with."""
        return not self.records and any(one.side == "source" for one in self.uncompared)

    @property
    def unaccounted(self) -> int:
        """How many of the source's records were read, and are neither equal, nor different, nor named, nor skipped."""
        named = sum(self.named[name] for name in _LACKED_BY_TARGET)
        different = sum(count for kind, count in self.kinds.items() if kind in _OF_SOURCE)
        return self.passed - self.records - self.skipped - named - different

    @property
    def kinds(self) -> Counter[Kind]:
        """How many records differ, by kind."""
        kinds: Counter[Kind] = Counter()
        for difference in self.differences:
            kinds[difference.kind] += difference.count
        return kinds
