"""What waits for a call that a killed operator may have begun."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.switch.late_calls import may_conflict
from mirror.switch.machine import Act, Next
from mirror.switch.record import Command, State, SwitchRecord

PLANNED = SwitchRecord(state=State.PLANNED)
INTENDED = SwitchRecord(state=State.READY, fence="acl", fence_ms=1)
FENCED = replace(INTENDED, state=State.FENCED)
OPEN = replace(INTENDED, state=State.OPEN)


@pytest.mark.parametrize(
    ("found", "act", "waits"),
    [
        (PLANNED, Act.FENCE, True),
        (INTENDED, Act.FENCE, False),
        (INTENDED, Act.WAIT, False),
        (replace(INTENDED, fence="hook"), Act.FENCE, True),
        (FENCED, Act.PROVE, False),
        (FENCED, Act.STORE, False),
        (replace(FENCED, rollback="why"), Act.UNFENCE, True),
        (replace(FENCED, rollback="why", lifted_ms=2), Act.RELEASE, True),
        (replace(FENCED, state=State.ROLLED_BACK), Act.FENCE, True),
        (OPEN, Act.LIFT, False),
        (OPEN, Act.SWITCH, True),
        (replace(OPEN, switched_ms=2), Act.REVERSE, False),
        (replace(FENCED, command=Command.FAILOVER), Act.PROVE, True),
        (replace(OPEN, command=Command.FAILBACK), Act.EXPORT, True),
    ],
)
def test_only_what_a_late_call_can_undo_waits_for_it(found: SwitchRecord, act: Act, waits: bool) -> None:
    assert may_conflict(found, Next(act=act, record=found)) is waits


@pytest.mark.parametrize("act", [Act.UNFENCE, Act.STORE])
@pytest.mark.parametrize("found", [INTENDED, FENCED])
def test_a_rollback_waits_for_a_late_fence(found: SwitchRecord, act: Act) -> None:
    assert may_conflict(found, Next(act=act, record=replace(found, rollback="why")))
