"""Records the results of periods and the reports of tasks in the instruments of a :class:`MetricStore`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mirror.alignment.sync_state import SyncState
from mirror.groups.summary import GroupsSummary
from mirror.meters import Histogram
from mirror.relay.model.ranges import RangeResult
from mirror.telemetry.evidence import Evidence
from mirror.telemetry.metrics import instruments
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.task_report import TaskReport
from mirror.version import VERSION


def record_flow_info(
    metrics: MetricStore, flow: str, *, source: str, target: str, delivery: str, exactly_once_by: str, naming: str
) -> None:
    """Record the settings of a flow. All of its metrics get the aliases ``source`` and ``target`` of its clusters."""
    metrics.describe_flow(flow, source, target)
    metrics.remove(instruments.FLOW_INFO, flow=flow)
    settings = {"delivery": delivery, "exactly_once_by": exactly_once_by, "naming": naming}
    metrics.set(instruments.FLOW_INFO, 1, flow=flow, **settings, version=VERSION)


def record_outcomes(metrics: MetricStore, flow: str, results: Iterable[RangeResult]) -> None:
    """Record how the partitions of a period have ended."""
    for result in results:
        metrics.add(instruments.OUTCOMES, 1, flow=flow, outcome=result.outcome.value)


def record_counts(metrics: MetricStore, flow: str, results: Iterable[RangeResult]) -> None:
    """Record what was copied, skipped, lost and repeated."""
    by_topic: dict[str, Counter[str]] = {}
    for result in results:
        sums = by_topic.setdefault(result.topic, Counter())
        sums.update(records=result.records, bytes=result.bytes, retries=result.retries)
        _record_batches(metrics, flow, result)
        for expiry in result.expiries:
            phase, cause = expiry.get("phase", ""), expiry.get("cause", "")
            metrics.add(instruments.EXPIRIES, 1, flow=flow, topic=result.topic, phase=phase, cause=cause)
    for topic, sums in by_topic.items():
        metrics.add(instruments.RECORDS, sums["records"], flow=flow, topic=topic)
        metrics.add(instruments.BYTES, sums["bytes"], flow=flow, topic=topic)
        metrics.add(instruments.RETRIES, sums["retries"], flow=flow, topic=topic)


def _record_batches(metrics: MetricStore, flow: str, result: RangeResult) -> None:
    # Several small source batches may be merged into one: then fewer batches are written than were re-encoded.
    deep = sum(result.deep.values())
    metrics.add(instruments.BATCHES, max(0, result.batches - deep), flow=flow, path="shallow", reason="")
    for reason, count in result.deep.items():
        metrics.add(instruments.BATCHES, count, flow=flow, path="deep", reason=reason)
    for reason, count in result.skipped.items():
        metrics.add(instruments.SKIPPED, count, flow=flow, reason=reason)
    for reason, count in result.aside.items():
        metrics.add(instruments.ASIDE, count, flow=flow, topic=result.topic, reason=reason)
    for kind, count in result.gaps.items():
        metrics.add(instruments.GAPS, count, flow=flow, kind=kind)
    for outcome, count in result.failures.items():
        metrics.add(instruments.FAILURES, count, flow=flow, topic=result.topic, outcome=outcome)
    for loss in result.target_losses:
        metrics.add(instruments.TARGET_LOSSES, 1, flow=flow, topic=result.topic, kind=str(loss.get("kind")))


def record_task(metrics: MetricStore, flow: str, report: TaskReport) -> None:
    """Record the measurements of a task."""
    metrics.merge(instruments.COMMIT_DURATION, report.commits, flow=flow)
    metrics.merge(instruments.LATENCY, report.latency, flow=flow)
    elapsed_ms = max(1, report.ended_ms - report.began_ms)
    for side, network in report.networks.items():
        busy = round(network.busy_ms / elapsed_ms, 4)
        metrics.set(instruments.BUSY, busy, flow=flow, side=side, task=report.task)
        for api, meter in network.requests.items():
            attributes = {"flow": flow, "side": side, "messaging.system": "kafka", "messaging.operation.name": api}
            metrics.merge(instruments.REQUEST_DURATION, meter.took, **attributes)
            metrics.add(instruments.REQUESTS_LOST, meter.lost, **attributes)
            metrics.add(instruments.THROTTLED, meter.throttled_ms / 1000, **attributes)
    for instrument, peak in (
        (instruments.BUFFER, "buffer"),
        (instruments.BUFFER_SIZE, "buffer_size"),
        (instruments.IN_FLIGHT, "in_flight"),
        (instruments.HELD, "held"),
    ):
        metrics.set(instrument, report.peaks.get(peak), flow=flow, task=report.task)
    for phase, ms in report.phases.items():
        metrics.add(instruments.PHASES, ms / 1000, flow=flow, phase=phase)
    for signal, count in report.dropped.items():
        metrics.add(instruments.DROPPED, count, signal=signal)


def record_period(metrics: MetricStore, flow: str, *, outcome: str, ended_ms: int, took_ms: int) -> None:
    """Record a period that ended at ``ended_ms`` since 1970, ``took_ms`` after its planning began."""
    metrics.add(instruments.PERIODS, 1, flow=flow, outcome=outcome)
    metrics.set(instruments.LAST_PERIOD, ended_ms / 1000, flow=flow)
    metrics.merge(instruments.PERIOD_DURATION, _histogram_of(took_ms), flow=flow)


def record_plan(metrics: MetricStore, flow: str, took_ms: int) -> None:
    """Record a plan that took so long."""
    metrics.merge(instruments.PLAN_DURATION, _histogram_of(took_ms), flow=flow)


def _histogram_of(ms: int) -> Histogram:
    histogram = Histogram()
    histogram.add(max(0, ms))
    return histogram


def record_state(metrics: MetricStore, flow: str, state: str | None) -> None:
    """Replace the state of a flow of a stream; None: it has ended, and nothing of it goes on."""
    metrics.remove(instruments.FLOW_STATE, flow=flow)
    if state is None:
        metrics.remove_gauges(flow=flow)
    else:
        metrics.set(instruments.FLOW_STATE, 1, flow=flow, state=state)


def record_groups(metrics: MetricStore, flow: str, groups: GroupsSummary | None) -> None:
    """Replace the counts of a flow's consumer groups, and for how long some group has not been in step.

    Groups that are only read follow nothing: they have no values, as those of a flow that has none.
    """
    metrics.remove(instruments.GROUPS, flow=flow)
    metrics.remove(instruments.GROUPS_TIME, flow=flow)
    if groups is not None and groups.sync:
        for state, count in {"in-step": groups.in_step, **groups.by_reason}.items():
            metrics.set(instruments.GROUPS, count, flow=flow, state=state)
        metrics.set(instruments.GROUPS_TIME, groups.oldest_ms / 1000, flow=flow)


def record_sync(metrics: MetricStore, flow: str, state: SyncState | None) -> None:
    """Replace the counts of what is not in step between both sides of a flow; None: nothing is compared."""
    metrics.remove(instruments.DRIFT, flow=flow)
    metrics.remove(instruments.LAST_SYNC, flow=flow)
    for kind, of_kind in () if state is None else state.kinds.items():
        for reason, count in (of_kind.by_reason or {"none": 0}).items():
            metrics.set(instruments.DRIFT, count, flow=flow, kind=kind, reason=reason)
        if of_kind.synced_ms:
            metrics.set(instruments.LAST_SYNC, of_kind.synced_ms / 1000, flow=flow, kind=kind)


def record_evidence(metrics: MetricStore, flow: str, evidence: Evidence) -> None:
    """Replace what the last verification and the last rehearsal of a flow came to."""
    if (found := evidence.verification) is not None:
        metrics.set(instruments.PROVED, found.equal_ms / 1000, flow=flow)
        uncompared = sum(found.outcomes.get(outcome, 0) for outcome in ("unknown", "not compared"))
        metrics.set(instruments.UNPROVED, uncompared + bool(found.error), flow=flow)
        metrics.set(instruments.INCOMPLETE, found.incomplete, flow=flow)
        metrics.remove(instruments.PROVED_TO, flow=flow)
        for topic, offset in found.equal_to.items():
            metrics.set(instruments.PROVED_TO, offset, flow=flow, topic=topic)
        metrics.remove(instruments.PROOF_DIFFERENCES, flow=flow)
        for kind, count in (found.differing or {"none": 0}).items():
            metrics.set(instruments.PROOF_DIFFERENCES, count, flow=flow, kind=kind)
    if (rehearsal := evidence.rehearsal) is not None:
        metrics.set(instruments.REHEARSED, rehearsal.time_ms / 1000, flow=flow)
        held = rehearsal.groups_not_ready + len(rehearsal.blockers)
        metrics.set(instruments.NOT_READY, 0 if rehearsal.ready else max(1, held), flow=flow)
        metrics.set(instruments.RECOVERY_POINT, rehearsal.point_seconds, flow=flow)
        metrics.set(instruments.RECOVERY_TIME, rehearsal.time_seconds, flow=flow)


def record_index_size(metrics: MetricStore, flow: str, size: int | None) -> None:
    """Record the size of a flow's offset index in bytes; None if it is not known."""
    metrics.set(instruments.INDEX_SIZE, size, flow=flow)
