"""What is known of each partition of a flow: its lag and state, its errors, its way. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way_notes import configured_reason
from mirror.relay.progress.gaps import Gap, GapKind
from mirror.relay.progress.target_loss import loss_text
from mirror.spark.ledger.status_table import ERRORS_KEPT_MS, LastError, last_error
from mirror.spark.status.flow_status import PartitionStatus
from mirror.telemetry.lag.lags import STUCK_AFTER_S, Lag, LagState, LagTracker, uncopied

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig
    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.ledger.status_table import StatusTable
    from mirror.spark.status.flow_view import FlowView
    from mirror.telemetry.lag.offset_history import PartitionOffsets

    Results = Mapping[TopicPartition, tuple[RangeResult, int]]
    """The last result of source partitions, and when it was reported (ms since 1970)."""


def failures_of(flow: FlowConfig, observation: FlowView, results: Results) -> dict[TopicPartition, LastError]:
    """Return the errors of partitions that cannot be copied now, or failed and have made no progress since."""
    gaps = observation.gaps.items() if flow.on_gap == "fail" else ()
    lost = observation.lost_copies if flow.on_target_recreated == "fail" else {}
    seen = {tp: str(gap) for tp, gap in gaps if gap.kind is not GapKind.RETENTION} | lost | observation.obstacles
    now = {tp: LastError(line, observation.time_ms) for tp, line in seen.items()}
    return reported_failures(observation, results) | now


def reported_failures(observation: FlowView, results: Results) -> dict[TopicPartition, LastError]:
    """Return the errors of partitions that failed and have made no progress since."""
    progress = observation.progress
    return {
        tp: LastError(result.error, time_ms)
        for tp, (result, time_ms) in results.items()
        if result.outcome is Outcome.FAILED and result.error is not None
        if tp in observation.offsets and (tp not in progress or progress[tp].time_ms <= time_ms)
    }


def lags_of(
    tracker: LagTracker,
    observation: FlowView,
    retention_ms: Mapping[str, int | None],
    failures: Collection[TopicPartition],
    now_ms: int,
) -> dict[TopicPartition, Lag]:
    """Return the lags at ``now_ms`` (since 1970), after the observation was added to the samples of ``tracker``."""
    tracker.add_sample(observation.time_ms, observation.offsets)
    # Between scheduled runs nothing advances, and nothing is stuck.
    stuck_after_s = math.inf if observation.run is None else STUCK_AFTER_S
    lags = tracker.estimates(now_ms, retention_ms, stuck_after_s=stuck_after_s)
    lags |= {tp: _lag_with_gap(lags[tp], gap, observation.offsets[tp]) for tp, gap in observation.gaps.items()}
    for tp, lag in lags.items():
        if lag.state is LagState.NOT_BEGUN or tp in observation.lost_copies:
            lags[tp] = uncopied(lag, observation.firsts.get(tp), observation.offsets[tp].end, LagState.NOT_BEGUN)
    # Without a leader it is not known how far behind they are, and what had failed may not fail again.
    failed = (tp for tp in failures if lags[tp].state not in {LagState.NO_LEADER, LagState.LOSING})
    return lags | {tp: lags[tp]._replace(state=LagState.FAILED) for tp in failed}


def _lag_with_gap(lag: Lag, gap: Gap, offsets: PartitionOffsets) -> Lag:
    """Return the lag of a partition whose copy cannot resume at its progress, because of a gap.

    If the topic was recreated, all of its records are to be copied. If its log was truncated, it is not known how many
    records it has got since.
    """
    if gap.kind is GapKind.RETENTION:
        return lag._replace(state=LagState.LOSING)
    recreated = gap.kind is GapKind.RECREATED and offsets.end is not None
    records = max(0, (offsets.end or 0) - gap.resume) if recreated else None
    return Lag(records, None, None, None, None, None, LagState.STUCK)


def troubles_of(
    observation: FlowView,
    lags: Mapping[TopicPartition, Lag],
    failures: Mapping[TopicPartition, LastError],
    results: Results,
) -> dict[TopicPartition, LastError]:
    """Return the errors of unhealthy partitions; those that are observed now replace reported ones."""
    reported = {tp: last_error(*results[tp]) for tp, lag in lags.items() if lag.state.unhealthy and tp in results}
    gaps = {tp: str(gap) for tp, gap in observation.gaps.items()}
    lines = observation.unanswered | gaps | observation.lost_copies | observation.obstacles
    return {
        **{tp: error for tp, error in reported.items() if error is not None},
        **failures,
        **{tp: LastError(line, observation.time_ms) for tp, line in lines.items()},
    }


def statuses_of(
    flow: FlowConfig,
    observation: FlowView,
    table: StatusTable,
    results: Results,
    lags: Mapping[TopicPartition, Lag],
    troubles: Mapping[TopicPartition, LastError],
) -> list[PartitionStatus]:
    """Return the status of each partition that has a lag."""
    found = []
    for tp, lag in lags.items():
        offsets, progress = observation.offsets[tp], observation.progress.get(tp)
        result = results[tp][0] if tp in results else None
        way, reason = _way_of(flow, observation, tp, result)
        past = table.errors.get(tp)
        found.append(
            PartitionStatus(
                topic=tp.topic,
                partition=tp.partition,
                target_topic=flow.target_topic(tp.topic),
                earliest=offsets.earliest,
                end=offsets.end,
                progress=offsets.progress,
                committed_ms=None if progress is None or not progress.time_ms else progress.time_ms,
                lag=lag,
                trouble=troubles.get(tp),
                last_error=past if past and observation.time_ms - past.time_ms <= ERRORS_KEPT_MS else None,
                high_watermark=observation.high_watermarks.get(tp),
                withheld=observation.withheld.get(tp),
                way=way,
                way_reason=reason,
                target_loss=loss_text(result.target_losses[-1]) if result and result.target_losses else "",
            )
        )
    return found


def _way_of(flow: FlowConfig, observation: FlowView, tp: TopicPartition, result: RangeResult | None) -> tuple[str, str]:
    """Return the way of a partition with progress, and the reason that is known for it; none at least once."""
    progress = observation.progress.get(tp)
    if progress is None or not flow.exactly_once:
        return "", ""
    if flow.exactly_once_by == progress.way:
        return progress.way.value, configured_reason(flow.exactly_once_by)
    return progress.way.value, result.way_reason if result is not None and result.way == progress.way.value else ""
