"""Decides the next step of a failover, for which the source need not answer. Pure.

::

    planned > ready > [fenced] > moved > OPEN > reversed > done
       └────────┴────────┴─────────┴──> rolled-back

Nothing is copied any more: what counts is that nothing of the old flow appends behind what clients write on the target.
So the flows are held, and then the transactional ids of all their copies are ended, also of tasks that cannot be
reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mirror.errors import named
from mirror.switch import machine
from mirror.switch.facts import Facts, FlowLatch, Watch
from mirror.switch.machine import Act, Machine, Next, StepResult, Terms, behind_open, roll_back
from mirror.switch.record import Command, State, SwitchRecord

FENCE_MS: Final = 30_000
"""How long a source that answers has to show its fence: it may be too broken for that."""
_REACHABLE: Final = (
    "the source answers: mirror cutover moves clients without loss; --although-reachable fences the source, and gives"
    " up what was not copied"
)


def decide(record: SwitchRecord, facts: Facts, watch: Watch, terms: Terms, now_ms: int) -> Next:  # noqa: PLR0911 - one for each step
    """Return the next step."""
    del watch
    if record.state is State.ROLLED_BACK:
        return Next(act=Act.END, record=record)
    if record.state.is_open:
        # The way back is no ordinary run: the source has records that the target has not.
        return behind_open(record, facts, replace(terms, back=()), now_ms)
    if record.rollback or terms.rollback:
        return roll_back(record if record.rollback else replace(record, rollback="--rollback"), facts, terms, now_ms)
    if not facts.source_away and not terms.although_reachable:
        undone = ["removes the fence"] * record.fences + ["releases the flows"] * bool(record.latches)
        back = f"; --rollback {' and '.join(undone)}" if undone else ""
        return Next(act=Act.END, record=record, why=_REACHABLE + back)
    if terms.until is not State.DONE and record.state.reaches(terms.until):
        return Next(act=Act.END, record=record)
    if record.state is State.PLANNED:
        return _planned(record, facts, now_ms)
    if facts.latches is None:
        return _wait(record, "the latches of the flows cannot be read")
    if _is_to_be_fenced(record, facts):
        if record.state is State.MOVED:
            return Next(act=Act.STORE, record=record.entered(State.READY, now_ms, "the source answers again"))
        return _fence(record, facts, terms, now_ms)
    return _opened(record, facts, terms, now_ms)


def applied(record: SwitchRecord, act: Act, result: StepResult, now_ms: int) -> SwitchRecord:
    """Return the record after a step that facts do not show."""
    if not result.ok:
        fails = act is Act.FENCE and not result.retry
        return replace(record, unfenced=result.why) if fails else record
    if act is Act.END_COPIES:
        return replace(record, ended=dict(record.rested))
    return machine.applied(record, act, result, now_ms)


FAILOVER: Final = Machine(command=Command.FAILOVER, decide=decide, applied=applied)


def takes_over(latch: FlowLatch, terms: Terms) -> bool:
    """Whether another switch holds the flow: it would release it if it is rolled back."""
    return latch.is_held and latch.by.startswith("switch ") and latch.by != terms.by


def _wait(record: SwitchRecord, why: str) -> Next:
    return Next(act=Act.WAIT, record=record, why=why)


def _planned(record: SwitchRecord, facts: Facts, now_ms: int) -> Next:
    if not facts.topic_ids:
        why = "the target has no progress of the flows, so that nothing is known of what was copied to it"
        return Next(act=Act.END, record=record, why=why)
    return Next(act=Act.STORE, record=_with_evidence(record, facts).entered(State.READY, now_ms))


def _with_evidence(record: SwitchRecord, facts: Facts) -> SwitchRecord:
    source_id, target_id = record.clusters or ("", "")
    return replace(
        record,
        clusters=(source_id or facts.source_id, target_id),
        topics=tuple(sorted(facts.progress or ())),
        topic_ids=dict(facts.topic_ids),
        copied=dict(facts.progress or {}),
        groups=dict(facts.positions or {}),
    )


# Invariant: A failover opens the target while the source answers only if it has fenced the source, or the record says
#   why that is impossible.
# Test: tests/switch_failover/test_model.py::test_operators_that_are_killed_anywhere_open_one_side
def _is_to_be_fenced(record: SwitchRecord, facts: Facts) -> bool:
    return not facts.source_away and not record.shown_ms and not record.unfenced


def _fence(record: SwitchRecord, facts: Facts, terms: Terms, now_ms: int) -> Next:  # noqa: PLR0911 - one for each step
    began_ms = max(record.fence_ms, record.steps[-1].at_ms if record.steps else 0)
    if now_ms - began_ms > FENCE_MS:
        why = f"its brokers have not shown the fence within {FENCE_MS // 1000} s"
        return Next(act=Act.STORE, record=replace(record, unfenced=why))
    if terms.fence == "hook":
        intent = record if record.fence_ms else replace(record, fence="hook", fence_ms=now_ms, hook_fenced=True)
        return Next(act=Act.FENCE, record=intent)
    if facts.denied is None or facts.denied_everywhere is None:
        return _wait(record, "the ACLs of the source cannot be read")
    if not record.fence_ms:
        denied = tuple(sorted({*record.topics} - {*facts.denied} - {*facts.unguarded}))
        return Next(act=Act.FENCE, record=replace(record, fence="acl", fence_ms=now_ms, denied=denied))
    left = {*record.topics} - {*facts.denied_everywhere}
    if not left:
        return Next(act=Act.STORE, record=replace(record, shown_ms=now_ms).entered(State.FENCED, now_ms))
    if left <= {*facts.unguarded}:
        why = f"no ACL of the source concerns {named('topic', sorted(left))}, which a denial would close to all"
        return Next(act=Act.STORE, record=replace(record, unfenced=why))
    if {*record.denied} <= {*facts.denied}:
        return _wait(record, "waiting until each broker of the source shows the denials")
    return Next(act=Act.FENCE, record=record)


# Invariant: A failover opens the target only with its flows held, and with the transactional ids of their copies ended
#   behind that latch: what a copy has sent late is refused.
# Test: tests/switch_failover/test_model.py::test_operators_that_are_killed_anywhere_open_one_side
def _opened(record: SwitchRecord, facts: Facts, terms: Terms, now_ms: int) -> Next:
    """Return the next step of one that holds the flows, ends their copies, and opens the target."""
    assert facts.latches is not None  # noqa: S101 - of the caller
    latches = {flow: facts.latches[flow] for flow in record.flows}
    taken = {flow: takes_over(one, terms) or not one.is_held for flow, one in latches.items()}
    if any(taken.values()) or any(record.rested.get(flow) != one.generation for flow, one in latches.items()):
        intended = {flow: one.generation + taken[flow] for flow, one in latches.items()}
        return Next(act=Act.HOLD, record=replace(record, latches=intended))
    if any(record.ended.get(flow) != one.generation for flow, one in latches.items()):
        return Next(act=Act.END_COPIES, record=record)
    if record.state is not State.MOVED:
        return Next(act=Act.STORE, record=record.entered(State.MOVED, now_ms))
    if facts.open_transactions:
        why = f"open on the target: {named('transaction', sorted(facts.open_transactions))} of the copies"
        return Next(act=Act.END_COPIES, record=record, why=why)
    if facts.progress is None or facts.positions is None or facts.target_ends is None:
        return _wait(record, "the progress, the groups, or the ends of the target's logs cannot be read")
    opened = replace(_with_evidence(record, facts), open_ms=now_ms, target_ends=dict(facts.target_ends))
    return Next(act=Act.STORE, record=opened.entered(State.OPEN, now_ms))
