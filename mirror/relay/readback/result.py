"""What came of reading back the committed batches of one partition. No I/O."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_FOUND: Final = 10
"""So many differences of a partition are listed, the first ones; all are counted."""


class DifferenceKind(enum.StrEnum):
    """How the target differs from what was committed there."""

    MISSING = "missing"
    """The batch is not there, or readers of committed records do not get it."""
    CONTENT = "content"
    """Another batch is at its offset, or it has other records."""
    DOUBLED = "doubled"
    """Its records are there twice, and the copy has appended them once."""


class Unverified(enum.StrEnum):
    """Why a batch was not compared."""

    BEHIND = "reading back was behind"
    """More was committed than is kept to be read back, or it was not readable for too long."""
    ENDED = "the run ended before"
    BY_EARLIER = "appended by an earlier attempt"
    """The attempt was lost, or replaced, before it had committed them."""
    RECOMPRESSED = "recompressed by the broker"
    COMPACTED = "compacted"
    DELETED = "deleted by retention"
    NO_OFFSET = "acknowledged without an offset"
    UNREADABLE = "not readable"
    """The target refuses to be read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: the committed batch of the source offsets from ``start`` up to ``end``."""

    kind: DifferenceKind
    start: int
    end: int
    target_offset: int
    records: int
    reason: str

    def to_record(self, unix_ms: int) -> dict[str, Any]:
        """Return plain values; ``unix_ms`` is when it was found."""
        return {
            "kind": self.kind.value,
            "start": self.start,
            "end": self.end,
            "target_offset": self.target_offset,
            "records": self.records,
            "reason": self.reason,
            "time_ms": unix_ms,
        }


@dataclass(slots=True)
class ReadBackResult:
    """The counts of one partition, as they are in its result: the field names are JSON keys."""

    mode: str
    """The flow's ``verify``: "sample" or "all"."""
    batches: int = 0
    """Batches that are on the target as they were sent; ``records`` and ``bytes`` are theirs."""
    records: int = 0
    bytes: int = 0
    verified_to: int | None = None
    """The source offset behind the last of these batches."""
    foreign: int = 0
    """Batches between those of the copy that it has not appended. They are not differences: a topic may be shared."""
    unverified: dict[str, int] = field(default_factory=dict)
    """Batches that were not compared, by reason (:class:`Unverified`)."""
    differences: dict[str, int] = field(default_factory=dict)
    """By :class:`DifferenceKind`."""
    found: list[dict[str, Any]] = field(default_factory=list)
    """The first of them (:meth:`Difference.to_record`)."""

    def skip(self, reason: Unverified, count: int = 1) -> None:
        """Count batches that are not compared."""
        if count > 0:
            self.unverified[reason.value] = self.unverified.get(reason.value, 0) + count

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which are not changed by what is counted later."""
        return {
            "mode": self.mode,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "verified_to": self.verified_to,
            "foreign": self.foreign,
            "unverified": dict(self.unverified),
            "differences": dict(self.differences),
            "found": [dict(record) for record in self.found],
        }


def difference_count(read_back: Mapping[str, Any] | None) -> int:
    """Return how many differences a result's ``read_back`` has; 0 if nothing was read back."""
    return sum(read_back["differences"].values()) if read_back else 0


def sum_of(previous: Mapping[str, Any] | None, latest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the sums of two results' ``read_back``, the later one last."""
    if previous is None or latest is None:
        found = previous if latest is None else latest
        return None if found is None else dict(found)
    counts = ("batches", "records", "bytes", "foreign")
    return {
        **latest,
        **{name: previous[name] + latest[name] for name in counts},
        "verified_to": previous["verified_to"] if latest["verified_to"] is None else latest["verified_to"],
        "unverified": dict(Counter(previous["unverified"]) + Counter(latest["unverified"])),
        "differences": dict(Counter(previous["differences"]) + Counter(latest["differences"])),
        "found": [*previous["found"], *latest["found"]][:MAX_FOUND],
    }


def difference_text(record: Mapping[str, Any]) -> str:
    """Return a clause for people about one of ``found``."""
    start, last = record["start"], record["end"] - 1
    return (
        f"{record['kind']}: the source's offsets {start} to {last}, at target offset {record['target_offset']}:"
        f" {record['reason']}"
    )


def differences_text(read_back: Mapping[str, Any]) -> str:
    """Return a clause about all differences of a result, with the first one in full."""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(read_back["differences"].items()))
    first = f"; the first one: {difference_text(read_back['found'][0])}" if read_back["found"] else ""
    return f"batches on the target differ from what was committed ({counts}){first}"


def unverified_text(reasons: Iterable[tuple[str, int]]) -> str:
    """Return the reasons why batches were not compared, with their counts."""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons))
