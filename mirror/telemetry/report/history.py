"""Joins the timelines of a partition's attempts and periods into one bounded timeline. Pure."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from mirror.relay.model.ranges import RangeResult
from mirror.relay.model.timeline import MAX_TRACES, CopyTimeline, SpanName
from mirror.telemetry.report.curves import Point, thin

MAX_EVENTS: Final = 200
MAX_EXPIRIES: Final = 200
_NUMBERS_PER_POINT: Final = 4

EARLIER_ATTEMPT: Final = "mirror.earlier_attempt"
"""The event for an attempt of a Spark task that a later one replaced: ``task``, ``attempt``, ``outcome``, ``error``."""


class PartitionHistory:
    """The history of one partition over a stream's periods or a run's attempts, with about ``max_points`` points."""

    def __init__(self, max_points: int) -> None:
        self._max_points: Final = max_points
        self._points = array("q")  # 32 bytes per point: there are thousands of partitions
        self._bytes = 0
        self._timeline: CopyTimeline | None = None
        self._expiries: dict[str, dict[str, Any]] = {}

    def add(self, result: RangeResult, events: Iterable[dict[str, Any]] = ()) -> None:
        """Add the result of an attempt or period, with further ``events``. Call this for the oldest one first."""
        self._add_expiries(result.expiries)
        events = [*(result.timeline.events if result.timeline else ()), *_catch_up_events(result.timeline), *events]
        if result.timeline is None and not events:
            return
        timeline = result.timeline or CopyTimeline()
        self._timeline = _joined(self._timeline or CopyTimeline(), timeline, events)
        self._add_points(_complete_curve(timeline))
        self._bytes += result.bytes

    def _add_points(self, curve: Iterable[Sequence[int]]) -> None:
        last_ms = self._points[-_NUMBERS_PER_POINT] if self._points else 0
        for time_ms, offset, end, size in curve:
            if time_ms >= last_ms:  # two attempts may overlap in time; the curve must not go back
                self._points.extend((time_ms, max(0, end - offset), offset, self._bytes + size))
                last_ms = time_ms
        if len(self._points) > 2 * self._max_points * _NUMBERS_PER_POINT:
            thinned = thin(self.points(), self._max_points)
            self._points = array("q", (number for point in thinned for number in point))

    def _add_expiries(self, expiries: Iterable[dict[str, Any]]) -> None:
        for expiry in expiries:
            # The totals of a stream and the periods in the ledger contain the same expiries.
            self._expiries[json.dumps(expiry, sort_keys=True, default=str)] = expiry
        while len(self._expiries) > MAX_EXPIRIES:
            del self._expiries[next(iter(self._expiries))]

    def points(self) -> list[Point]:
        """Return the curve."""
        flat = iter(self._points)
        return list(zip(flat, flat, flat, flat, strict=True))

    def expiries(self) -> list[dict[str, Any]]:
        """Return the last :data:`MAX_EXPIRIES` expiries by time."""
        return sorted(self._expiries.values(), key=lambda expiry: int(expiry.get("time_ms", 0)))

    def timeline(self) -> CopyTimeline | None:
        """Return the joined timeline; the points of its curve are ``[time_ms, next offset, source's end, bytes]``."""
        if self._timeline is None:
            return None
        curve = [[time, offset, offset + left, size] for time, left, offset, size in self.points()]
        return replace(self._timeline, curve=curve)


def _complete_curve(timeline: CopyTimeline) -> list[Sequence[int]]:
    """Return the curve from the beginning of the copy.

    The lag at the beginning is known only when the source has responded. That may be after the first commit, because
    a copy commits its position before it reads.
    """
    curve: list[Sequence[int]] = list(timeline.curve)
    if not curve or timeline.lag_before is None:
        return curve
    first = curve[0][1]
    end = first + timeline.lag_before
    corrected = [
        (time, offset, max(last, end) if offset == first else last, size) for time, offset, last, size in curve
    ]
    began = (timeline.began_ms, first, end, 0)
    return [began, *corrected] if 0 < timeline.began_ms < curve[0][0] else [*corrected]


def _catch_up_events(timeline: CopyTimeline | None) -> list[dict[str, Any]]:
    """Return an event for each catch-up: its end, its duration, and what was copied."""
    return [
        {
            "time_ms": span["ended_ms"],
            "name": SpanName.CATCH_UP.value,
            "took_ms": span["ended_ms"] - span["began_ms"],
            **{name: span[name] for name in ("records", "bytes") if name in span},
        }
        for span in (timeline.spans if timeline is not None else ())
        if span["name"] == SpanName.CATCH_UP
    ]


def _joined(before: CopyTimeline, timeline: CopyTimeline, events: Sequence[dict[str, Any]]) -> CopyTimeline:
    """Join ``timeline`` with everything ``before`` it. Fields that are not named here are those of ``timeline``."""
    events = sorted([*before.events, *events], key=lambda event: int(event.get("time_ms", 0)))
    left_out = max(0, len(events) - MAX_EVENTS)
    first = timeline if before.lag_before is None else before
    last = before if timeline.lag_after is None else timeline
    return replace(
        timeline,
        began_ms=before.began_ms or timeline.began_ms,
        ended_ms=max(before.ended_ms, timeline.ended_ms),
        lag_before=first.lag_before,
        late_before_ms=first.late_before_ms,
        lag_after=last.lag_after,
        late_after_ms=last.late_after_ms,
        phases=dict(Counter(before.phases) + Counter(timeline.phases)),
        events=events[left_out:],
        events_left_out=before.events_left_out + timeline.events_left_out + left_out,
        curve=[],
        commits=before.commits + timeline.commits,
        commit_ms=before.commit_ms + timeline.commit_ms,
        commit_max_ms=max(before.commit_max_ms, timeline.commit_max_ms),
        throttled_ms=before.throttled_ms + timeline.throttled_ms,
        traces=list(dict.fromkeys([*before.traces, *timeline.traces]))[:MAX_TRACES],
    )
