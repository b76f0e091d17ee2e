"""One partition over a run: what the attempts and epochs tell of it, joined and bounded. Pure."""

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

MOST_EVENTS: Final = 200
MOST_EXPIRIES: Final = 200
_NUMBERS: Final = 4

EARLIER_ATTEMPT: Final = "mirror.earlier_attempt"
"""The event of an attempt of Spark's that did not have the last word: ``task``, ``attempt``, ``outcome``, ``error``."""


class PartitionHistory:
    """What a stream's epochs (or a run's attempts) tell of one partition. ``most`` is how many points it keeps."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._points = array("q")  # 32 bytes a point: there are thousands of partitions
        self._bytes = 0
        self._story: CopyTimeline | None = None
        self._expiries: dict[str, dict[str, Any]] = {}

    def add(self, result: RangeResult, events: Iterable[dict[str, Any]] = ()) -> None:
        """One more attempt's or epoch's result, the oldest first, and what else happened to it then."""
        self._expired(result.expiries)
        told = [*(result.story.events if result.story else ()), *_caught_up(result.story), *events]
        if result.story is None and not told:
            return
        story = result.story or CopyTimeline()
        self._story = _joined(self._story or CopyTimeline(), story, told)
        self._draw(_heard(story))
        self._bytes += result.bytes

    def _draw(self, curve: Iterable[Sequence[int]]) -> None:
        last_ms = self._points[-_NUMBERS] if self._points else 0
        for time_ms, offset, end, size in curve:
            if time_ms >= last_ms:  # two attempts at once: the curve does not go back
                self._points.extend((time_ms, max(0, end - offset), offset, self._bytes + size))
                last_ms = time_ms
        if len(self._points) > 2 * self._most * _NUMBERS:
            kept = thin(self.points(), self._most)
            self._points = array("q", (number for point in kept for number in point))

    def _expired(self, expiries: Iterable[dict[str, Any]]) -> None:
        for one in expiries:
            # The totals of a stream and the ledger's epochs tell of the same ones.
            self._expiries[json.dumps(one, sort_keys=True, default=str)] = one
        while len(self._expiries) > MOST_EXPIRIES:
            del self._expiries[next(iter(self._expiries))]

    def points(self) -> list[Point]:
        """The curve, as far as it is kept."""
        flat = iter(self._points)
        return list(zip(flat, flat, flat, flat, strict=True))

    def expiries(self) -> list[dict[str, Any]]:
        """The last :data:`MOST_EXPIRIES`, by time."""
        return sorted(self._expiries.values(), key=lambda one: int(one.get("time_ms", 0)))

    def story(self) -> CopyTimeline | None:
        """All that was told; its curve has ``[time_ms, next offset, the source's end, bytes]``, as any story's."""
        if self._story is None:
            return None
        return replace(self._story, curve=[[time, at, at + left, size] for time, left, at, size in self.points()])


def _heard(story: CopyTimeline) -> list[Sequence[int]]:
    """The curve from the very beginning.

    What was left then is known once the source has answered, which may be later than the first commit: a copy keeps its
    place before it reads.
    """
    curve: list[Sequence[int]] = list(story.curve)
    if not curve or story.lag_before is None:
        return curve
    first = curve[0][1]
    end = first + story.lag_before
    known = [(time, at, max(last, end) if at == first else last, size) for time, at, last, size in curve]
    began = (story.began_ms, first, end, 0)
    return [began, *known] if 0 < story.began_ms < curve[0][0] else [*known]


def _caught_up(story: CopyTimeline | None) -> list[dict[str, Any]]:
    """That it caught up, as an event: when, after how long, and with how much."""
    return [
        {
            "time_ms": span["ended_ms"],
            "name": SpanName.CATCH_UP.value,
            "took_ms": span["ended_ms"] - span["began_ms"],
            **{name: span[name] for name in ("records", "bytes") if name in span},
        }
        for span in (story.spans if story is not None else ())
        if span["name"] == SpanName.CATCH_UP
    ]


def _joined(before: CopyTimeline, story: CopyTimeline, events: Sequence[dict[str, Any]]) -> CopyTimeline:
    """``story`` with all that was ``before`` it. What is not named here is the last one's word."""
    happened = sorted([*before.events, *events], key=lambda event: int(event.get("time_ms", 0)))
    left_out = max(0, len(happened) - MOST_EVENTS)
    begins, ends = (
        story if before.lag_before is None else before,
        before if story.lag_after is None else story,
    )
    return replace(
        story,
        began_ms=before.began_ms or story.began_ms,
        ended_ms=max(before.ended_ms, story.ended_ms),
        lag_before=begins.lag_before,
        late_before_ms=begins.late_before_ms,
        lag_after=ends.lag_after,
        late_after_ms=ends.late_after_ms,
        phases=dict(Counter(before.phases) + Counter(story.phases)),
        events=happened[left_out:],
        events_left_out=before.events_left_out + story.events_left_out + left_out,
        curve=[],
        commits=before.commits + story.commits,
        commit_ms=before.commit_ms + story.commit_ms,
        commit_max_ms=max(before.commit_max_ms, story.commit_max_ms),
        throttled_ms=before.throttled_ms + story.throttled_ms,
        traces=list(dict.fromkeys([*before.traces, *story.traces]))[:MAX_TRACES],
    )
