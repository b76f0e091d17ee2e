"""Rehearses the way back of a flow: what would happen if consumers of its target switched to its source now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.config.flow_rules import target_options
from mirror.errors import KafkaError
from mirror.groups.commit_decision import Reason, passed_text
from mirror.groups.translation.both_directions import BothDirectionsPartition
from mirror.observation import Side, Sides
from mirror.rehearsal.advice import Advice
from mirror.rehearsal.coverage import left_behind
from mirror.rehearsal.limits import over_limits
from mirror.rehearsal.readiness import Seen, group_of, in_order, rehearse_partition
from mirror.rehearsal.values import Blocker, Kind, Rehearsal
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.status_table import StatusTable
from mirror.spark.planning.flow_observation import read_logs
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight.drift import compare
from mirror.spark.preflight.flow_groups import open_way_back
from mirror.spark.rehearsing.backlogs import Missing, read_backlogs
from mirror.spark.rehearsing.coverage import coverage_back
from mirror.spark.rehearsing.rehearse import UPPER_BOUND, Request, absent, is_running, problems_of
from mirror.spark.rehearsing.sides import blockers_of, notes_of
from mirror.spark.rehearsing.tails import Tail, read_tails
from mirror.spark.rehearsing.target_logs import CALL_TIMEOUT_MS, log_bounds
from mirror.spark.status.flow_view import FlowObserver

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.groups.back_positions import BackPosition
    from mirror.groups.translation.logs import PartitionLogs
    from mirror.rehearsal.values import Backlog
    from mirror.relay.offsets.copy_count import Move


_RECOVERY: Final = "how long the rest takes is said for the flow that copies it"
_NOT_COMPARED: Final = "topics, configurations and ACLs are not compared: no flow copies these topics back"


def rehearse_back(request: Request, sides: Sides) -> Rehearsal:
    """Read both clusters of a flow, and decide about the way back. Raises FlowError if no topic matches, KafkaError."""
    flow, config = request.flow, request.config
    with open_way_back(config, flow, only=request.groups) as way_back:
        positions, problems = way_back.read()
        source, target = sides = sides.again()  # the groups may take minutes
        seen = FlowObserver(flow, SystemClock().unix_ms).observe(sides, StatusTable())
        partitions = _partitions(flow, sides)
        others = {old: new for old, new in partitions.items() if new not in way_back.logs}
        logs = {**way_back.open(others), **way_back.logs}
        ends = _last_stable(target, [*partitions.values()])
        arrived = {new: _arrived(one, ends.get(new)) for new, one in logs.items()}
        bounds = log_bounds(source, {one.source for one in positions})
        runs = is_running(seen)
        tails = read_tails(config, flow, seen, {old: logs[new] for old, new in partitions.items() if new in logs})
        advice = Advice(flow.name, flow.target, flow.source, reverse=True)
        found: dict[str, list[BackPosition]] = {}
        for position in positions:
            found.setdefault(position.group, []).append(position)
        groups = [
            group_of(
                group,
                [
                    rehearse_partition(
                        _seen(one, bounds.get(one.source), arrived.get(one.target), ends.get(one.target)),
                        partial(_moved, logs.get(one.target), tails.get(one.source)),
                        advice,
                        request.limits,
                    )
                    for one in of_group
                ],
                "",
                "",
                advice,
            )
            for group, of_group in sorted(found.items())
        ]
        now_ms = SystemClock().unix_ms()
        sources = {new: old for old, new in partitions.items()}
        missing = {new: Missing(old, arrived[new], ends.get(new)) for new, old in sources.items() if new in logs}
        backlogs, complete = read_backlogs(target_options(config, flow), missing)
        backs = _flows_back(request, partitions)
        uncovered, waived = request.waivers.apply(
            [
                *coverage_back(config, flow, sides, backs, request.groups),
                *_not_copied_back(backlogs, logs),
                *left_behind({} if runs else tails, flow.name, flow.target, flow.source),
            ]
        )
    drifts = [(back, compare(config, back, Sides(target, source)).drift) for back in backs]
    rehearsal = Rehearsal(
        flow=flow.name,
        old=flow.target,
        new=flow.source,
        reverse=True,
        time_ms=now_ms,
        groups=in_order(groups),
        backlogs=backlogs,
        partitions=len(partitions),
        ages_are_complete=complete,
        blockers=(
            *problems_of(problems),
            *absent(request, found),
            *_not_known(backlogs, logs),
            *uncovered,
            *(blocker for back, drift in drifts for blocker in blockers_of(back, drift)),
        ),
        notes=(
            *([UPPER_BOUND] if backlogs else []),
            *(note for back, drift in drifts for note in notes_of(back, drift)),
            *([] if drifts else [_NOT_COMPARED]),
            *(
                [f"{flow.source} has records that flow {flow.name}, which runs, has still to copy"]
                if tails and runs
                else []
            ),
            _RECOVERY,
            *waived,
        ),
        limits=request.limits,
    )
    return over_limits(rehearsal)


def _flows_back(request: Request, partitions: Mapping[TopicPartition, TopicPartition]) -> list[FlowConfig]:
    """Return the flows that copy some of these topics of the target (values) back to those of the source (keys)."""
    flow = request.flow
    topics = {(old.topic, new.topic) for old, new in partitions.items()}
    others = [one for one in request.config.flows.values() if (one.source, one.target) == (flow.target, flow.source)]
    return [
        back
        for back in others
        if any(back.includes(copy) and back.target_topic(copy) == topic for topic, copy in topics)
    ]


def _partitions(flow: FlowConfig, sides: Sides) -> dict[TopicPartition, TopicPartition]:
    """Return the partitions of the topics that the flow copies and that the target has, by those of the source."""
    topics, there = sides.source.topics, sides.target.topics
    found = {}
    for name in select_topics(flow, topics):
        copy = there.get(flow.target_topic(name))
        for one in topics[name].partitions if copy is not None else ():
            if copy is not None and one.partition < len(copy.partitions):
                found[TopicPartition(name, one.partition)] = TopicPartition(copy.name, one.partition)
    return found


def _last_stable(side: Side, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    logs = read_logs(side, tps, CALL_TIMEOUT_MS) if tps else {}
    return {tp: logs[tp].end for tp in tps if logs[tp].exists and not logs[tp].error}


def _arrived(logs: PartitionLogs, end: int | None) -> int | None:
    """Return the target offset up to which the source has all records; None if that is not known.

    Where a flow copies back, it is that one's progress. Otherwise only copies are on the source: behind the last known
    one, what is on the target is not, markers of the copy's transactions excepted.
    """
    if logs.offsets is None or end is None:
        return None
    if isinstance(logs, BothDirectionsPartition):
        return logs.offsets.index.copied_to
    known = logs.offsets.index.known_target_end
    try:
        return end if not logs.offsets.records_between(known, end) else known
    except KafkaError:
        return None


def _moved(logs: PartitionLogs | None, tail: Tail | None, offset: int, source_offset: int) -> Move | None:
    if isinstance(logs, BothDirectionsPartition):  # it is opened as the flow that goes back sees it
        return logs.moved(offset, source_offset)
    found = None if logs is None else logs.moved_back(offset, source_offset)
    if found is None or tail is None:
        return found
    return found._replace(skipped=found.skipped.or_more(max(0, source_offset - tail.start)))


def _seen(one: BackPosition, log: tuple[int, int] | None, arrived: int | None, end: int | None) -> Seen:
    # A position that is due is not committed yet; what would be read with the present one is counted.
    passes = one.reason is None and one.passed > 0
    return Seen(
        old=one.target,
        new=one.source,
        old_offset=one.target_offset,
        new_offset=one.source_offset,
        log=log,
        copied_to=arrived,
        old_end=end,
        passed=one.passed,
        reason=Reason.PASSED if passes else "" if one.reason is None else one.reason.value,
        detail=passed_text(one.passed, "source") if passes else one.detail,
    )


def _not_known(backlogs: Iterable[Backlog], logs: Mapping[TopicPartition, PartitionLogs]) -> Iterable[Blocker]:
    """Yield the partitions of which it is not known what the source has."""
    for one in backlogs:
        if one.records is None:
            why = logs[one.old].problem or logs[one.old].unknown_because or "the end of its log could not be read"
            yield Blocker(
                kind=Kind.PARTITION, name=str(one.old), reason=why, action="rehearse again once its leader answers"
            )


def _not_copied_back(backlogs: Iterable[Backlog], logs: Mapping[TopicPartition, PartitionLogs]) -> Iterable[Blocker]:
    """Yield the partitions with records that no flow brings to the source."""
    for one in backlogs:
        if one.records is not None and not isinstance(logs[one.old], BothDirectionsPartition):
            yield Blocker(
                kind=Kind.PARTITION,
                name=str(one.old),
                reason=f"its records behind the last copy are not on {one.new.topic}, and no flow copies them there",
                action="configure a flow in the other direction; or --waive it, and leave them",
            )
