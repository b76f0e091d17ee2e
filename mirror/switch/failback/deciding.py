"""Decides the next step of a failback, of a switch that a failover has opened. Pure.

::

    [OPEN, reversed or done] > fenced > tail found > exported > skipped > released > (mirror cutover) > lifted
                                                       └──> rebuilt ──┘

The state of the switch stays that of the failover; what a failback has done is in ``SwitchRecord.failback``. The fence
comes first: an old cluster whose producers were not stopped would make the tail longer while it is exported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from mirror.client import ResourceType
from mirror.errors import named
from mirror.switch.acl_fence import denials
from mirror.switch.facts import GRACE_MS, Facts, Watch
from mirror.switch.failback import rebuilding
from mirror.switch.failback.rebuilding import NOTHING_TO_REBUILD, RebuildFacts
from mirror.switch.failback.tail import Span
from mirror.switch.machine import Act, Machine, Next, StepResult, Terms
from mirror.switch.record import Command, FailbackRecord, SwitchRecord

_APPENDED: Final = (
    "the flow appends the tail of {topics} behind what clients have written since: confirm it by --append"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command asks for, beyond the fence and the tail."""

    export: bool = False
    append: bool = False
    """Confirms that the flow appends what is not exported."""
    rebuild: tuple[str, ...] = ()
    """The topics that are deleted and copied back whole."""
    rebuild_all: bool = False
    """All of which this is needed."""
    lift: bool = False

    @property
    def rebuilds(self) -> bool:
        return self.rebuild_all or bool(self.rebuild)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFacts(Facts):
    """Live facts of the old cluster."""

    groups: Collection[str] = ()
    """The groups with positions in the topics there."""
    read_denied_everywhere: Collection[str] = ()
    """The groups on which each broker shows the denial of READ."""
    has_authorizer: bool = True
    """Whether the old cluster knows ACLs; True with ``fence = "hook"``."""
    unguarded: str = ""
    """A topic or group that no ACL concerns, and why it is not fenced; empty if there is none."""
    appends: Collection[str] = ()
    """The topics whose tail the flow is to append, by ``append-tail``; compacted ones are not among them."""
    live_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the fenced topics that there are; empty on brokers without topic ids."""
    markers: Collection[tuple[str, int, int]] = ()
    """Topics, partitions and ends that have moved behind the fence by markers of transactions alone."""
    rebuild: RebuildFacts = NOTHING_TO_REBUILD


def failback(wish: Wish) -> Machine:
    """Return the machine of one command."""
    return Machine(
        command=Command.FAILBACK, decide=partial(_decide, wish=wish), applied=applied, follows=(Command.FAILOVER,)
    )


def spans(back: FailbackRecord, topic: str) -> tuple[Span, ...]:
    """Return the tail of each partition of ``topic``; none before it was found."""
    return tuple(Span(*one) for one in zip(back.starts.get(topic, ()), back.ends.get(topic, ()), strict=False))


def with_tail(back: FailbackRecord) -> list[str]:
    """Return the topics that have a tail."""
    return [topic for topic in sorted(back.starts) if any(one.offsets for one in spans(back, topic))]


def exported(back: FailbackRecord, appends: Collection[str]) -> tuple[str, ...]:
    """Return the topics whose tail is to be exported: all that have one, unless the flow may append it.

    A flow cannot go on in a topic that was truncated or made again, so that its tail is always exported.
    """
    return tuple(topic for topic in with_tail(back) if topic not in appends or topic in back.broken)


def _decide(  # noqa: PLR0911 - one for each step
    record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int, *, wish: Wish
) -> Next:
    del watch
    assert isinstance(facts, OldFacts)  # noqa: S101 - of this command's own site
    back = record.failback
    if not record.state.is_open:
        why = f"switch {terms.name} is {record.state}: mirror failover {terms.name} opens the standby first"
        return Next(act=Act.END, record=record, why=why)
    if facts.source_away:
        return Next(act=Act.WAIT, record=record, why=f"the old cluster does not answer: {facts.source_away}")
    if not facts.has_authorizer:
        return Next(act=Act.END, record=record, why='the old cluster has no authorizer: use fence = "hook"')
    if wish.lift:
        return _lift(record, facts, now_ms)
    if why := _missing(back, facts, terms):
        return _again(record, why)
    if not back.shown_ms:
        return _fence(record, facts, terms, now_ms)
    if not back.ends and facts.ends != {}:  # empty: no fenced topic is left
        return _end(record, facts, now_ms)
    if not back.located_ms:
        return Next(act=Act.LOCATE, record=record)
    return _export(record, facts, wish, terms, now_ms)


def applied(record: SwitchRecord, act: Act, result: StepResult, now_ms: int) -> SwitchRecord:
    """Return the record after a step that facts do not show."""
    if not result.ok:
        return record
    back = record.failback
    match act:
        case Act.FENCE if record.fence == "hook":
            back = replace(back, shown_ms=now_ms)
        case Act.LOCATE:
            broken = tuple(result.evidence.get("", "").split())
            starts = {topic: tuple(map(int, text.split(","))) for topic, text in result.evidence.items() if topic}
            # Where a tail has begun, its export has: behind a fence that begins again, the progress may be at its end.
            starts = {topic: (first := back.starts.get(topic, ())) + of[len(first) :] for topic, of in starts.items()}
            back = replace(back, starts=starts, broken=broken, located_ms=now_ms)
        case Act.EXPORT:
            back = replace(back, exported=tuple(sorted(result.evidence)))
        case Act.SKIP_TAIL:
            back = replace(back, skipped=back.exported)
        case Act.RELEASE:
            back = replace(back, released_ms=now_ms)
        case Act.UNFENCE:
            back = replace(back, lifted_ms=now_ms)
        case _:
            back = rebuilding.applied(back, act, result, now_ms)
    return replace(record, failback=back)


# --- the fence


# Invariant: Before anything of the tail is read, each broker of the old cluster denies WRITE on its topics and READ on
#   its groups, and exactly the denials that were created are stored before.
# Test: tests/switch/failback/test_deciding.py::test_the_tail_ends_only_behind_a_fence_that_each_broker_shows
def _fence(record: SwitchRecord, facts: OldFacts, terms: Terms, now_ms: int) -> Next:  # noqa: PLR0911 - one for each step
    back = record.failback
    if terms.fence == "hook":
        intent = back if back.fence_ms else replace(back, topics=tuple(sorted(facts.topics or ())), fence_ms=now_ms)
        return Next(act=Act.FENCE, record=replace(record, fence=terms.fence, hook_fenced=True, failback=intent))
    if facts.topics is None or facts.denied is None:
        return Next(act=Act.WAIT, record=record, why="the topics and the ACLs of the old cluster cannot be read")
    if not back.fence_ms and facts.unguarded:
        return Next(act=Act.END, record=record, why=f"{facts.unguarded}; create the ACLs of its clients first")
    if not back.fence_ms:
        intent = replace(
            back,
            topics=tuple(sorted(facts.topics)),
            denied=tuple(sorted({*back.denied} | (facts.topics.keys() - {*facts.denied}))),
            denied_groups=tuple(sorted({*back.denied_groups} | ({*facts.groups} - {*facts.read_denied}))),
            fence_ms=now_ms,
        )
        return Next(act=Act.FENCE, record=replace(record, fence=terms.fence, failback=intent))
    if not _not_denied(back, facts):
        return Next(act=Act.STORE, record=replace(record, failback=replace(back, shown_ms=now_ms)))
    if {*back.denied} <= {*facts.denied} and {*back.denied_groups} <= {*facts.read_denied}:
        return Next(act=Act.WAIT, record=record, why="not all brokers of the old cluster show the denials yet")
    return Next(act=Act.FENCE, record=record)


def _missing(back: FailbackRecord, facts: OldFacts, terms: Terms) -> str:
    """Return why nothing fences any more what was fenced; empty if it is."""
    if back.lifted_ms:
        return "its denials are removed"
    lost = _not_denied(back, facts) if back.shown_ms and terms.fence == "acl" else ""
    return lost and f"not all brokers of the old cluster deny {lost} any more"


# Invariant: Behind a fence that was away, the tail ends later: what was written meanwhile is found and exported, too.
# Test: tests/switch/failback/test_failback_on_fakes.py::test_what_is_written_while_denials_are_missing_is_exported_too
def _again(record: SwitchRecord, why: str) -> Next:
    """Begin the fence again; the tails still begin where they did, as their exports do."""
    back = record.failback
    if back.released_ms or (back.lifted_ms and back.broken):
        rest = "nothing is left to do" if back.lifted_ms else "create these denials again"
        return Next(act=Act.END, record=record, why=f"{why}: {rest}")
    return Next(act=Act.STORE, record=_without_fence(record), why=f"{why}: the fence begins again")


def _without_fence(record: SwitchRecord) -> SwitchRecord:
    back = replace(
        record.failback,
        fence_ms=0,
        shown_ms=0,
        ends={},
        topic_ids={},
        located_ms=0,
        exported=(),
        skipped=(),
        lifted_ms=0,
    )
    return replace(record, failback=back)


def _not_denied(back: FailbackRecord, facts: OldFacts) -> str:
    """Return what not all brokers deny of what is fenced; empty if they deny it all."""
    topics = sorted({*back.topics} - {*(facts.denied_everywhere or ())})
    groups = sorted({*back.denied_groups} - {*facts.read_denied_everywhere})
    found = [f"WRITE on {named('topic', topics)}"] * bool(topics) + [f"READ on {named('group', groups)}"] * bool(groups)
    return " and ".join(found)


def _end(record: SwitchRecord, facts: OldFacts, now_ms: int) -> Next:
    back = record.failback
    if now_ms - back.shown_ms <= GRACE_MS:
        why = "waiting for requests that brokers had accepted before the fence"
        return Next(act=Act.WAIT, record=record, why=why)
    if facts.ends is None:
        return Next(act=Act.WAIT, record=record, why="the ends of the old cluster's logs cannot be read")
    ends: Mapping[str, tuple[int, ...]] = {
        topic: tuple(one.high for one in of_topic) for topic, of_topic in facts.ends.items()
    }
    ids = {topic: facts.live_ids.get(topic, "") for topic in ends}
    # Topics that come back where all were missing have a tail, too.
    back = replace(back, ends=ends, topic_ids=ids, located_ms=0)
    return Next(act=Act.STORE, record=replace(record, failback=back))


def grown(back: FailbackRecord, facts: OldFacts) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the stored and the present end of each partition that does not end where it did behind the fence.

    Not of topics that are rebuilt, once what was there is deleted. -1: the partition is gone, or was missing then.
    """
    # A topic that has come back since has a tail that is not exported.
    found: dict[tuple[str, int], tuple[int, int]] = {
        (topic, number): (-1, one.high)
        for topic, live in (facts.ends or {}).items()
        if back.ends and topic not in back.ends and topic not in back.rebuilds
        for number, one in enumerate(live)
        if one.high > 0
    }
    for topic, ends in back.ends.items():
        known_id, plan = back.topic_ids.get(topic, ""), back.rebuilds.get(topic)
        live_id = facts.live_ids.get(topic)
        # The flow ahead copies what is written to the new topic, also behind a fence that has begun again.
        if plan is not None and (live_id != known_id or (plan.created_id and live_id == plan.created_id)):
            continue
        live = (facts.ends or {}).get(topic, ())
        for number, end in enumerate(ends):
            now = live[number].high if number < len(live) else -1
            if now != end or (known_id and live_id != known_id):
                found[topic, number] = end, now
    return found


# Invariant: Nothing is released or deleted while a fenced log has a record behind the end of its tail, as a fence that
#   leaks lets through: that is a tail, too.
# Test: tests/switch/failback/test_deciding.py::test_what_is_written_behind_the_fence_is_named_before_the_release
# Test: tests/switch/failback/
#   test_rebuild_on_fakes.py::test_a_record_that_passes_the_fence_after_the_export_is_exported_before_the_release
def _moved(record: SwitchRecord, facts: OldFacts, terms: Terms) -> str:
    """Return what was written behind the fence, and what to do; empty without any."""
    moved = [
        f"{topic}-{number} ({_change(end, now)})"
        for (topic, number), (end, now) in sorted(grown(record.failback, facts).items())
        if (topic, number, now) not in facts.markers
    ]
    if not moved:
        return ""
    mend = "mend hook-fence" if record.fence == "hook" else "stop the super user that writes there"
    return (
        f"changed behind the fence, since its end was found: {named('partition', moved)}; {mend}, then run it again:"
        f" it fences and finds the tail again, and exports the rest (mirror failback {terms.name} --export)"
    )


def _change(end: int, now: int) -> str:
    if now < 0:
        return "gone"
    return f"end {now}, was {end}" if end >= 0 else f"end {now}, was missing"


# --- the tail


# Invariant: The flow of the failover is released only when it goes on behind each exported tail, and what it appends
#   instead is confirmed: otherwise it copies old records behind newer writes.
# Test: tests/switch/failback/test_deciding.py::test_flows_are_released_only_behind_exported_tails
def _export(  # noqa: PLR0911 - one for each step
    record: SwitchRecord, facts: OldFacts, wish: Wish, terms: Terms, now_ms: int
) -> Next:
    back = record.failback
    if not (wish.export or wish.rebuilds) or back.released_ms:
        return Next(act=Act.END, record=record)
    if facts.ends is None:
        return Next(act=Act.WAIT, record=record, why="the ends of the old cluster's logs cannot be read")
    if why := _moved(record, facts, terms):
        return Next(act=Act.END, record=_without_fence(record), why=why)
    if wish.rebuilds:
        return _rebuild(record, facts, wish, terms, now_ms)
    if {*exported(back, facts.appends)} - {*back.exported}:
        return Next(act=Act.EXPORT, record=record)
    if back.broken:
        topics = named("topic", back.broken)
        rebuild = f"mirror failback {terms.name} --rebuild-all --dry-run shows how it comes back"
        why = f"{topics} cannot be continued on the old cluster, so the flows stay held; {rebuild}"
        return Next(act=Act.END, record=record, why=why)
    if {*back.exported} - {*back.skipped}:
        return Next(act=Act.SKIP_TAIL, record=record)
    appended = [topic for topic in with_tail(back) if topic not in back.exported]
    if appended and not wish.append:
        return Next(act=Act.END, record=record, why=_APPENDED.format(topics=named("topic", appended)))
    return Next(act=Act.RELEASE, record=record)


def rebuild_plan(record: SwitchRecord, facts: OldFacts, wish: Wish, terms: Terms) -> tuple[str, list[str]]:
    """Return why a command would not rebuild now, empty if it would; and a line for each thing that it does."""
    back = record.failback
    if facts.source_away:
        return f"the old cluster does not answer: {facts.source_away}", []
    if not back.located_ms or _missing(back, facts, terms):
        return f"its tail is not known: mirror failback {terms.name} --export first", []
    topics = rebuilding.wanted(back, wish.rebuild, every=wish.rebuild_all)
    unexported = {*exported(back, facts.appends)} - {*back.exported}
    why = (
        _moved(record, facts, terms)
        or rebuilding.refusal(back, wish.rebuild, topics, unexported, terms)
        or "; ".join(facts.rebuild.obstacles[topic] for topic in topics if topic in facts.rebuild.obstacles)
    )
    lines: list[str] = []
    for topic in topics:
        starts, ends = back.starts.get(topic, ()), [one.high for one in (facts.ends or {}).get(topic, ())]
        if topic not in facts.live_ids:
            lines.append(f"topic {topic}: the old cluster has none")
        for number, end in enumerate(ends):
            tail = starts[number] if number < len(starts) else end
            kept = f", of which the tail from {tail} on is exported" if tail < end else ""
            lines.append(f"topic {topic}: deletes partition {number}, up to offset {end}{kept}")
        if (plan := facts.rebuild.made.get(topic)) is not None:
            configs = ", ".join(f"{key} = {value}" for key, value in sorted(plan.configs.items()))
            with_configs = f", with {configs}" if configs else ""
            lines.append(f"topic {topic}: creates it with {plan.partitions} partitions{with_configs}")
            lines.append(f"topic {topic}: has the flow back copy all that the other cluster has of it")
    if topics:
        lines.append("records in front of these tails that the other cluster has deleted, or never had, are lost")
    return why, lines


def _rebuild(record: SwitchRecord, facts: OldFacts, wish: Wish, terms: Terms, now_ms: int) -> Next:
    back = record.failback
    topics = rebuilding.wanted(back, wish.rebuild, every=wish.rebuild_all)
    unexported = {*exported(back, facts.appends)} - {*back.exported}
    if why := rebuilding.refusal(back, wish.rebuild, topics, unexported, terms):
        return Next(act=Act.END, record=record, why=why)
    if not topics:
        return Next(act=Act.END, record=record)
    return rebuilding.rebuild(record, facts.rebuild, facts.live_ids, facts.ends or {}, topics, now_ms)


# --- the end


def _lift(record: SwitchRecord, facts: OldFacts, now_ms: int) -> Next:
    back = record.failback
    if record.fence == "hook":
        if record.hook_fenced and not back.lifted_ms:
            return Next(act=Act.UNFENCE, record=record)
        return Next(act=Act.END, record=record)
    if facts.denied is None:
        return Next(act=Act.WAIT, record=record, why="the ACLs of the old cluster cannot be read")
    there = {ResourceType.TOPIC: facts.denied, ResourceType.GROUP: facts.read_denied}
    if any(acl.name in there[acl.resource_type] for acl in denials(record)):
        return Next(act=Act.UNFENCE, record=record)
    if not back.lifted_ms:
        return Next(act=Act.STORE, record=replace(record, failback=replace(back, lifted_ms=now_ms)))
    return Next(act=Act.END, record=record)
