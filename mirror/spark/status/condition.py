"""In which condition a flow is, in one word and a line, and when it was in order last. Pure.

``mirror status``, the exporter and the page say the same of a flow by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mirror.relay.model.ranges import Outcome

if TYPE_CHECKING:
    from mirror.relay.progress.control_record import RunControl
    from mirror.relay.progress.status_values import RunState
    from mirror.spark.status.flow_status import FlowStatus


class FlowCondition(StrEnum):
    """The condition of a flow; but for the last four, the state that its stream reports."""

    RUNNING = "running"
    """Its stream, or a scheduled run of it, copies."""
    PREPARING = "preparing"
    BACKING_OFF = "backing off"
    REFUSED = "refused"
    HELD = "held"
    ENDED = "ended"
    """Its last run, or its stream, has ended: between scheduled runs this is as it should be."""
    GONE = "gone"
    """Its driver has died, or does not reach the target."""
    NONE = "none"
    """No run has reported anything."""
    UNKNOWN = "unknown"
    """The target does not answer, or what runs report cannot be read."""


_GONE: Final = "its driver has died or cannot reach the target"
_HOLDER_GONE: Final = "the driver that held it has died or cannot reach the target: start the stream again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition of a flow as of its status. Times are ms since 1970; None for what is not known."""

    name: FlowCondition
    since_ms: int | None = None
    reason: str = ""
    until_ms: int | None = None
    """Until when it waits."""
    follows: bool | None = None
    """Whether it is a stream's flow."""
    success_ms: int | None = None
    """When it was in order last: the end of its last complete run, or the last sign of life of its stream while that
    was running; None: no success is known."""

    @property
    def is_complete(self) -> bool:
        """Whether its last run has ended and was complete."""
        return self.name is FlowCondition.ENDED and (self.follows is True or self.reason == Outcome.COMPLETE)


def condition_of(status: FlowStatus) -> Condition:
    """Return the condition of a flow."""
    state, run = status.state, status.run
    follows = None if state is None else state.follows
    success_ms = _success_ms(status)
    if status.target in status.away:
        reason = status.away[status.target]
        return Condition(name=FlowCondition.UNKNOWN, reason=reason, follows=follows, success_ms=success_ms)
    if (latch := status.latch) is not None and latch.is_held:
        reason = latch.held_line(status.flow)
        return Condition(
            name=FlowCondition.HELD, since_ms=latch.since_ms, reason=reason, follows=follows, success_ms=success_ms
        )
    if run is not None and (state is None or state.run != run.run):
        return _unreported(status, run, success_ms)
    if state is None:
        name = FlowCondition.REFUSED if status.refused else FlowCondition.NONE
        if status.unread and not status.refused:
            name = FlowCondition.UNKNOWN
        return Condition(name=name, reason=status.refused or status.unread)
    name, reason, since_ms, until_ms = _name(state), state.reason, state.since_ms, state.until_ms
    if run is not None and run.is_dead(status.time_ms):
        name, reason, since_ms, until_ms = FlowCondition.GONE, _GONE, run.seen_ms, None
    elif name is FlowCondition.GONE:
        reason = _HOLDER_GONE
    elif run is None and name not in {FlowCondition.HELD, FlowCondition.ENDED}:
        name, reason = FlowCondition.ENDED, "it has ended without a report"
    if name is FlowCondition.ENDED and status.refused:
        return Condition(name=FlowCondition.REFUSED, reason=status.refused, follows=follows, success_ms=success_ms)
    return Condition(
        name=name, since_ms=since_ms, reason=reason, until_ms=until_ms, follows=follows, success_ms=success_ms
    )


def _unreported(status: FlowStatus, run: RunControl, success_ms: int | None) -> Condition:
    """Return the condition of a flow whose run has not reported its state."""
    if run.is_dead(status.time_ms):
        return Condition(name=FlowCondition.GONE, since_ms=run.seen_ms, reason=_GONE, success_ms=success_ms)
    return Condition(name=FlowCondition.RUNNING, since_ms=run.since_ms, success_ms=success_ms)


def _name(state: RunState) -> FlowCondition:
    return FlowCondition(state.state) if state.state in set(FlowCondition) else FlowCondition.RUNNING


# Invariant: A flow that nothing copies any more becomes older, whatever it was: a stream that has died counts as in
#   order until its last sign of life, and a scheduled run that fails does not count.
# Test: tests/spark/status/test_condition.py::test_a_flow_is_in_order_until_its_last_success
def _success_ms(status: FlowStatus) -> int | None:
    state, run = status.state, status.run
    if state is None:
        return None
    if not state.follows:
        return state.complete_ms or None
    is_running = state.state == FlowCondition.RUNNING and run is not None and run.run == state.run
    # The tasks of earlier runs count as well: a driver that starts again and again is no success, and what was one
    # before its first start stays known.
    return max(state.since_ms, run.seen_ms) if is_running and run is not None else status.tasks_seen_ms
