"""Decides how topics come back that the old cluster cannot continue: truncated, made again, or missing. Pure.

::

    flows of the way back held > deleted > created > flows begun > flows of the way back released

A topic that is deleted has another id when it is created: nothing that any flow has stored of its logs counts for the
new ones. The flow back copies the standby's log as a whole up to where the standby opened, of all producers, and local
records behind that. The flow ahead begins at the start of the new logs, where all is that copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mirror.errors import named
from mirror.switch.facts import GRACE_MS
from mirror.switch.machine import Act, Next, StepResult, Terms

if TYPE_CHECKING:
    from mirror.switch.facts import Ends
    from mirror.switch.record import FailbackRecord, Rebuild, SwitchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildFacts:
    """Live facts of the topics that cannot be continued, and are not rebuilt yet."""

    made: Mapping[str, Rebuild] = field(default_factory=dict)
    """How each one would be created."""
    obstacles: Mapping[str, str] = field(default_factory=dict)
    """Why one cannot be rebuilt."""
    back_is_free: bool = False
    """Whether a flow of the way back is not held."""
    begun: Collection[str] = ()
    """The topics that were created, and in which the flows of both directions begin."""


NOTHING_TO_REBUILD: Final = RebuildFacts()


def wanted(back: FailbackRecord, names: Collection[str], *, every: bool) -> list[str]:
    """Return the topics that a command rebuilds: those of ``names``, or every one, and what was begun before."""
    begun = {name for name, one in back.rebuilds.items() if not one.done_ms}
    return sorted({*back.broken} if every else begun | ({*names} & {*back.broken}))


def refusal(
    back: FailbackRecord, names: Collection[str], topics: Sequence[str], unexported: Collection[str], terms: Terms
) -> str:
    """Return why nothing is rebuilt; empty if ``topics`` may be."""
    if not terms.back:
        return f"[switches.{terms.name}] has no flow in back that copies topics home: add it"
    if others := sorted({*names} - {*back.broken} - {*back.rebuilds}):
        return f"{named('topic', others)}: not among those that cannot be continued, so it is not rebuilt"
    if early := sorted({*topics} & {*unexported}):
        return f"{named('topic', early)} with a tail that is not exported: mirror failback {terms.name} --export first"
    return ""


# Invariant: A topic is deleted only by the id that it had when its tail ended, behind the fence and its exported tail,
#   with the flows of both directions held; or if it is empty, and another one in its place.
# Test: tests/switch/failback/test_rebuilding.py::test_a_topic_is_deleted_only_by_the_id_behind_whose_tail_it_ends
# Test: tests/switch/failback/test_rebuild_model.py::test_nothing_is_lost_wherever_commands_are_killed
def rebuild(  # noqa: PLR0911 - one for each step
    record: SwitchRecord,
    facts: RebuildFacts,
    live: Mapping[str, str],
    ends: Mapping[str, tuple[Ends, ...]],
    topics: Sequence[str],
    now_ms: int,
) -> Next:
    """Return the next step; ``live`` has the ids of the topics that the old cluster has, ``ends`` their ends."""
    back = record.failback
    if stopped := [facts.obstacles[topic] for topic in topics if topic in facts.obstacles]:
        return Next(act=Act.END, record=record, why="; ".join(stopped))
    if not back.back_held_ms or facts.back_is_free:  # a person may have released one since
        return Next(act=Act.HOLD, record=record)
    plans = {topic: one for topic, one in back.rebuilds.items() if topic in topics and not one.done_ms}
    if unplanned := [topic for topic in topics if topic not in plans]:
        if lacking := [topic for topic in unplanned if topic not in facts.made]:
            why = f"how {named('topic', lacking)} is to be created cannot be read"
            return Next(act=Act.WAIT, record=record, why=why)
        new = {one: _doomed(facts.made[one], live.get(one, "")) for one in unplanned}
        return _store(record, new)
    if (others := _of_others(record, plans, live, ends)) is not None:
        return others
    if doomed(back, live):
        return Next(act=Act.DELETE, record=record)
    if missing(back, live):
        return Next(act=Act.CREATE, record=record)
    if now_ms - max(one.created_ms for one in plans.values()) <= GRACE_MS:
        why = "waiting until brokers have forgotten the positions in the deleted topics"
        return Next(act=Act.WAIT, record=record, why=why)
    if {*plans} - {*facts.begun}:
        return Next(act=Act.BEGIN, record=record)
    return Next(act=Act.REVERSE, record=record)


def _of_others(
    record: SwitchRecord,
    plans: Mapping[str, Rebuild],
    live: Mapping[str, str],
    ends: Mapping[str, tuple[Ends, ...]],
) -> Next | None:
    """Return what to do about topics that are neither those to delete nor those that were created, if there are any.

    An empty one may be that of a command that was killed before it could store the id, or of a client that asked for a
    missing topic, which has other configurations.
    """
    found = {one: live[one] for one, plan in plans.items() if live.get(one, "") not in _known(plan)}
    # One that was empty when its id was stored may have records since.
    ended = record.failback.topic_ids
    planned = [one for one, plan in plans.items() if live.get(one) == plan.doomed_id != ended.get(one)]
    others = sorted({*found, *planned})
    if used := [one for one in others if any(end.high for end in ends.get(one, ()))]:
        why = f"{named('topic', used)} created by others, with records: copy what is needed of it, and delete it"
        return Next(act=Act.END, record=record, why=why)
    return _store(record, {one: replace(plans[one], doomed_id=id_) for one, id_ in found.items()}) if found else None


def pending(back: FailbackRecord) -> dict[str, Rebuild]:
    """Return what was begun and is not done."""
    return {topic: one for topic, one in back.rebuilds.items() if not one.done_ms}


def doomed(back: FailbackRecord, live: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the topics to delete, which the old cluster has."""
    found = {topic: one.doomed_id for topic, one in pending(back).items() if one.doomed_id}
    return {topic: id_ for topic, id_ in found.items() if live.get(topic) == id_}


def missing(back: FailbackRecord, live: Mapping[str, str]) -> dict[str, Rebuild]:
    """Return the topics to create."""
    return {topic: one for topic, one in pending(back).items() if topic not in live}


def applied(back: FailbackRecord, act: Act, result: StepResult, now_ms: int) -> FailbackRecord:
    """Return the record after a step that facts do not show."""
    match act:
        case Act.HOLD:
            return replace(back, back_held_ms=now_ms)
        case Act.CREATE:
            created = {
                topic: replace(back.rebuilds[topic], created_id=id_, created_ms=now_ms)
                for topic, id_ in result.evidence.items()
            }
            return replace(back, rebuilds={**back.rebuilds, **created})
        case Act.REVERSE:
            done = {topic: replace(one, done_ms=now_ms) for topic, one in pending(back).items()}
            return replace(
                back,
                rebuilds={**back.rebuilds, **done},
                broken=tuple(topic for topic in back.broken if topic not in done),
                # What is written to the new topic is no tail: the flow ahead copies it.
                starts={topic: of for topic, of in back.starts.items() if topic not in done},
                back_held_ms=0,
            )
    return back


def _doomed(plan: Rebuild, live_id: str) -> Rebuild:
    return replace(plan, found_id=live_id, doomed_id=live_id)


def _known(plan: Rebuild) -> Collection[str]:
    return {"", plan.doomed_id, plan.created_id}


def _store(record: SwitchRecord, plans: Mapping[str, Rebuild]) -> Next:
    back = record.failback
    return Next(act=Act.STORE, record=replace(record, failback=replace(back, rebuilds={**back.rebuilds, **plans})))
