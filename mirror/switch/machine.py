"""Decides the next step of a switch from its record and from facts that were read just now. Pure.

::

    planned > ready > fenced > drained > proved > moved > OPEN > reversed > done
       └────────┴────────┴────────┴────────┴───────┴──> rolled-back

Producers wait for ``quiet_ms`` anyway: meanwhile the rest is copied, compared, and held. What a step changes on a
cluster, the record says before (an intent), and facts show afterwards. So an operator that is killed at any moment is
followed by one that reads both, and repeats nothing that holds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.errors import named
from mirror.switch.facts import GRACE_MS, Ends, Facts, Watch
from mirror.switch.record import Command, State, SwitchRecord

LEASE_MS: Final = 5_000
"""An operator changes something only within so long after it has stored its record, or read that it still has it."""
TAKEOVER_MS: Final = 20_000
"""More than the lease of an operator and the time-out of one of its calls, unless that is a hook."""
CHECKED_MS: Final = 10 * 60 * 1000
"""A check that is older is repeated before the fence."""


class Act(enum.Enum):
    """What is to be done next."""

    STORE = "store"
    """Only store the record."""
    CHECK = "check"
    FENCE = "fence"
    UNFENCE = "unfence"
    ABORT_OPEN = "abort open transactions"
    COPY = "copy"
    PROVE = "prove"
    MOVE = "move groups"
    HOLD = "hold flows"
    END_COPIES = "end the copies that may still write"
    RELEASE = "release flows"
    LIFT = "lift denials on the target"
    SWITCH = "switch clients"
    REVERSE = "release the way back"
    CLIENTS = "see that clients arrive"
    LOCATE = "find where the tail begins"
    EXPORT = "export the tail"
    DELETE = "delete topics that cannot be continued"
    CREATE = "create them again"
    BEGIN = "have the flows begin there again"
    SKIP_TAIL = "have the flows go on behind the tail"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the settings and the command say."""

    name: str
    quiet_ms: int
    deadline_ms: int
    fence: str = "acl"
    deny_read: bool = False
    """Whether consumers are fenced with the producers."""
    lag_records: int = 0
    """How many records the target may lack when producers are fenced."""
    back: tuple[str, ...] = ()
    switches: bool = False
    """Whether there is a ``hook-switch``."""
    hook_ms: int = 0
    """How long a hook may take; 0: there is none."""
    sees_clients: bool = False
    abort_open: bool = False
    although_reachable: bool = False
    """Whether a failover goes on although the source answers."""
    rollback: bool = False
    until: State = State.DONE

    @property
    def by(self) -> str:
        """Who holds flows, as their latches name it."""
        return f"switch {self.name}"

    @property
    def takeover_ms(self) -> int:
        """How long an operator changes nothing that follows one which has not said that it ended."""
        return max(TAKEOVER_MS, LEASE_MS + self.hook_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The next step: ``record`` is stored first, if it differs from the stored one."""

    act: Act
    record: SwitchRecord
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came of a step that facts do not show."""

    ok: bool
    why: str = ""
    """Why not, in one line."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    held: bool = False
    """Of a proof: whether nothing of the flows writes any more, as of a hold that has succeeded."""
    retry: bool = False
    """Whether it may succeed later, within the deadline."""


def decide(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:
    """Return the next step."""
    if record.state is State.ROLLED_BACK:
        return Next(act=Act.END, record=record)
    if record.state.is_open:
        return behind_open(record, facts, terms, now_ms)
    if record.rollback or (why := _why_roll_back(record, facts, watch, terms, now_ms)):
        return roll_back(record if record.rollback else replace(record, rollback=why), facts, terms, now_ms)
    if away := facts.target_away or facts.source_away:
        return _wait(record, f"the {'target' if facts.target_away else 'source'} does not answer: {away}")
    if terms.until is not State.DONE and record.state.reaches(terms.until):
        return Next(act=Act.END, record=record)
    return _STEPS[record.state](record, facts, watch, terms, now_ms)


def applied(record: SwitchRecord, act: Act, result: StepResult, now_ms: int) -> SwitchRecord:  # noqa: C901, PLR0911 - one for each act
    """Return the record after a step that facts do not show."""
    if not result.ok:
        fails = record.fences and not record.rollback and not result.retry
        return replace(record, rollback=result.why) if fails else record
    match act:
        case Act.CHECK:
            return record.entered(State.READY, now_ms)
        case Act.FENCE if record.fence == "hook":
            return replace(record, shown_ms=now_ms).entered(State.FENCED, now_ms)
        case Act.UNFENCE if record.fence == "hook":
            return replace(record, hook_fenced=False)
        case Act.PROVE:
            proved = replace(record, proofs=dict(result.evidence)).entered(State.PROVED, now_ms)
            return replace(proved, rested=dict(record.latches)) if result.held else proved
        case Act.MOVE:
            return replace(record, groups=dict(result.evidence)).entered(State.MOVED, now_ms)
        case Act.HOLD:
            return replace(record, rested=dict(record.latches))
        case Act.SWITCH:
            return replace(record, switched_ms=now_ms)
        case Act.REVERSE:
            return record.entered(State.REVERSED, now_ms)
        case Act.CLIENTS:
            return record.entered(State.DONE, now_ms)
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one command does with a switch: its ``decide`` and ``applied``, which are pure."""

    command: Command
    decide: Callable[[SwitchRecord, Facts, Watch, Terms, int], Next]
    applied: Callable[[SwitchRecord, Act, StepResult, int], SwitchRecord]
    follows: Collection[Command] = ()
    """The other commands with whose switches it goes on."""


CUTOVER: Final = Machine(command=Command.CUTOVER, decide=decide, applied=applied)


def _wait(record: SwitchRecord, why: str) -> Next:
    return Next(act=Act.WAIT, record=record, why=why)


# --- before OPEN


def _why_roll_back(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> str:  # noqa: PLR0911 - one for each reason
    """Return why a switch cannot go on; empty if it can."""
    if terms.rollback:
        return "--rollback"
    if not record.fences:
        return ""
    if now_ms - record.fence_ms > terms.deadline_ms:
        return f"deadline-seconds ({terms.deadline_ms // 1000}) have passed since producers were fenced"
    if facts.topics is not None and (others := sorted(facts.topics.keys() ^ set(record.topics))):
        return f"{named('topic', others)}: what the flows select has changed since the fence"
    if not record.state.reaches(State.FENCED):
        return ""
    everywhere = facts.denied_everywhere
    if record.fence == "acl" and everywhere is not None and (lost := sorted({*record.topics} - {*everywhere})):
        return f"not all brokers show the denial of WRITE any more on {named('topic', lost)}"
    if watch.bypassed:
        return f"{named('partition', watch.bypassed)} still written to behind the fence"
    if record.ends and facts.ends is not None and (moved := _moved(record.ends, facts)):
        return f"{named('partition', moved)} written to behind the fence, after the ends were fixed"
    return ""


def _moved(ends: Mapping[str, tuple[int, ...]], facts: Facts) -> list[str]:
    assert facts.ends is not None  # noqa: S101 - of the caller
    found = []
    for topic, fixed in ends.items():
        now = tuple(one.high for one in facts.ends.get(topic, ()))
        if len(now) != len(fixed):
            found.append(topic)
        found += [f"{topic}-{n}" for n, (a, b) in enumerate(zip(fixed, now, strict=False)) if a != b]
    return found


# Invariant: A rollback removes the denials that this switch has created, and no other ACL, and releases only the
#   latches that it has set.
# Test: tests/switch/test_model.py::test_operators_that_are_killed_anywhere_lose_nothing
def roll_back(record: SwitchRecord, facts: Facts, terms: Terms, now_ms: int) -> Next:
    """Return the next step of a switch that goes back: producers may write first, then the flows may copy."""
    if record.fence == "acl":
        if facts.denied is None:
            return _wait(record, f"the source has to answer before its denials are removed: {facts.source_away}")
        if {*record.denied} & {*facts.denied} or {*record.denied_groups} & {*facts.read_denied}:
            return Next(act=Act.UNFENCE, record=record)
    if record.hook_fenced:
        return Next(act=Act.UNFENCE, record=record)
    if record.fences:
        record = replace(record, lifted_ms=now_ms)
    if record.latches:
        if facts.latches is None:
            why = facts.target_away or facts.source_away
            return _wait(record, f"producers are not fenced; the latches of the flows cannot be read: {why}")
        if _ours(record, facts, terms):
            return Next(act=Act.RELEASE, record=record)
    return Next(act=Act.STORE, record=record.entered(State.ROLLED_BACK, now_ms, record.rollback))


def _ours(record: SwitchRecord, facts: Facts, terms: Terms) -> list[str]:
    """Return the flows that this switch holds."""
    assert facts.latches is not None  # noqa: S101 - of the caller
    held = ((flow, facts.latches.get(flow)) for flow in record.latches)
    return [flow for flow, one in held if one is not None and one.is_held and one.by == terms.by]


def _planned(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:
    del facts, watch, terms, now_ms
    return Next(act=Act.CHECK, record=record)


def _ready(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:
    del watch
    if facts.topics is None:
        return _wait(record, "the topics of the source cannot be read")
    if terms.fence == "acl" and (facts.denied is None or facts.denied_everywhere is None):
        return _wait(record, "the ACLs of the source cannot be read")
    if record.fence_ms:
        return _fencing(record, facts, now_ms)
    if record.steps and now_ms - record.steps[-1].at_ms > CHECKED_MS:
        return Next(act=Act.STORE, record=record.entered(State.PLANNED, now_ms, "the check is too old"))
    return _intend_fence(record, facts, terms, now_ms)


def _intend_fence(record: SwitchRecord, facts: Facts, terms: Terms, now_ms: int) -> Next:
    if facts.ends is None or facts.progress is None or (terms.deny_read and facts.positions is None):
        return _wait(record, "the ends of the source's logs, or its groups, cannot be read")
    if (lag := _lag(facts.ends, facts.progress)) > terms.lag_records:
        why = f"producers are not fenced: {lag} records are not copied; run a stream, or raise lag-records"
        return _wait(record, why) if facts.is_copying else Next(act=Act.COPY, record=record, why=why)
    intent = replace(record, fence=terms.fence, topics=tuple(sorted(facts.topics or ())), fence_ms=now_ms)
    if terms.fence == "hook":
        return Next(act=Act.FENCE, record=replace(intent, hook_fenced=True))
    denied = tuple(sorted({*intent.topics} - {*(facts.denied or ())}))
    groups = tuple(sorted({*(facts.positions or ())} - {*facts.read_denied})) if terms.deny_read else ()
    return Next(act=Act.FENCE, record=replace(intent, denied=denied, denied_groups=groups))


def _fencing(record: SwitchRecord, facts: Facts, now_ms: int) -> Next:
    created = {*record.topics} <= {*(facts.denied or ())} and {*record.denied_groups} <= {*facts.read_denied}
    if record.fence == "hook" or not created:
        return Next(act=Act.FENCE, record=record)
    if {*record.topics} <= {*(facts.denied_everywhere or ())}:
        return Next(act=Act.STORE, record=replace(record, shown_ms=now_ms).entered(State.FENCED, now_ms))
    return _wait(record, "not all brokers of the source show the denials yet")


def _fenced(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:  # noqa: PLR0911 - one for each reason to wait
    if not record.ends:
        if facts.ends is None or watch.quiet_since_ms is None:
            return _wait(record, "the ends of the source's logs cannot be read")
        if facts.open_transactions:
            if terms.abort_open:
                return Next(act=Act.ABORT_OPEN, record=record)
            return _wait(record, f"open: {named('transaction', sorted(facts.open_transactions))}; see --abort-open")
        if any(one.stable < one.high for of_topic in facts.ends.values() for one in of_topic):
            return _wait(record, "transactions are open")
        if now_ms - watch.quiet_since_ms < min(terms.quiet_ms, GRACE_MS):
            return _wait(
                record, f"waiting until the brokers have ended the requests of before the fence ({GRACE_MS // 1000} s)"
            )
        ends = {topic: tuple(one.high for one in of_topic) for topic, of_topic in facts.ends.items()}
        return Next(act=Act.STORE, record=replace(record, ends=ends, ends_ms=watch.quiet_since_ms))
    if facts.progress is None:
        return _wait(record, "the progress of the flows cannot be read")
    if behind := _behind(record.ends, facts.progress):
        why = f"{named('partition', behind)} not copied yet"
        return _wait(record, why) if facts.is_copying else Next(act=Act.COPY, record=record, why=why)
    return Next(act=Act.STORE, record=record.entered(State.DRAINED, now_ms))


def _lag(ends: Mapping[str, tuple[Ends, ...]], progress: Mapping[str, tuple[int, ...]]) -> int:
    """Return how many records are not copied yet, by their offsets."""
    pairs = (pair for topic, of_topic in ends.items() for pair in zip(of_topic, progress.get(topic, ()), strict=False))
    return sum(max(0, end.high - copied) for end, copied in pairs)


def _behind(ends: Mapping[str, tuple[int, ...]], progress: Mapping[str, tuple[int, ...]]) -> list[str]:
    found = []
    for topic, fixed in ends.items():
        copied = progress.get(topic, ())
        found += [f"{topic}-{n}" for n, end in enumerate(fixed) if (copied[n] if n < len(copied) else 0) < end]
    return found


def _drained(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:
    del watch, now_ms
    # Behind the ends there is nothing to copy: the flows are held meanwhile, since the end of their runs takes long.
    return _hold(Act.PROVE, record, facts, terms)


def _hold(act: Act, record: SwitchRecord, facts: Facts, terms: Terms) -> Next:
    """Return an act that holds the flows, which the record says before."""
    if facts.latches is None:
        return _wait(record, "the latches of the flows cannot be read")
    wanted = (*record.flows, *terms.back)
    found = {flow: facts.latches[flow] for flow in wanted}
    if others := [flow for flow, one in found.items() if one.is_held and one.by != terms.by]:
        return _wait(record, f"{named('flow', others)} held by others: mirror release")
    intended = {flow: one.generation + (not one.is_held) for flow, one in found.items()}
    return Next(act=act, record=replace(record, latches=intended))


def _proved(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:
    del watch, terms, now_ms
    if facts.busy_groups is None:
        return _wait(record, "the groups of the source cannot be read")
    if facts.busy_groups:
        busy = named("group", sorted(facts.busy_groups))
        return _wait(record, f"{busy} with members on the source: stop its consumers")
    return Next(act=Act.MOVE, record=record)


# Invariant: A switch opens only behind its fence, with the fenced ends unchanged, and with the flows held by itself.
# Test: tests/switch/test_model.py::test_operators_that_are_killed_anywhere_lose_nothing
def _moved_groups(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:  # noqa: PLR0911 - one for each reason to wait
    del watch
    if facts.busy_groups is None or facts.positions is None or facts.latches is None:
        return _wait(record, "the groups of the source, or the latches of the flows, cannot be read")
    if {*facts.busy_groups} & record.groups.keys() or dict(facts.positions) != dict(record.groups):
        again = replace(record, groups={}, opening=False)
        return Next(act=Act.STORE, record=again.entered(State.PROVED, now_ms, "groups have gone on on the source"))
    held = [flow for flow in _ours(record, facts, terms) if record.rested.get(flow) == facts.latches[flow].generation]
    if {*held} != {*record.flows, *terms.back}:
        return _hold(Act.HOLD, record, facts, terms)
    if facts.denied_everywhere is None and record.fence == "acl":
        return _wait(record, "the ACLs of the source cannot be read")
    if facts.ends is None or facts.target_ends is None or facts.topics is None:
        return _wait(record, "the ends of both clusters' logs cannot be read")
    if now_ms - record.ends_ms < terms.quiet_ms:
        # That they have not moved since, the comparison with the fenced ends has shown.
        return _wait(record, f"waiting until nothing has moved for {terms.quiet_ms // 1000} s")
    if not record.opening:
        return Next(act=Act.STORE, record=replace(record, opening=True))
    opened = replace(record, open_ms=now_ms, target_ends=dict(facts.target_ends))
    return Next(act=Act.STORE, record=opened.entered(State.OPEN, now_ms))


_STEPS: Final = {
    State.PLANNED: _planned,
    State.READY: _ready,
    State.FENCED: _fenced,
    State.DRAINED: _drained,
    State.PROVED: _proved,
    State.MOVED: _moved_groups,
}


# --- behind OPEN


def behind_open(record: SwitchRecord, facts: Facts, terms: Terms, now_ms: int) -> Next:  # noqa: PLR0911 - one for each reason to wait
    """Return the next step of a switch that has passed the point of no return."""
    if record.state is State.DONE:
        return Next(act=Act.END, record=record, why=_why_undone(record, facts))
    if terms.until is not State.DONE and record.state.reaches(terms.until):
        return Next(act=Act.END, record=record)
    if facts.denied_on_target is None and record.fence == "acl":
        return _wait(record, "the ACLs of the target cannot be read")
    if {*record.topics} & {*(facts.denied_on_target or ())} or {*record.groups} & {*facts.read_denied_on_target}:
        return Next(act=Act.LIFT, record=record)
    if terms.switches and not record.switched_ms:
        return Next(act=Act.SWITCH, record=record)
    if record.state is State.OPEN:
        if terms.back:
            return Next(act=Act.REVERSE, record=record)
        return Next(act=Act.STORE, record=record.entered(State.REVERSED, now_ms, "no way back is released"))
    if terms.sees_clients:
        return Next(act=Act.CLIENTS, record=record)
    return Next(act=Act.STORE, record=record.entered(State.DONE, now_ms))


def _why_undone(record: SwitchRecord, facts: Facts) -> str:
    """Return what a switch that is done has left, and what others have changed since; empty if nothing."""
    latches = facts.latches or {}
    free = [flow for flow in record.flows if flow in latches and not latches[flow].is_held]
    denied = sorted({*record.topics} & {*(facts.denied_on_target or ())})
    found = [f"{named('flow', free)} released"] * bool(free)
    found += [f"producers are denied on the target, on {named('topic', denied)}"] * bool(denied)
    if not found:
        return ""
    return f"it was done, but since then {' and '.join(found)}: to switch again, give the table [switches] another name"
