"""What the last verification and the last rehearsal of a flow came to, as the metrics and the report have it. Pure.

Both are jobs that have ended before Prometheus scrapes them: they leave a record in the flow's status topic, which its
runs read on any host. The records are bounded: brokers take 1 MB by default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from mirror.verify.partition_results import OUTCOMES

MAX_PARTITIONS: Final = 200
"""So many partitions of a verification are kept, those that are not equal first."""
MAX_TOPICS: Final = 2_000
MAX_REMARKS: Final = 300
"""So many characters of the remarks about a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPartition:
    """What the last verification found of a partition."""

    topic: str
    partition: int
    outcome: str
    equal_to: int | None = None
    """The source offset up to which both sides are equal; None: nothing was compared."""
    remarks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastVerification:
    """The last ``mirror verify`` of a flow. The field names are JSON keys."""

    time_ms: int
    """When it ended, in ms since 1970."""
    equal_ms: int = 0
    """When the last one ended that has found everything equal, and was not partial; 0: none."""
    partial: bool = False
    """Whether it has left out some of what is copied (``--from``, ``--check``)."""
    error: str = ""
    """Why nothing could be compared; empty if something was."""
    seconds: float = 0.0
    records: int = 0
    """Equal ones, as are ``bytes``."""
    bytes: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Partitions by outcome, one of :data:`mirror.verify.partition_results.OUTCOMES`."""
    incomplete: int = 0
    """Partitions of which the target did not have every record that the source had."""
    differing: Mapping[str, int] = field(default_factory=dict)
    """Records that differ, by kind."""
    equal_to: Mapping[str, int] = field(default_factory=dict)
    """The source offset up to which both sides are equal, by topic: the sum over its partitions."""
    partitions: tuple[VerifiedPartition, ...] = ()
    """At most :data:`MAX_PARTITIONS`, the worst ones."""

    @classmethod
    def of(cls, record: Mapping[str, Any], time_ms: int, earlier: LastVerification | None) -> Self:
        """Return the summary of a flow's entry in ``verify.json``, which ended at ``time_ms``."""
        partitions = record["partitions"]
        outcomes = Counter(one["outcome"] for one in partitions)
        is_equal = not record["error"] and not record["partial"] and not outcomes.keys() - {"equal"}
        differing: Counter[str] = Counter()
        equal_to: Counter[str] = Counter()
        for one in partitions:
            differing.update(one.get("differing_records", {}))
            equal_to[one["topic"]] += one["source"]["equal_to"] if "source" in one else 0
        worst = sorted(partitions, key=lambda one: OUTCOMES.index(one["outcome"]))[:MAX_PARTITIONS]
        return cls(
            time_ms=time_ms,
            equal_ms=time_ms if is_equal else 0 if earlier is None else earlier.equal_ms,
            partial=record["partial"],
            error=record["error"] or "",
            seconds=record["seconds"],
            records=sum(one.get("records", 0) for one in partitions),
            bytes=sum(one.get("bytes", 0) for one in partitions),
            outcomes=dict(outcomes),
            incomplete=sum(not one["complete"] for one in partitions),
            differing=dict(differing),
            equal_to=dict(list(equal_to.items())[:MAX_TOPICS]),
            partitions=tuple(_partition(one) for one in worst),
        )


def _partition(one: Mapping[str, Any]) -> VerifiedPartition:
    remarks = [one["error"]] if one["error"] else []
    remarks += [f"{count:,} {kind}" for kind, count in sorted(one.get("differing_records", {}).items())]
    remarks += [f"{each['reason']}" for each in one.get("not_compared", ()) if each["reason"] != one["error"]]
    return VerifiedPartition(
        topic=one["topic"],
        partition=one["partition"],
        outcome=one["outcome"],
        equal_to=one["source"]["equal_to"] if "source" in one else None,
        remarks="; ".join([*remarks, *one["notes"]])[:MAX_REMARKS],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalBlocker:
    """What the last rehearsal found to be not ready."""

    kind: str
    name: str
    reason: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRehearsal:
    """The last ``mirror rehearse`` of a flow, ahead. The field names are JSON keys."""

    time_ms: int
    """As of when, in ms since 1970."""
    ready: bool
    groups: int = 0
    groups_not_ready: int = 0
    skipped: int = 0
    read_again: int = 0
    records: int = 0
    """At most so many records had not arrived."""
    point_seconds: float | None = None
    """The recovery point: the age of the oldest record that had not arrived; None if it is unknown, 0 if all had."""
    time_seconds: float | None = None
    """The recovery time: how long the rest takes at measured rates; None if it is unknown."""
    blockers: tuple[RehearsalBlocker, ...] = ()
    """What else was not ready."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the summary of a flow's entry in the output of ``mirror rehearse --json``."""
        point = record["recovery_point"]
        return cls(
            time_ms=record["time_ms"],
            ready=record["ready"],
            groups=len(record["groups"]),
            groups_not_ready=record["groups_not_ready"],
            skipped=record["skipped"],
            read_again=record["read_again"],
            records=point["records"],
            point_seconds=point["seconds"] if point["records"] else 0.0,
            time_seconds=record["recovery_time"]["seconds"] if point["records"] else 0.0,
            blockers=tuple(RehearsalBlocker(**one) for one in record["blockers"][:MAX_PARTITIONS]),
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a flow beside its runs."""

    verification: LastVerification | None = None
    """None: there was none."""
    rehearsal: LastRehearsal | None = None
