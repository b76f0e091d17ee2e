"""What a loss has cost, by what clients have seen. Pure: times are monotonic seconds, records are numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LATE_S: Final = 1.0
"""From the source's acknowledgement until another client has the record on the target."""
_WINDOW_S: Final = 1.0
_STEP_S: Final = 0.1
_PERCENTILE: Final = 0.99

Arrival = tuple[float, int]
"""When a client had a record of the target, and its number."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """What only the source had at a moment: the recovery point."""

    records: int
    seconds: float
    """The age of the oldest of these, since its acknowledgement."""


def exposure(acknowledged: Mapping[int, float], arrivals: Sequence[Arrival], at: float) -> Exposure:
    """Return what the source had acknowledged at ``at`` and the target did not show yet."""
    shown = {number for came, number in arrivals if came <= at}
    missing = [acked for number, acked in acknowledged.items() if acked <= at and number not in shown]
    return Exposure(len(missing), round(at - min(missing), 3) if missing else 0.0)


def missing(acknowledged: Mapping[int, float], arrivals: Sequence[Arrival], since: float, until: float) -> int:
    """Return how many of the records acknowledged in that time have never come."""
    shown = {number for _, number in arrivals}
    return sum(since <= acked <= until and number not in shown for number, acked in acknowledged.items())


def doubled(arrivals: Sequence[Arrival], since: float) -> int:
    """Return how many records have come since then that had come before."""
    before = Counter(number for _, number in arrivals)
    again = Counter(number for came, number in arrivals if came >= since)
    return sum(min(count, before[number] - 1) for number, count in again.items())


def firsts(arrivals: Iterable[Arrival]) -> dict[int, float]:
    """Return when each record came for the first time."""
    found: dict[int, float] = {}
    for came, number in arrivals:
        found.setdefault(number, came)
    return found


def unserved_until(
    acknowledged: Mapping[int, float], shown: Mapping[int, float], since: float, until: float
) -> float | None:
    """Return when clients of the target were served again for good; ``since`` if they were served all the time.

    ``shown``: when each record came first. Served: in each second from then on the source has acknowledged records, and
    the target has shown 99% of them within :data:`LATE_S`. None: not yet at ``until``, from when on nothing is known.
    """
    known = until - LATE_S
    found = sorted(
        (acked, shown.get(number, until) - acked >= LATE_S)
        for number, acked in acknowledged.items()
        if since <= acked < known
    )
    times = [acked for acked, _ in found]
    last = since
    for step in range(int((known - _WINDOW_S - since) / _STEP_S) + 1):
        begin = since + step * _STEP_S
        first, behind = bisect_left(times, begin), bisect_left(times, begin + _WINDOW_S)
        if first == behind:
            last = begin + _WINDOW_S
        elif sum(late for _, late in found[first:behind]) > (1 - _PERCENTILE) * (behind - first):
            last = begin + _STEP_S
    return None if last > known - 2 * _WINDOW_S else last


def positions(before: Collection[int], after: Collection[int], shown: Collection[int]) -> tuple[int, int]:
    """Return how many records a group has read again and skipped, which has moved.

    ``before`` and ``after``: what it has read on the source and on the target; ``shown``: what the target has.
    """
    read = set(before)
    return len(read & set(after)), len(set(shown) - read - set(after))


def steps_s(steps: Sequence[Mapping[str, Any]], since_ms: float | None = None) -> dict[str, float]:
    """Return how many seconds each step of a switch has taken, by the steps of its record: until that state.

    Only the last attempt counts. The first step is from ``since_ms`` (ms since 1970) on, and without it left out.
    """
    began = max((number for number, step in enumerate(steps) if step["state"] == "planned"), default=0)
    found: dict[str, float] = {}
    before = since_ms
    for step in steps[began:]:
        if before is not None:
            found[step["state"]] = round(found.get(step["state"], 0.0) + (step["at_ms"] - before) / 1000, 1)
        before = step["at_ms"]
    return found
