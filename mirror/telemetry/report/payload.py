"""What the page's scripts draw from: all partitions as plain values, small. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mirror.relay.model.ranges import RangeResult
from mirror.telemetry.report.curves import Point, as_differences, points_for_each, thin
from mirror.telemetry.report.findings import Finding, active_ms
from mirror.telemetry.report.model import FlowReportData

MOST_POINTS: Final = 60_000
"""Of all curves together, about: 1.5 MB."""
LEAST_OF_A_CURVE: Final = 8
MOST_OF_A_CURVE: Final = 240
_SICK_WEIGHS: Final = 8
MOST_EVENTS: Final = 6_000
"""And expiries, of all partitions together, 300 bytes each; each partition keeps its last one at least."""


def curves_of(flows: Sequence[FlowReportData], sick: Sequence[set[int]]) -> list[list[list[Point]]]:
    """Each flow's curves, thinned so that all fit into the page; those of the sick keep more."""
    weights = [
        _SICK_WEIGHS if place in ill else 1 for flow, ill in zip(flows, sick, strict=True) for place in _places(flow)
    ]
    allowed = iter(points_for_each(weights, MOST_POINTS, LEAST_OF_A_CURVE, MOST_OF_A_CURVE))
    return [[thin(_points(one), next(allowed)) for one in flow.partitions] for flow in flows]


def _places(flow: FlowReportData) -> range:
    return range(len(flow.partitions))


def _points(one: RangeResult) -> list[Point]:
    curve = one.story.curve if one.story is not None else []
    return [(time_ms, max(0, end - offset), offset, size) for time_ms, offset, end, size in curve]


def flow_values(
    flow: FlowReportData,
    curves: Sequence[Sequence[Point]],
    findings: Sequence[Finding],
    slow: Sequence[int],
    most_events: int,
) -> dict[str, Any]:
    """One flow for the scripts."""
    of_part: dict[int, list[int]] = {}
    for number, finding in enumerate(findings):
        for place, _ in finding.members:
            of_part.setdefault(place, []).append(number)
    return {
        "name": flow.flow,
        "started": flow.started_ms,
        "ended": flow.ended_ms,
        "levels": [finding.advice.level.value for finding in findings],
        "titles": [finding.advice.title for finding in findings],
        "slow": list(slow),
        "parts": [
            _values(one, curves[place], of_part.get(place, []), flow.started_ms, most_events)
            for place, one in enumerate(flow.partitions)
        ],
    }


def events_for_each(flows: Sequence[FlowReportData]) -> int:
    """How many events, and how many expiries, a partition may have in the page, so that all fit into it."""
    counts = [len(one.expiries) for flow in flows for one in flow.partitions]
    counts += [len(one.story.events) for flow in flows for one in flow.partitions if one.story is not None]
    most = max(counts, default=1)
    while most > 1 and sum(min(count, most) for count in counts) > MOST_EVENTS:
        most = most * 3 // 4
    return max(1, most)


def _values(
    one: RangeResult, curve: Sequence[Point], findings: list[int], origin_ms: int, most_events: int
) -> dict[str, Any]:
    """Without what is not there: there are thousands. Times in ms; the curve's and ``from`` count from the start."""
    story = one.story
    values: dict[str, Any] = {
        "topic": one.topic,
        "target": one.target_topic,
        "number": one.partition,
        "outcome": one.outcome.value,
        "start": one.start,
        "end": one.end,
        "records": one.records,
        "batches": one.batches,
        "bytes": one.bytes,
        "ms": int(one.seconds * 1000),
        "busy": active_ms(one),
        "error": one.error,
        "skipped": one.skipped,
        "deep": one.deep,
        "gaps": one.gaps,
        "expiries": one.expiries[-most_events:],
        "expired": len(one.expiries),
        "retries": one.retries,
        "stuck": one.stuck_since_ms,
        "findings": findings,
    }
    if story is not None:
        events = story.events[-most_events:]
        values |= {
            "began": story.began_ms,
            "until": story.ended_ms,
            "before": story.lag_before,
            "after": story.lag_after,
            "late": story.late_before_ms,
            "later": story.late_after_ms,
            "phases": story.phases,
            "events": events,
            "unsaid": story.events_left_out + len(story.events) - len(events),
            "commits": story.commits,
            "committing": story.commit_ms,
            "longest": story.commit_max_ms,
            "throttled": story.throttled_ms,
            "traces": story.traces,
            "sick_trace": story.sick_trace,
            "last_trace": story.last_trace,
            "curve": as_differences(curve, origin_ms),
        }
    return {key: value for key, value in values.items() if value or key in _ALWAYS}


_ALWAYS: Final = frozenset({"number", "before", "after", "late", "later"})
