"""Whether a call of an operator that was killed may end after the next one has begun, and undo what that does. Pure.

What an operator stores, and its changes of latches, carry a generation, so that brokers refuse them once a later
operator has claimed the switch. ACLs, transactions and hooks have none: the calls that a killed operator may have begun
follow from its record, which it stores in front of them.
"""

from __future__ import annotations

from mirror.switch.machine import Act, Next
from mirror.switch.record import Command, SwitchRecord


# Invariant: An operator that follows one which may still be alive changes nothing that a call of that one can undo,
#   before that call has ended.
# Test: tests/switch/test_late_calls.py::test_only_what_a_late_call_can_undo_waits_for_it
# Test: tests/switch/test_model.py::test_operators_that_are_killed_anywhere_lose_nothing
def may_conflict(found: SwitchRecord, wanted: Next) -> bool:
    """Return whether a step has to wait for the operator that has stored ``found``.

    Producers wait for a cut-over that goes on behind its fence, and what its operator may have begun there is part of
    the fence: denials that are created, and transactions that are ended. Only a rollback would meet these. Two hooks
    never run at the same time.
    """
    if found.command is not Command.CUTOVER or found.rollback:
        return True
    if found.state.is_open:
        return wanted.act is Act.SWITCH and not found.switched_ms
    is_hook = wanted.act is Act.FENCE and found.fence == "hook"
    return bool(wanted.record.rollback) or is_hook or not found.fences
