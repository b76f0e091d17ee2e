"""Rehearses a flow: what would happen if consumers of its source switched to its target now. Changes nothing.

::

    groups of both sides, offset index ──GroupSync──┐
    progress, ends of the source ──FlowObserver─────┼─► decision ─► Rehearsal
    topics, configurations, ACLs ──compare──────────┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.config.flow_rules import source_options
from mirror.groups.commit_decision import Reason
from mirror.groups.summary import counted
from mirror.groups.sync import GroupSync
from mirror.rehearsal.advice import Advice
from mirror.rehearsal.coverage import Waivers
from mirror.rehearsal.limits import over_limits
from mirror.rehearsal.readiness import Seen, group_of, in_order, rehearse_partition
from mirror.rehearsal.values import Blocker, GroupRehearsal, Kind, Limits, Rehearsal
from mirror.runtime.clock import SystemClock
from mirror.spark.aside_topic import AsideTopic
from mirror.spark.ledger.status_table import read_reported
from mirror.spark.planning.log_sizes import LogSpan, sizes_of
from mirror.spark.preflight.drift import compare
from mirror.spark.preflight.flow_groups import open_sync, rules_of
from mirror.spark.rehearsing.backlogs import Missing, read_backlogs
from mirror.spark.rehearsing.couplings import coupled_topics
from mirror.spark.rehearsing.coverage import coverage, others_in_front
from mirror.spark.rehearsing.recovery import recovery_time
from mirror.spark.rehearsing.sides import blockers_of, notes_of
from mirror.spark.rehearsing.target_logs import log_bounds
from mirror.spark.status.flow_view import FlowObserver, FlowView
from mirror.spark.status.partition_status import reported_failures

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.positions import GroupPosition, GroupState
    from mirror.groups.translation.logs import PartitionLogs
    from mirror.observation import Side, Sides
    from mirror.rehearsal.values import Backlog
    from mirror.relay.offsets.copy_count import Move
    from mirror.spark.ledger.status_table import LastError

UPPER_BOUND: Final = (
    "records that have not arrived are counted by offsets: markers of transactions, aborted records, and offsets that"
    " compaction has removed are among them, so there may be fewer"
)
_ESTIMATED: Final = "their bytes are estimated from the sizes of the logs (compressed)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for."""

    config: MirrorConfig
    flow: FlowConfig
    limits: Limits = field(default_factory=Limits)
    groups: Collection[str] = ()
    """Only these groups; empty: all that the flow includes."""
    waivers: Waivers = field(default_factory=Waivers)
    together: Collection[str] = ()
    """The flows whose clients switch at once. Topics that transactions couple to those of ``flow`` are looked for if
    there are any: leaders send much."""


def rehearse(request: Request, sides: Sides) -> Rehearsal:
    """Read both clusters of a flow, and decide. Raises FlowError if no topic matches, KafkaError."""
    flow, config = request.flow, request.config
    with open_sync(config, flow, only=request.groups) as sync:
        report = sync.round(write=False, keep_logs=True)
        # Only now: so no group is behind the end, and nothing has arrived that the index does not have.
        sides = sides.again()  # the groups may take minutes
        reported, unread = read_reported(config.clusters[flow.target].client_options(), flow.name)
        seen = FlowObserver(flow, SystemClock().unix_ms).observe(sides, reported)
        ends = log_bounds(sides.target, {one.target for state in report.groups.values() for one in state.positions})
        advice = Advice(flow.name, flow.source, flow.target, syncs=flow.groups.sync)
        states = report.groups
        groups = [_group(state, sync, seen, ends, advice, request.limits) for _, state in sorted(states.items())]
        if any(one.skipped for one in groups):
            states = _read_again(states, sync.round(write=False, keep_logs=True).groups)
            groups = [_group(state, sync, seen, ends, advice, request.limits) for _, state in sorted(states.items())]
        backlogs, complete = _backlogs(config, flow, sides.source, seen)
        uncovered, waived = request.waivers.apply(
            [
                *coverage(config, flow, sides, seen.offsets, request.groups),
                *others_in_front(flow, states.values(), sync.logs),
                *_aside(config, flow),
            ]
        )
        drift = compare(config, flow, sides).drift
        rehearsal = Rehearsal(
            flow=flow.name,
            old=flow.source,
            new=flow.target,
            time_ms=seen.time_ms,
            groups=in_order(groups),
            backlogs=backlogs,
            partitions=len(seen.offsets),
            ages_are_complete=complete,
            blockers=(
                *problems_of(report.problems),
                *absent(request, states),
                *uncovered,
                *_partitions(flow, seen, reported_failures(seen, reported.results())),
                *blockers_of(flow, drift),
            ),
            notes=(
                *(_about_backlogs(flow) if any(one.records for one in backlogs) else ()),
                *_withheld(seen),
                *unread,
                *notes_of(flow, drift),
                *_without_groups(flow),
                *(coupled_topics(config, flow, sides.source, together=request.together) if request.together else ()),
                *waived,
            ),
            limits=request.limits,
        )
    recovery = recovery_time(flow, reported.rate, rehearsal.bytes, is_running=is_running(seen))
    return over_limits(replace(rehearsal, recovery=recovery))


# --- groups


# Invariant: A group whose consumers go on while it is read is not said to skip what they have read meanwhile.
# Test: tests/rehearsal/test_command_on_fakes.py::test_a_group_that_a_running_flow_brings_on_meanwhile_is_ready
def _read_again(before: Mapping[str, GroupState], after: Mapping[str, GroupState]) -> dict[str, GroupState]:
    """Return the groups with their positions on the source of ``after``, and those on the target of ``before``.

    A round reads the source first, and what a run of the flow brings to the target in between would look skipped.
    """
    there = {(name, one.target): one.target_offset for name, state in before.items() for one in state.positions}
    return {
        name: replace(
            state,
            positions=tuple(
                replace(one, target_offset=there.get((name, one.target), one.target_offset)) for one in state.positions
            ),
        )
        for name, state in after.items()
    }


def _group(
    state: GroupState,
    sync: GroupSync,
    seen: FlowView,
    ends: Mapping[TopicPartition, tuple[int, int]],
    advice: Advice,
    limits: Limits,
) -> GroupRehearsal:
    if state.reason is Reason.NO_CONSUMERS:
        return group_of(state.group, [], "", f"{state.reason}: {state.detail}", advice)
    if state.reason is not None:
        return group_of(state.group, [], state.reason.value, state.detail, advice)
    moves = [
        rehearse_partition(
            _seen(one, seen, ends.get(one.target)), partial(_moved, sync.logs.get(one.target)), advice, limits
        )
        for one in state.positions
    ]
    return group_of(state.group, moves, "", "", advice)


def _moved(logs: PartitionLogs | None, offset: int, target_offset: int) -> Move | None:
    return None if logs is None else logs.moved(offset, target_offset)


def _seen(one: GroupPosition, seen: FlowView, log: tuple[int, int] | None) -> Seen:
    offsets = seen.offsets.get(one.source)
    # The group has no position there: no broker has to answer, but the flow has to create the topic.
    is_missing = log is None and one.reason is Reason.NO_PARTITION
    unread = one.reason in {Reason.UNAVAILABLE, Reason.UNAUTHORIZED, Reason.REFUSED}
    return Seen(
        old=one.source,
        new=one.target,
        old_offset=one.continued_at,
        new_offset=one.target_offset,
        log=log,
        copied_to=None if offsets is None else seen.copied_to(one.source),
        old_end=None if offsets is None else offsets.end,
        has_old_position=one.source_offset is not None or unread,
        passed=one.passed,
        reason="" if one.reason is None or is_missing else one.reason.value,
        detail=one.detail,
    )


def problems_of(lines: Iterable[str]) -> Iterable[Blocker]:
    """Yield what keeps groups from being looked at."""
    for line in lines:
        yield Blocker(kind=Kind.GROUP, name="", reason=line, action="rehearse again once the broker answers")


def absent(request: Request, found: Collection[str]) -> Iterable[Blocker]:
    """Yield the groups that were named and that are not there."""
    rules = rules_of(request.flow)
    for name in sorted(set(request.groups) - set(found)):
        why = "it has no offsets of topics that the flow copies"
        if not rules.includes(name):
            why = f"flow {request.flow.name} does not include it (include, exclude)"
        yield Blocker(kind=Kind.GROUP, name=name, reason=why, action="check the name, and the flow's groups section")


def _without_groups(flow: FlowConfig) -> Iterable[str]:
    if not flow.groups.sync:
        yield (
            f"flow {flow.name} brings no positions of consumer groups to {flow.target}: add the section"
            f" [flows.{flow.name}.groups]"
        )


# --- what has not arrived


def _backlogs(config: MirrorConfig, flow: FlowConfig, source: Side, seen: FlowView) -> tuple[tuple[Backlog, ...], bool]:
    """Return what has not arrived, and whether the age of the oldest record of all partitions is known."""

    def sizes(behind: Collection[TopicPartition]) -> Mapping[TopicPartition, float]:
        logs = {
            tp: LogSpan(seen.leaders[tp], seen.offsets[tp].earliest or 0, seen.offsets[tp].end or 0) for tp in behind
        }
        return sizes_of(source, logs).bytes_per_offset

    partitions = {
        tp: Missing(
            TopicPartition(flow.target_topic(tp.topic), tp.partition),
            not_arrived_from(seen, tp),
            offsets.end,
        )
        for tp, offsets in seen.offsets.items()
    }
    return read_backlogs(source_options(config, flow), partitions, sizes)


def not_arrived_from(seen: FlowView, tp: TopicPartition) -> int | None:
    """Return from which source offset on a partition has not arrived; None if it is not known."""
    start = seen.copied_to(tp)
    return None if start is None else max(start, seen.offsets[tp].earliest or 0)


def _about_backlogs(flow: FlowConfig) -> Iterable[str]:
    yield UPPER_BOUND
    if flow.only_local:
        yield f"records that came from {flow.target} are counted, too, though they are not copied back"
    yield _ESTIMATED


def _partitions(flow: FlowConfig, seen: FlowView, failures: Mapping[TopicPartition, LastError]) -> Iterable[Blocker]:
    """Yield the partitions that cannot be copied as they are, and those that have failed."""
    run = f"run flow {flow.name}"
    others = failures.keys() - seen.unanswered.keys() - seen.gaps.keys() - seen.obstacles.keys()
    for tp in sorted(others):
        action = f"mend what it says: flow {flow.name} copies nothing of the partition"
        yield Blocker(kind=Kind.PARTITION, name=str(tp), reason=f"failed: {failures[tp].line}", action=action)
    for tp, why in sorted(seen.unanswered.items()):
        yield Blocker(kind=Kind.PARTITION, name=str(tp), reason=why, action="rehearse again once its leader answers")
    for tp, gap in sorted(seen.gaps.items()):
        yield Blocker(kind=Kind.PARTITION, name=str(tp), reason=str(gap), action=f"{run}: it says how to go on")
    for tp, offsets in sorted(seen.offsets.items()):
        is_empty = offsets.end is None or offsets.end <= (offsets.earliest or 0)
        if offsets.progress is None and not is_empty and tp not in others:
            reason = seen.obstacles.get(tp, "nothing of it has been copied yet")
            yield Blocker(kind=Kind.PARTITION, name=str(tp), reason=reason, action=run)


def _aside(config: MirrorConfig, flow: FlowConfig) -> Iterable[Blocker]:
    """Yield the records that went aside, and that consumers of the new cluster would not get."""
    left = [one for one in AsideTopic(config, flow).entries() if one.settlement is None] if flow.aside else []
    if left:
        reason = f"{counted(len(left), 'record')} that {flow.target} did not take went there"
        action = f"mirror aside --flow {flow.name} lists them, and copies them again; or --waive {flow.aside}"
        yield Blocker(kind=Kind.TOPIC, name=flow.aside, reason=reason, action=action)


def _withheld(seen: FlowView) -> Iterable[str]:
    if withheld := sum(one.records for one in seen.withheld.values()):
        yield f"{withheld} more records are behind open transactions of the source: no consumer reads them yet"


def is_running(seen: FlowView) -> bool:
    """Whether a run of the flow is there."""
    return seen.run is not None and not seen.run.is_dead(seen.time_ms)
