"""Judges what clients have noted against the target's logs: nothing lost, doubled, skipped or read again. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_SHOWN: Final = 3

Logs = Mapping[tuple[str, int], Sequence[str]]
"""The values of each partition's committed records, in order."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One record that a cluster has acknowledged, at ms since 1970."""

    cluster: str
    at_ms: int
    value: str


@dataclass(slots=True)
class Reading:
    """One record that a member of a group has read, and when its position behind it was committed (ms)."""

    at_ms: int
    committed_ms: float = math.inf


@dataclass(slots=True)
class ProducerNotes:
    """What one producer has noted; its values are ``name-number``, with ascending numbers."""

    acknowledged: list[Acknowledgement] = field(default_factory=list)
    refused: int = 0

    def see(self, line: str) -> None:
        """Take in a line: ``A cluster ms value`` or ``F cluster ms error``."""
        kind, cluster, at_ms, what = line.split(" ", 3)
        if kind == "A":
            self.acknowledged.append(Acknowledgement(cluster, int(at_ms), what))
        else:
            self.refused += 1


@dataclass(slots=True)
class MemberNotes:
    """What one member of a group has noted."""

    read: dict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    _batch: list[Reading] = field(default_factory=list)

    def see(self, line: str) -> None:
        """Take in a line: ``R cluster ms value``, or ``C cluster ms`` or ``U cluster ms`` for all that it read before.

        ``U``: whether the positions were committed is unknown.
        """
        kind, _, at_ms, *value = line.split(" ", 3)
        if kind == "R":
            reading = Reading(int(at_ms))
            self.read[value[0]].append(reading)
            self._batch.append(reading)
            return
        for reading in self._batch:
            reading.committed_ms = int(at_ms) if kind == "C" else math.inf
        self._batch = []


def of_records(acknowledged: Iterable[str], logs: Logs) -> list[str]:
    """Return a line for each kind of fault: lost, doubled, or out of their producer's order."""
    counts = Counter(value for values in logs.values() for value in values)
    lost = sorted(value for value in acknowledged if value not in counts)
    doubled = sorted(value for value, count in counts.items() if count > 1)
    wrong = [_line("acknowledged and not on the target", lost)] if lost else []
    wrong += [_line("on the target more than once", doubled)] if doubled else []
    disordered: list[str] = []
    for values in logs.values():
        last: dict[str, int] = {}
        for value in values:
            producer, _, number = value.rpartition("-")
            if int(number) < last.get(producer, -1):
                disordered.append(value)
            last[producer] = int(number)
    return wrong + ([_line("behind later ones of their producer", disordered)] if disordered else [])


def of_group(group: str, topics: Iterable[str], members: Sequence[MemberNotes], logs: Logs) -> list[str]:
    """Return a line for each kind of fault: records that the group has skipped, or read again after a commit."""
    wanted = {*topics}
    due = [value for (topic, _), values in logs.items() if topic in wanted for value in values]
    skipped = sorted(value for value in due if not any(value in member.read for member in members))
    wrong = [_line(f"skipped by group {group}", skipped)] if skipped else []
    again = sorted(value for value in {value for one in members for value in one.read} if _again(value, members))
    return wrong + ([_line(f"read again by group {group} after it had committed them", again)] if again else [])


def unread(topics: Iterable[str], members: Sequence[MemberNotes], logs: Logs) -> bool:
    """Return whether a group has not yet read everything that the logs have."""
    wanted = {*topics}
    return any(
        value not in members[0].read and not any(value in member.read for member in members[1:])
        for (topic, _), values in logs.items()
        if topic in wanted
        for value in values
    )


def _again(value: str, members: Sequence[MemberNotes]) -> bool:
    readings = [reading for member in members for reading in member.read.get(value, ())]
    return any(one.committed_ms <= other.at_ms for one in readings for other in readings if one is not other)


def of_acls(expected: Iterable[tuple[str, ...]], found: Iterable[tuple[str, ...]], where: str) -> list[str]:
    """Return a line for ACLs that are missing, and one for those that are too many."""
    wanted, there = {*expected}, {*found}
    shown = ((" ".join(one) for one in sorted(acls)) for acls in (wanted - there, there - wanted))
    kinds = zip(("missing", "more than before"), map(list, shown), strict=True)
    return [_line(f"{where}: ACLs that are {kind}", acls) for kind, acls in kinds if acls]


def pauses_ms(producers: Mapping[str, ProducerNotes], source: str, target: str, since_ms: int) -> dict[str, int]:
    """Return for each producer the time from its last record on the source to its first one on the target.

    Only acknowledgements from ``since_ms`` on count: before that clients may have been on the target, too.
    """
    found = {}
    for name, notes in producers.items():
        seen = [one for one in notes.acknowledged if one.at_ms >= since_ms]
        first = min((one.at_ms for one in seen if one.cluster == target), default=None)
        last = max((one.at_ms for one in seen if one.cluster == source), default=None)
        if first is not None and last is not None:
            found[name] = first - last
    return found


def quantile(values: Sequence[float], q: float) -> float:
    """Return the nearest-rank quantile; NaN without values."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)] if values else math.nan


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, p99 and longest of ``values``."""
    if not values:
        return {}
    return {"p50": round(statistics.median(values), 2), "p99": quantile(values, 0.99), "longest": max(values)}


def _line(what: str, values: Sequence[str]) -> str:
    more = ", ..." if len(values) > _SHOWN else ""
    return f"{len(values)} {what}: {', '.join(values[:_SHOWN])}{more}"
