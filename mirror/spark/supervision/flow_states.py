"""Decides what the supervisor of a stream does with each of its flows. Pure: times are arguments, in ms since 1970.

:data:`TABLE` says for each event and state which rule applies. A cause that goes away ends by itself: every state but
``ended`` is left, and no event raises an error in any state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.backoff import Backoff

MIN_BACKOFF_MS: Final = 1_000
MAX_BACKOFF_MS: Final = 60_000
STABLE_MS: Final = 600_000
"""A flow that has run for this long has recovered: its next failure counts as the first one."""
KILLED_MS: Final = 5_000
"""Spark kills the Python worker of a cancelled task within 3.3 s (``spark.python.task.killTimeout``)."""


class FlowState(StrEnum):
    """The state of a configured flow in a stream."""

    PREPARING = "preparing"
    """Its clusters are checked and its target topics prepared."""
    RUNNING = "running"
    """Spark runs its job."""
    BACKING_OFF = "backing off"
    """It has failed, and is started again later."""
    REFUSED = "refused"
    """It cannot run as the configuration or its clusters are; it is checked again later, and when it is edited."""
    HELD = "held"
    """It was asked to stop, its latch holds it, or another run has taken over; the stream goes on with its others."""
    ENDED = "ended"
    """Nothing more happens to it."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """The state of one flow, and what is known about it."""

    state: FlowState
    since_ms: int
    """Since when; of a flow that is preparing, backing off or refused by turns, since when it does not run."""
    reason: str = ""
    until_ms: int | None = None
    """When it is started again; None: not because of the time."""
    failures: int = 0
    """How often it has failed in a row."""
    then: FlowState | None = None
    """The state after its job has ended as it was asked to; None: it was not asked. For an edit, it prepares again."""
    by_other_run: bool = False
    """Whether it is held, or is to be, because another run has taken over."""
    by_latch: bool = False
    """Whether it is held until a person releases it: the stream waits for that."""
    edit_refused: str = ""
    """Why an edit of its configuration has no effect: it goes on with its last valid one."""


# --- events


@dataclass(frozen=True, slots=True)
class Due:
    """The time to start it has come."""


@dataclass(frozen=True, slots=True)
class Began:
    """It is prepared, and its job has begun."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Its job has ended without an error."""

    outcome: Literal["in order", "cut short"]
    """``cut short``: tasks were killed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Its start or its job has failed, for a reason that may pass."""

    error: str
    outage: bool = False
    """Whether a cluster does not answer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot run as the configuration or its clusters are."""

    reason: str
    retry_ms: int | None = None
    """After which time it is checked again; None: only once it is edited."""


@dataclass(frozen=True, slots=True)
class Edited:
    """Its configuration is valid."""

    changed: bool = True
    """Whether it differs from the last valid one."""


@dataclass(frozen=True, slots=True)
class WrongEdit:
    """Its configuration is not valid any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """``mirror stop`` or ``mirror hold`` has asked its run to end."""

    latch: str = ""
    """Why it is held until a person releases it; empty: it was only stopped."""


@dataclass(frozen=True, slots=True)
class Latched:
    """A person has to release it before it runs again: its start or its job has ended for that reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class OtherRunClaimed:
    """Another run of the flow has taken over."""

    run: str
    host: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Nothing holds it, or what it was held for has gone."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The stream is to end, or the flow is no longer in the configuration."""

    at_once: bool = False
    """Without waiting for its tasks."""


_Holds: TypeAlias = Held | OtherRunClaimed | Latched
Event: TypeAlias = Due | Began | JobEnded | Lost | Refused | Edited | WrongEdit | _Holds | Resumed | StopAsked
Action: TypeAlias = Literal["none", "run", "stop", "cancel", "end"]
"""``run``: prepare it and run its job; ``stop``: end the job in order; ``cancel``: at once; ``end``: forget it."""
Next: TypeAlias = tuple[Supervised, Action]


# --- rules: what follows from an event. Each has one name in the table below.


def _stay(now: Supervised, _event: Event, _unix_ms: int, _backoff: Backoff) -> Next:
    return now, "none"


def _start(now: Supervised, event: Event, unix_ms: int, _backoff: Backoff) -> Next:
    """Start it, unless this is no edit. The reason stays until it runs, or fails for another one."""
    if isinstance(event, Due):
        return _enter(now, FlowState.PREPARING, unix_ms, reason=now.reason), "run"
    if isinstance(event, Edited):
        now = replace(now, edit_refused="")
        if not event.changed:
            return now, "none"
    return _enter(now, FlowState.PREPARING, unix_ms, failures=0), "run"


def _run(now: Supervised, _event: Event, unix_ms: int, _backoff: Backoff) -> Next:
    if now.then is not None:
        return now, "none"
    return _enter(now, FlowState.RUNNING, unix_ms), "none"


def _back_off(now: Supervised, event: Event, unix_ms: int, backoff: Backoff) -> Next:
    if now.then in {FlowState.HELD, FlowState.ENDED}:
        return _follow(now, event, unix_ms, backoff)
    error = event.error if isinstance(event, Lost) else "its job ended, and nothing had asked for that"
    has_recovered = now.state is FlowState.RUNNING and unix_ms - now.since_ms >= STABLE_MS
    failures = 1 if has_recovered else now.failures + 1
    until_ms = unix_ms + backoff.after(failures)
    state = _enter(now, FlowState.BACKING_OFF, unix_ms, reason=error, until_ms=until_ms, failures=failures)
    return state, "none"


def _refuse(now: Supervised, event: Event, unix_ms: int, backoff: Backoff) -> Next:
    assert isinstance(event, Refused)  # noqa: S101 - TABLE
    if now.then is not None:  # if that is an edit: what was refused is its configuration before
        return _follow(now, event, unix_ms, backoff)
    until_ms = None if event.retry_ms is None else unix_ms + event.retry_ms
    return _enter(now, FlowState.REFUSED, unix_ms, reason=event.reason, until_ms=until_ms, failures=0), "none"


def _follow(now: Supervised, event: Event, unix_ms: int, backoff: Backoff) -> Next:
    """Do what its job was asked to end for."""
    if now.then is FlowState.ENDED:
        return _end(now, event, unix_ms, backoff)
    if now.then is FlowState.HELD:
        held = _enter(now, FlowState.HELD, unix_ms, reason=now.reason, failures=0)
        return replace(held, by_other_run=now.by_other_run, by_latch=now.by_latch), "none"
    if now.then is None:
        return _back_off(now, event, unix_ms, backoff)
    if event == JobEnded("cut short"):
        # Its tasks may run on for a moment. At least once nothing fences them.
        reason = "its copies were cut short for an edit of its configuration"
        return _enter(now, FlowState.BACKING_OFF, unix_ms, reason=reason, until_ms=unix_ms + KILLED_MS), "none"
    return _start(now, event, unix_ms, backoff)


def _restart(now: Supervised, event: Event, _unix_ms: int, _backoff: Backoff) -> Next:
    assert isinstance(event, Edited)  # noqa: S101 - TABLE
    if now.then is FlowState.HELD or (now.then is None and not event.changed):
        return _keep(now, event, _unix_ms, _backoff)
    return replace(now, edit_refused="", then=FlowState.PREPARING), "stop" if now.then is None else "none"


def _keep(now: Supervised, _event: Event, _unix_ms: int, _backoff: Backoff) -> Next:
    return replace(now, edit_refused=""), "none"


def _note(now: Supervised, event: Event, _unix_ms: int, _backoff: Backoff) -> Next:
    assert isinstance(event, WrongEdit)  # noqa: S101 - TABLE
    return replace(now, edit_refused=event.reason), "none"


def _stop(now: Supervised, event: Event, _unix_ms: int, _backoff: Backoff) -> Next:
    """End its job; what it was to end for before counts no more, unless that is the end of all."""
    at_once = isinstance(event, StopAsked) and event.at_once
    action: Action = "cancel" if at_once else "stop" if now.then is None else "none"
    if isinstance(event, Held | OtherRunClaimed):
        if now.then is FlowState.ENDED:
            return now, "none"
        is_taken = isinstance(event, OtherRunClaimed)
        is_latched = isinstance(event, Held) and bool(event.latch)
        reason = _why_held(event)
        return replace(now, then=FlowState.HELD, reason=reason, by_other_run=is_taken, by_latch=is_latched), action
    reason = "" if now.then is FlowState.HELD else now.reason  # what holds it counts no more
    return replace(now, then=FlowState.ENDED, reason=reason), action


def _hold(now: Supervised, event: Event, unix_ms: int, _backoff: Backoff) -> Next:
    held = _enter(now, FlowState.HELD, unix_ms, reason=_why_held(event), failures=0)
    is_latched = isinstance(event, Held) and bool(event.latch)
    return replace(held, by_other_run=isinstance(event, OtherRunClaimed), by_latch=is_latched), "none"


def _latch(now: Supervised, event: Event, unix_ms: int, backoff: Backoff) -> Next:
    assert isinstance(event, Latched)  # noqa: S101 - TABLE
    if now.then is FlowState.ENDED:
        return _end(now, event, unix_ms, backoff)
    held = _enter(now, FlowState.HELD, unix_ms, reason=event.reason, failures=0)
    return replace(held, by_latch=True), "none"


def _why_held(event: Event) -> str:
    if isinstance(event, OtherRunClaimed):
        return f"another run of this flow took over: {event.run} on {event.host}"
    assert isinstance(event, Held)  # noqa: S101 - TABLE
    return event.latch or "mirror stop has stopped it"


def _end(now: Supervised, _event: Event, unix_ms: int, _backoff: Backoff) -> Next:
    return _enter(now, FlowState.ENDED, unix_ms, reason=now.reason), "end"


Rule: TypeAlias = "Callable[[Supervised, Event, int, Backoff], Next]"

# fmt: off
TABLE: Final[Mapping[type[Event], tuple[Rule, ...]]] = {
    # state:    preparing    running      backing off  refused      held         ended
    Due:        (_stay,       _stay,       _start,      _start,      _stay,       _stay),
    Began:      (_run,        _run,        _stay,       _stay,       _stay,       _stay),
    JobEnded:   (_follow,     _follow,     _stay,       _stay,       _stay,       _stay),
    Lost:       (_back_off,   _back_off,   _back_off,   _back_off,   _stay,       _stay),
    Refused:    (_refuse,     _refuse,     _refuse,     _refuse,     _stay,       _stay),
    Edited:     (_restart,    _restart,    _start,      _start,      _keep,       _stay),
    WrongEdit:  (_note,       _note,       _note,       _note,       _note,       _stay),
    StopAsked:  (_stop,       _stop,       _end,        _end,        _end,        _stay),
    Held:       (_stop,       _stop,       _hold,       _hold,       _hold,       _stay),
    Latched:    (_latch,      _latch,      _latch,      _latch,      _stay,       _stay),
    OtherRunClaimed:  (_stop,       _stop,       _hold,       _hold,       _hold,       _stay),
    Resumed:    (_stay,       _stay,       _stay,       _stay,       _start,      _stay),
}
# fmt: on
"""The rule for each event, by state in the order of :class:`FlowState`."""

_ORDER: Final = {state: place for place, state in enumerate(FlowState)}
NEW: Final = Supervised(FlowState.REFUSED, since_ms=0, until_ms=0)
"""A flow that has not been started."""
_NOT_RUNNING: Final = frozenset({FlowState.PREPARING, FlowState.BACKING_OFF, FlowState.REFUSED})


# Invariant: Every state but the end is left, and no event raises: a cause that goes away ends by itself.
# Test: tests/spark/supervision/test_flow_states.py::test_every_state_but_ended_is_left_and_no_event_raises
def next_state(now: Supervised, event: Event, unix_ms: int, backoff: Backoff) -> Next:
    """Return the state of a flow after ``event``, and what is to be done. ``backoff`` has the bounds above."""
    return TABLE[type(event)][_ORDER[now.state]](now, event, unix_ms, backoff)


def is_due(now: Supervised, unix_ms: int) -> bool:
    """Whether the flow is to be started."""
    return now.until_ms is not None and unix_ms >= now.until_ms


def _enter(
    now: Supervised,
    state: FlowState,
    unix_ms: int,
    *,
    reason: str = "",
    until_ms: int | None = None,
    failures: int | None = None,
    then: FlowState | None = None,
) -> Supervised:
    keeps_since = state is now.state or {state, now.state} <= _NOT_RUNNING
    return replace(
        now,
        state=state,
        since_ms=now.since_ms if keeps_since else unix_ms,
        reason=reason,
        until_ms=until_ms,
        failures=now.failures if failures is None else failures,
        then=then,
        by_other_run=False,
        by_latch=False,
    )
