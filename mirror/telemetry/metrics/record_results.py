"""From results to measurements: what of an epoch goes into which instrument. Pure but for the sums themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mirror.meters import Histogram
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.telemetry.metrics import instruments as on
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.task_report import TaskReport


def record_results(measured: MetricStore, flow: str, results: Iterable[RangeResult]) -> None:
    """What an epoch's partitions have done."""
    by_topic: dict[str, Counter[str]] = {}
    for one in results:
        sums = by_topic.setdefault(one.topic, Counter())
        sums.update(records=one.records, bytes=one.bytes, retries=one.retries)
        _take_batches(measured, flow, one)
        measured.add(on.OUTCOMES, 1, flow=flow, outcome=one.outcome.value)
        measured.add(on.FENCED, one.outcome is Outcome.FENCED, flow=flow)
        for expiry in one.expiries:
            phase, cause = expiry.get("phase", ""), expiry.get("cause", "")
            measured.add(on.EXPIRIES, 1, flow=flow, topic=one.topic, phase=phase, cause=cause)
        for phase, ms in one.story.phases.items() if one.story else ():
            measured.add(on.PHASES, ms / 1000, flow=flow, phase=phase)
    for topic, sums in by_topic.items():
        measured.add(on.SENT, sums["records"], flow=flow, topic=topic)
        measured.add(on.BYTES, sums["bytes"], flow=flow, topic=topic)
        measured.add(on.RETRIES, sums["retries"], flow=flow, topic=topic)


def _take_batches(measured: MetricStore, flow: str, one: RangeResult) -> None:
    # Several small source batches may have become one: then fewer were written than were encoded.
    deep = sum(one.deep.values())
    measured.add(on.BATCHES, max(0, one.batches - deep), flow=flow, path="shallow", reason="")
    for reason, count in one.deep.items():
        measured.add(on.BATCHES, count, flow=flow, path="deep", reason=reason)
    for reason, count in one.skipped.items():
        measured.add(on.SKIPPED, count, flow=flow, reason=reason)
    for kind, count in one.gaps.items():
        measured.add(on.GAPS, count, flow=flow, kind=kind)


def record_task(measured: MetricStore, flow: str, told: TaskReport) -> None:
    """What a task has counted."""
    measured.merge(on.COMMIT_DURATION, told.commits, flow=flow)
    wall_ms = max(1, told.ended_ms - told.began_ms)
    for cluster, look in told.networks.items():
        measured.set(on.BUSY, round(look.busy_ms / wall_ms, 4), flow=flow, cluster=cluster, task=told.task)
        for api, meter in look.requests.items():
            about = {"flow": flow, "cluster": cluster, "messaging.operation.name": api}
            measured.merge(on.REQUEST_DURATION, meter.took, **about, **{"messaging.system": "kafka"})
            measured.add(on.REQUESTS_LOST, meter.lost, **about)
            measured.add(on.THROTTLED, meter.throttled_ms / 1000, **about)
    for what, peak in (
        (on.BUFFER, "buffer"),
        (on.BUFFER_SIZE, "buffer_size"),
        (on.IN_FLIGHT, "in_flight"),
        (on.HELD, "held"),
    ):
        measured.set(what, told.peaks.get(peak), flow=flow, task=told.task)
    for signal, count in told.dropped.items():
        measured.add(on.DROPPED, count, signal=signal)


def record_epoch(
    measured: MetricStore, flow: str, *, outcome: str, ended_ms: int, took_ms: int, planned_ms: int | None
) -> None:
    """An epoch has ended, at ``ended_ms`` since 1970, after ``took_ms``."""
    measured.add(on.EPOCHS, 1, flow=flow, outcome=outcome)
    measured.set(on.LAST_EPOCH, ended_ms / 1000, flow=flow)
    measured.merge(on.EPOCH_DURATION, _one(took_ms), flow=flow)
    if planned_ms is not None:
        measured.merge(on.PLAN_DURATION, _one(planned_ms), flow=flow)


def _one(ms: int) -> Histogram:
    histogram = Histogram()
    histogram.add(max(0, ms))
    return histogram
