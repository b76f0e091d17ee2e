"""How one range's copy went, for whoever looks later: its phases, what happened to it, its way to the end. No I/O.

The story is bounded, however long a copy takes: a curve that is full keeps every second point, and of the events the
last ones are kept. Expiries are not here but in the result, whole: nothing may push them out.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

MOST_POINTS: Final = 120
MOST_EVENTS: Final = 50
MOST_TRACES: Final = 32
MOST_SPANS: Final = 20
_FIRST_STEP_MS: Final = 100


class CopyPhase(enum.StrEnum):
    """What a copy spends its time with. One at a time: that which keeps the next from beginning."""

    __hash__ = str.__hash__  # Enum's is a Python function, and this is asked at every step

    FENCING = "fencing"
    """Shutting out earlier attempts, and reading the progress."""
    SETTLING = "settling"
    """There is no progress: whether it was forgotten."""
    FETCHING = "fetching"
    """Waiting for the source, which has more."""
    MEMORY = "memory"
    """Waiting for room: in the buffer, or in what may be under way to the target."""
    PRODUCING = "producing"
    """Waiting for the target's acknowledgements."""
    COMMITTING = "committing"
    """Waiting for the end of a transaction, or of a commit of progress."""
    LOOKING = "looking"
    """Finding out why the source does not have what comes next."""
    ABORTING = "aborting"
    """Dropping what was not committed."""
    RESTING = "resting"
    """Before it is tried again (KIP-580)."""
    IDLE = "idle"
    """Caught up: the source has nothing new."""


class EventName(enum.StrEnum):
    """What is told of a copy besides its expiries. The names of the events in its span."""

    RETRY = "mirror.retry"
    """It is begun anew: ``attempt``, ``error``, ``backoff_ms``."""
    LEADER_CHANGE = "mirror.leader_change"
    """``side`` (source, target), ``leader_epoch``, and ``node`` where it is known."""
    THROTTLED = "mirror.throttled"
    """The target had it wait (KIP-219): ``throttle_ms``."""
    GAP = "mirror.gap"
    """What the source did not have any more was passed over: ``kind``, ``offsets``."""
    FENCED = "mirror.fenced"
    """Another attempt has taken over: ``error``."""


class SpanName(enum.StrEnum):
    """A part of a copy with an end of its own."""

    CATCH_UP = "mirror.catch_up"
    """From the beginning to when the source had nothing more for the first time: ``records``, ``bytes``."""
    ATTEMPT = "mirror.attempt"
    """An attempt that did not come to its end: ``attempt``, ``error``."""


@dataclass(slots=True)
class CopyTimeline:
    """Plain values. Times are ms since 1970, or durations in ms; None where it is not known.

    ``lag_before`` and ``lag_after`` are the records that the source had, and the target had not; ``late_before_ms`` and
    ``late_after_ms`` the age of the oldest of them (0: none). ``phases`` is the time spent in each :class:`CopyPhase`.
    ``events`` have ``time_ms``, ``name`` (a :class:`EventName`) and what that says; ``events_left_out`` counts those
    that are not kept. ``curve`` has ``[time_ms, next offset to copy, the source's end, bytes copied]``, rising.
    ``commits`` counts commits, ``commit_ms`` is their time together and ``commit_max_ms`` the longest one's.
    ``traces`` are W3C trace parents that some of the copied records carried. ``spans`` are parts of the copy with an
    end of their own, the last ones: ``name`` (a :class:`SpanName`), ``began_ms``, ``ended_ms`` and what that says.
    Of a partition that was sick before: ``sick_since_ms`` is since when, ``sick_trace`` the trace parent of the epoch
    in which that began, ``last_trace`` that of the epoch before this one.
    """

    began_ms: int = 0
    ended_ms: int = 0
    lag_before: int | None = None
    lag_after: int | None = None
    late_before_ms: int | None = None
    late_after_ms: int | None = None
    phases: dict[str, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    events_left_out: int = 0
    curve: list[list[int]] = field(default_factory=list)
    commits: int = 0
    commit_ms: int = 0
    commit_max_ms: int = 0
    throttled_ms: int = 0
    traces: list[str] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)
    sick_since_ms: int | None = None
    sick_trace: str = ""
    last_trace: str = ""


class Curve:
    """A copy's way, as points that are no closer than ``step`` ms; it doubles when there are too many."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most: Final = most
        self._points: list[list[int]] = []
        self._last: list[int] | None = None
        self._step_ms = _FIRST_STEP_MS

    def add(self, time_ms: int, offset: int, end: int, size: int) -> None:
        """The copy has come to ``offset`` of ``end``, with ``size`` bytes in all."""
        point = [time_ms, offset, end, size]
        if self._points and time_ms - self._points[-1][0] < self._step_ms:
            self._last = point
            return
        self._points.append(point)
        self._last = None
        if len(self._points) > self._most:
            self._points = self._points[::2]
            self._step_ms *= 2

    def points(self) -> list[list[int]]:
        """All that are kept, and the last one."""
        return [list(one) for one in (*self._points, *([self._last] if self._last else []))]


class TimelineRecorder:
    """Writes the :class:`CopyTimeline` of one range while it is copied.

    ``wall`` is the time in ms since 1970; ``passed`` hears of each of its spans. ``begun``: :meth:`begins` was told.
    """

    def __init__(self, wall: Callable[[], int], now: int, passed: Callable[[dict[str, Any]], None]) -> None:
        self._wall: Final = wall
        self._began_ms: Final = wall()
        self._phase = CopyPhase.FENCING
        self._since_ms = now
        self._phases: Counter[CopyPhase] = Counter()
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._happened = 0
        self._curve = Curve()
        self._story = CopyTimeline()
        self._leader_epochs: dict[str, int] = {}
        self._spans: deque[dict[str, Any]] = deque(maxlen=MOST_SPANS)
        self._passed: Final = passed
        self._attempt_ms = self._began_ms
        self._place = self._heard_ms = 0
        self.end: int | None = None
        """Where the source was last heard to end."""
        self.begun = self._catching_up = False

    def enter(self, phase: CopyPhase, now: int) -> None:
        """From ``now`` on it is in ``phase``."""
        if phase is not self._phase:
            self._phases[self._phase] += now - self._since_ms
            self._phase, self._since_ms = phase, now

    def was(self, phase: CopyPhase) -> None:
        """The phase that it is in has turned out to be this one, from its beginning."""
        self._phase = phase

    @property
    def phase(self) -> CopyPhase:
        """The one it is in."""
        return self._phase

    def happened(self, what: EventName, **about: object) -> None:
        """Something that is to be told; of ``about``, what is None is left out."""
        self._happened += 1
        known = {name: value for name, value in about.items() if value is not None}
        self._events.append({"time_ms": self._wall(), "name": what.value, **known})

    def attempts(self) -> None:
        """Another attempt begins."""
        self._attempt_ms = self._wall()

    def attempted(self, attempt: int, error: str) -> None:
        """An attempt has ended before its time."""
        self._pass(SpanName.ATTEMPT, self._attempt_ms, attempt=attempt, error=error)

    def _pass(self, what: SpanName, began_ms: int, **about: object) -> None:
        span = {"name": what.value, "began_ms": began_ms, "ended_ms": self._wall(), **about}
        self._spans.append(span)
        self._passed(span)

    def led(self, side: str, leader_epoch: int | None, node: int | None = None) -> None:
        """The leader epoch that was last seen on this side, source or target."""
        if leader_epoch is None or leader_epoch < 0:
            return
        before = self._leader_epochs.get(side)
        self._leader_epochs[side] = leader_epoch
        if before is not None and before != leader_epoch:
            self.happened(EventName.LEADER_CHANGE, side=side, leader_epoch=leader_epoch, node=node)

    def throttled(self, throttle_ms: int) -> None:
        """An answer of the target asked for patience; told as one event until it is over."""
        if throttle_ms <= 0:
            return
        self._story.throttled_ms += throttle_ms
        last = self._events[-1] if self._events else None
        if last is not None and last["name"] == EventName.THROTTLED.value:
            last["throttle_ms"] += throttle_ms
        else:
            self.happened(EventName.THROTTLED, throttle_ms=throttle_ms)

    def begins(self, offset: int, end: int, first_ms: int | None) -> None:
        """The source's first answer: its end, and the time of its first record (None where there is none)."""
        story, self.begun = self._story, True
        self._place, self._heard_ms, self.end = offset, self._wall(), end
        story.lag_before = max(0, end - offset)
        story.late_before_ms = self._age_ms(story.lag_before, first_ms)
        self._catching_up = story.lag_before > 0
        self._curve.add(self._began_ms, offset, end, 0)

    def committed(
        self, offset: int, end: int | None, *, records: int, size: int, last_ms: int | None, took_ms: int
    ) -> None:
        """Progress is at ``offset``, the last record before it of time ``last_ms``; the commit took ``took_ms``.

        ``end`` is the source's, None before its first answer: the place is kept before anything is read. ``records``
        and ``size`` (bytes) are what was copied in all.
        """
        story = self._story
        story.commits += 1
        story.commit_ms += took_ms
        story.commit_max_ms = max(story.commit_max_ms, took_ms)
        if end is None:
            return
        self._curve.add(self._wall(), offset, end, size)
        lag = max(0, end - offset)
        story.lag_after, story.late_after_ms = lag, self._age_ms(lag, last_ms)
        if self._catching_up and not lag:
            self._catching_up = False
            self._pass(SpanName.CATCH_UP, self._began_ms, records=records, bytes=size)

    def carried(self, trace: str) -> None:
        """A record of this range carried a trace parent."""
        if len(self._story.traces) < MOST_TRACES and trace not in self._story.traces:
            self._story.traces.append(trace)

    def _age_ms(self, lag: int, time_ms: int | None) -> int | None:
        if not lag:
            return 0
        return None if time_ms is None or time_ms < 0 else max(0, self._wall() - time_ms)

    def _all_left(self) -> tuple[int | None, int | None]:
        """Lag (records, ms) where nothing got through: what was left at first, grown older, and what has come since."""
        if self.end is None:
            return None, None
        lag, late_ms = max(0, self.end - self._place), self._story.late_before_ms
        if not lag:
            return 0, 0
        return lag, late_ms + self._wall() - self._heard_ms if late_ms else None

    def told(self, now: int) -> CopyTimeline:
        """The story so far; it may go on."""
        phases = Counter(self._phases)
        phases[self._phase] += now - self._since_ms
        story = self._story
        lag_after, late_after_ms = story.lag_after, story.late_after_ms
        if lag_after is None:
            lag_after, late_after_ms = self._all_left()
        return CopyTimeline(
            began_ms=self._began_ms,
            ended_ms=self._wall(),
            lag_before=story.lag_before,
            lag_after=lag_after,
            late_before_ms=story.late_before_ms,
            late_after_ms=late_after_ms,
            phases={phase.value: ms for phase, ms in phases.items() if ms > 0},
            events=[dict(one) for one in self._events],
            events_left_out=self._happened - len(self._events),
            curve=self._curve.points(),
            commits=story.commits,
            commit_ms=story.commit_ms,
            commit_max_ms=story.commit_max_ms,
            throttled_ms=story.throttled_ms,
            traces=list(story.traces),
            spans=[dict(one) for one in self._spans],
        )
