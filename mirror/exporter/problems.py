"""What is wrong with a flow now, the worst first, and what to do about it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.causes import AWAY
from mirror.spark.status.condition import FlowCondition
from mirror.telemetry.lag.lags import LagState
from mirror.telemetry.report import advice
from mirror.telemetry.report.advice import ADVICE, Advice, AdviceStep, Level
from mirror.telemetry.report.format import listed, moment, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.exporter.readings import FlowReading
    from mirror.spark.status.condition import Condition
    from mirror.spark.status.flow_status import FlowStatus, PartitionStatus

MAX_MEMBERS: Final = 8
_EXPIRED: Final = re.compile(r"\bexpired \(([^,()]*), ([^()]*)\)")
_STATUS: Final = "mirror status --flow {flow}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem."""

    level: Level
    title: str
    meaning: str = ""
    steps: tuple[AdviceStep, ...] = ()
    members: tuple[tuple[str, str], ...] = ()
    """Partitions, and why each is affected."""
    more: int = 0
    """Further partitions."""


def problems_of(reading: FlowReading, now_ms: int) -> list[Problem]:
    """Return the problems of a flow."""
    found = list(_of_reading(reading, now_ms))
    if reading.status is not None and reading.condition is not None:
        latch = reading.status.latch
        found += _of_condition(reading.condition, reading.flow, now_ms, is_latched=latch is not None and latch.is_held)
        found += _of_partitions(reading.status)
        found += _of_status(reading.status, now_ms)
    return sorted(found, key=lambda one: list(Level).index(one.level))


def _of_reading(reading: FlowReading, now_ms: int) -> Iterator[Problem]:
    away = {} if reading.status is None else reading.status.away
    age = f"; what is known is {span(now_ms - reading.lags_ms)} old" if reading.lags_ms else ""
    for name, line in away.items():
        steps = (AdviceStep(f"{AWAY.remedy[0].upper()}{AWAY.remedy[1:]}.", "mirror doctor"),)
        title = f"Cluster {name} does not answer: {AWAY.effect}"
        yield Problem(level=Level.SERIOUS, title=title, meaning=f"{line}{age}", steps=steps)
    if reading.error and not away:
        step = AdviceStep("Read it from here, with all of the error.", _STATUS.format(flow=reading.flow))
        yield Problem(level=Level.SERIOUS, title="It cannot be read", meaning=f"{reading.error}{age}", steps=(step,))


def _of_condition(condition: Condition, flow: str, now_ms: int, *, is_latched: bool) -> Iterator[Problem]:
    start = f"mirror stream --flow {flow}" if condition.follows else f"mirror run --flow {flow}"
    match condition.name:
        case FlowCondition.GONE:
            steps = (
                AdviceStep("See what has ended its driver: its host, and its log in the report folder."),
                AdviceStep("Start it again: it goes on where it stopped, and nothing is copied twice.", start),
            )
            yield Problem(level=Level.CRITICAL, title="Nothing copies it", meaning=condition.reason, steps=steps)
        case FlowCondition.REFUSED:
            step = AdviceStep(
                "Correct what the reason names; a stream checks it again by itself.", "mirror check-config"
            )
            yield Problem(level=Level.CRITICAL, title="It is refused", meaning=condition.reason, steps=(step,))
        case FlowCondition.BACKING_OFF:
            until_ms = condition.until_ms
            again = "" if until_ms is None else f", the next time in {span(max(0, until_ms - now_ms))}"
            step = AdviceStep("If the reason stays, see what keeps it from working.", f"mirror doctor --flow {flow}")
            title = f"It has failed, and is tried again by itself{again}"
            yield Problem(level=Level.SERIOUS, title=title, meaning=condition.reason, steps=(step,))
        case FlowCondition.HELD:
            command = f"mirror release {flow}" if is_latched else f"mirror stop --resume --flow {flow}"
            step = AdviceStep("Once it may go on, begin it again.", command)
            yield Problem(level=Level.WARNING, title="It is held", meaning=condition.reason, steps=(step,))
        case FlowCondition.NONE:
            step = AdviceStep("Start it, or correct its schedule.", start)
            yield Problem(level=Level.WARNING, title="No run of it has reported anything", steps=(step,))
        case FlowCondition.ENDED if not condition.is_complete:
            steps = (
                AdviceStep("See the run's log and report; the next run goes on where it stopped."),
                AdviceStep("Run it now.", start),
            )
            title = f"Its last run was not complete: {condition.reason or 'the reason is not known'}"
            yield Problem(level=Level.SERIOUS, title=title, steps=steps)


def _of_partitions(status: FlowStatus) -> Iterator[Problem]:
    grouped: dict[str, tuple[Advice, list[PartitionStatus]]] = {}
    for one in status.partitions:
        if one.lag.state.unhealthy:
            found = _advice_about(one)
            grouped.setdefault(found.title, (found, []))[1].append(one)
    for general, members in grouped.values():
        first = members[0]
        found = advice.filled_in(general, status.flow, first.topic, first.target_topic, first.partition)
        yield Problem(
            level=found.level,
            title=found.title,
            meaning=found.meaning,
            steps=found.steps,
            members=tuple(_member(one) for one in members[:MAX_MEMBERS]),
            more=max(0, len(members) - MAX_MEMBERS),
        )
    open_ = [one.withheld for one in status.partitions if one.withheld is not None and one.withheld.is_noteworthy]
    if open_:
        oldest = max(open_, key=lambda one: one.age_ms)
        found = advice.withheld(oldest)
        yield Problem(level=found.level, title=found.title, meaning=found.meaning, steps=found.steps)


def _advice_about(one: PartitionStatus) -> Advice:
    line = "" if one.trouble is None else one.trouble.line
    expiry = _EXPIRED.search(line)
    match one.lag.state:
        case LagState.NO_LEADER:
            return ADVICE["failed source without leader"]
        case LagState.FALLING_BEHIND:
            return ADVICE["behind"]
        case LagState.LOSING:
            return ADVICE["failed retention"]
        case LagState.STUCK if expiry is not None:
            return advice.expired(expiry[2])
        case LagState.STUCK if not line:
            return ADVICE["stuck"]
        case _:
            return ADVICE[advice.key_of("failed", line)]


def _member(one: PartitionStatus) -> tuple[str, str]:
    left = "" if one.lag.records is None else f"{one.lag.records:,} records to copy"
    line = "" if one.trouble is None else one.trouble.line
    return f"{one.topic}-{one.partition}", "; ".join(filter(None, [one.lag.state.value, left, line]))


def _of_status(status: FlowStatus, now_ms: int) -> Iterator[Problem]:
    if status.mirrormaker is not None:
        yield Problem(level=Level.CRITICAL, title="MirrorMaker 2 copies again", meaning=status.mirrormaker)
    if status.unread:
        title = "What its runs report is missing or out of date"
        yield Problem(level=Level.WARNING, title=title, meaning=status.unread)
    yield from _of_groups(status)
    for kind, state in () if status.sync is None else status.sync.kinds.items():
        if not state.in_step:
            step = AdviceStep("See each difference and its reason.", f"mirror drift --flow {status.flow}")
            title = f"{kind} not in step: {state.words()}"
            yield Problem(level=Level.WARNING, title=title, meaning=f"as of {moment(state.time_ms)}", steps=(step,))
    yield from _of_evidence(status, now_ms)


def _of_groups(status: FlowStatus) -> Iterator[Problem]:
    groups = status.groups
    if groups is None or not (groups.problems or groups.held):
        return
    step = AdviceStep("See where each group is, and why.", f"mirror groups --flow {status.flow}")
    held = tuple((one.group, f"{one.words}: {one.detail}") for one in groups.held[:MAX_MEMBERS])
    level = Level.WARNING if groups.problems or any(one.reasons for one in groups.held) else Level.NOTE
    yield Problem(
        level=level,
        title=f"Consumer groups: {groups.counts()}",
        meaning="; ".join(groups.problems[:2]),
        steps=(step,),
        members=held,
        more=groups.more + max(0, len(groups.held) - MAX_MEMBERS),
    )


def _of_evidence(status: FlowStatus, now_ms: int) -> Iterator[Problem]:
    verified, rehearsed = status.evidence.verification, status.evidence.rehearsal
    if verified is not None and verified.differing:
        step = AdviceStep("See the records that differ.", f"mirror verify --flow {status.flow} --hex")
        meaning = f"{listed(dict(verified.differing))}, {span(now_ms - verified.time_ms)} ago"
        yield Problem(level=Level.CRITICAL, title="The target differs", meaning=meaning, steps=(step,))
    elif verified is not None and verified.error:
        yield Problem(level=Level.WARNING, title="The last verification failed", meaning=verified.error)
    if rehearsed is not None and not rehearsed.ready:
        step = AdviceStep("See what is not ready, and why.", f"mirror rehearse --flow {status.flow}")
        title = f"Consumers could not switch to the target {span(now_ms - rehearsed.time_ms)} ago"
        yield Problem(level=Level.NOTE, title=title, steps=(step,))
