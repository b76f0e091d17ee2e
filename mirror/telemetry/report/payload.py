"""Builds the compact data that the page's scripts draw from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mirror.relay.model.ranges import RangeResult
from mirror.relay.model.way_notes import PartitionWay, way_notes
from mirror.telemetry.report.curves import Point, as_differences, points_per_curve, thin
from mirror.telemetry.report.findings import Finding, active_ms
from mirror.telemetry.report.model import FlowReportData

MAX_POINTS: Final = 60_000
"""Points of all curves together: about 1.5 MB."""
MIN_POINTS_PER_CURVE: Final = 8
MAX_POINTS_PER_CURVE: Final = 240
_UNHEALTHY_WEIGHT: Final = 8
MAX_EVENTS: Final = 6_000
"""Events and expiries of all partitions together, 300 bytes each. Each partition keeps at least its last one."""


def thinned_curves(flows: Sequence[FlowReportData], unhealthy: Sequence[set[int]]) -> list[list[list[Point]]]:
    """Return each flow's curves, thinned so that all fit into the page.

    ``unhealthy`` has the indexes of each flow's partitions whose curves keep more points.
    """
    weights = [
        _UNHEALTHY_WEIGHT if index in indexes else 1
        for flow, indexes in zip(flows, unhealthy, strict=True)
        for index in range(len(flow.partitions))
    ]
    limits = iter(points_per_curve(weights, MAX_POINTS, MIN_POINTS_PER_CURVE, MAX_POINTS_PER_CURVE))
    return [[thin(_points(result), next(limits)) for result in flow.partitions] for flow in flows]


def _points(result: RangeResult) -> list[Point]:
    curve = result.timeline.curve if result.timeline is not None else []
    return [(time_ms, max(0, end - offset), offset, size) for time_ms, offset, end, size in curve]


def flow_values(
    flow: FlowReportData,
    curves: Sequence[Sequence[Point]],
    findings: Sequence[Finding],
    slow: Sequence[int],
    max_events: int,
) -> dict[str, Any]:
    """Return one flow as plain values."""
    findings_of: dict[int, list[int]] = {}
    for number, finding in enumerate(findings):
        for index, _ in finding.members:
            findings_of.setdefault(index, []).append(number)
    return {
        "name": flow.flow,
        "started": flow.started_ms,
        "ended": flow.ended_ms,
        "levels": [finding.advice.level.value for finding in findings],
        "titles": [finding.advice.title for finding in findings],
        "slow": list(slow),
        "ways": bool(
            way_notes(PartitionWay(result.topic, result.way, result.way_reason) for result in flow.partitions)
        ),
        "parts": [
            _partition_values(result, curves[index], findings_of.get(index, []), flow.started_ms, max_events)
            for index, result in enumerate(flow.partitions)
        ],
    }


def events_per_partition(flows: Sequence[FlowReportData]) -> int:
    """Return how many events, and how many expiries, the page may have per partition, so that all fit into it."""
    results = [result for flow in flows for result in flow.partitions]
    counts = [len(result.expiries) for result in results]
    counts += [len(result.timeline.events) for result in results if result.timeline is not None]
    limit = max(counts, default=1)
    while limit > 1 and sum(min(count, limit) for count in counts) > MAX_EVENTS:
        limit = limit * 3 // 4
    return max(1, limit)


def _partition_values(
    result: RangeResult, curve: Sequence[Point], findings: list[int], origin_ms: int, max_events: int
) -> dict[str, Any]:
    """Return one partition as plain values, without empty ones: there may be thousands of partitions.

    Times are in ms; those of the curve count from ``origin_ms``.
    """
    timeline = result.timeline
    values: dict[str, Any] = {
        "topic": result.topic,
        "target": result.target_topic,
        "number": result.partition,
        "outcome": result.outcome.value,
        "start": result.start,
        "end": result.end,
        "records": result.records,
        "batches": result.batches,
        "bytes": result.bytes,
        "ms": int(result.seconds * 1000),
        "busy": active_ms(result),
        "error": result.error,
        "skipped": result.skipped,
        "deep": result.deep,
        "gaps": result.gaps,
        "aside": result.aside,
        "expiries": result.expiries[-max_events:],
        "expired": len(result.expiries),
        "retries": result.retries,
        "stuck": result.stuck_since_ms,
        "findings": findings,
        "way": result.way,
        "way_reason": result.way_reason,
    }
    if timeline is not None:
        events = timeline.events[-max_events:]
        values |= {
            "began": timeline.began_ms,
            "until": timeline.ended_ms,
            "before": timeline.lag_before,
            "after": timeline.lag_after,
            "late": timeline.late_before_ms,
            "later": timeline.late_after_ms,
            "phases": timeline.phases,
            "events": events,
            "unsaid": timeline.events_left_out + len(timeline.events) - len(events),
            "commits": timeline.commits,
            "committing": timeline.commit_ms,
            "longest": timeline.commit_max_ms,
            "throttled": timeline.throttled_ms,
            "traces": timeline.traces,
            "sick_trace": timeline.sick_trace,
            "last_trace": timeline.last_trace,
            "curve": as_differences(curve, origin_ms),
        }
    return {key: value for key, value in values.items() if value or key in _ALWAYS}


_ALWAYS: Final = frozenset({"number", "before", "after", "late", "later"})
