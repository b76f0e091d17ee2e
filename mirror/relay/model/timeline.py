"""The timeline of one range's copy: its phases, events, spans and progress over time. No I/O.

A timeline is bounded, however long the copy takes: a curve with too many points drops every second one, and only the
latest events and spans are kept. Expiries are in the result instead, where nothing can displace them.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

MAX_POINTS: Final = 120
MAX_EVENTS: Final = 50
MAX_TRACES: Final = 32
MAX_SPANS: Final = 20
_INITIAL_INTERVAL_MS: Final = 100


class CopyPhase(enum.StrEnum):
    """What a copy spends its time on. Phases do not overlap: the one that holds up the others counts.

    The values are keys of :attr:`CopyTimeline.phases`.
    """

    FENCING = "fencing"
    """Fencing earlier attempts and reading the progress."""
    RESOLVING_PROGRESS = "settling"
    """Comparing the target's log with the progress, or finding out whether the brokers forgot the progress."""
    FETCHING = "fetching"
    """Waiting for the source, which has more."""
    MEMORY = "memory"
    """Waiting for room in the buffer or in the send window."""
    PRODUCING = "producing"
    """Waiting for the target's acknowledgements."""
    COMMITTING = "committing"
    """Waiting for the end of a transaction, or of a commit of progress."""
    CHECKING_SOURCE = "looking"
    """Finding out why the source does not have the next offset."""
    ABORTING = "aborting"
    """Dropping what was not committed."""
    BACKING_OFF = "resting"
    """Waiting before a retry (KIP-580)."""
    IDLE = "idle"
    """Caught up: the source has nothing new."""


class EventName(enum.StrEnum):
    """The names of a copy's events in its span. Expiries are recorded elsewhere."""

    RETRY = "mirror.retry"
    """An attempt failed and the copy is retried: ``attempt``, ``error``, ``backoff_ms``."""
    LEADER_CHANGE = "mirror.leader_change"
    """``side`` (source, target), ``leader_epoch``, and ``node`` if it is known."""
    THROTTLED = "mirror.throttled"
    """The target throttled the copy (KIP-219): ``throttle_ms``."""
    GAP = "mirror.gap"
    """Source offsets that no longer exist were skipped: ``kind``, ``offsets``."""
    TARGET_LOSS = "mirror.target_loss"
    """The target lost records: ``kind``, ``target_start``, ``target_end``; ``start``, ``end`` of what is sent again."""
    FENCED = "mirror.fenced"
    """Another attempt has taken over: ``error``."""


class SpanName(enum.StrEnum):
    """The names of the parts of a copy that have a start and an end of their own."""

    CATCH_UP = "mirror.catch_up"
    """From the start until the source had nothing more for the first time: ``records``, ``bytes``."""
    ATTEMPT = "mirror.attempt"
    """An attempt that failed: ``attempt``, ``error``."""


@dataclass(slots=True)
class CopyTimeline:
    """Plain values; the field names are JSON keys.

    Times are in ms since 1970, or durations in ms; None means not known.
    """

    began_ms: int = 0
    ended_ms: int = 0
    lag_before: int | None = None
    """Records that the source had and the target had not, at the start; ``lag_after``: at the end."""
    lag_after: int | None = None
    late_before_ms: int | None = None
    """The age of the oldest of these records, at the start; 0: none. ``late_after_ms``: at the end."""
    late_after_ms: int | None = None
    phases: dict[str, int] = field(default_factory=dict)
    """The time spent in each :class:`CopyPhase`."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """The latest events: ``time_ms``, ``name`` (an :class:`EventName`) and the attributes documented there."""
    events_left_out: int = 0
    """How many earlier events were dropped."""
    curve: list[list[int]] = field(default_factory=list)
    """``[time_ms, next offset to copy, the source's end, bytes copied]``, by rising time."""
    commits: int = 0
    commit_ms: int = 0
    """The duration of all commits together."""
    commit_max_ms: int = 0
    throttled_ms: int = 0
    traces: list[str] = field(default_factory=list)
    """W3C trace parents that some of the copied records carried."""
    spans: list[dict[str, Any]] = field(default_factory=list)
    """The latest spans: ``name`` (a :class:`SpanName`), ``began_ms``, ``ended_ms`` and the attributes documented there.
    """
    sick_since_ms: int | None = None
    """Since when the partition has been unhealthy; None: it was healthy before this plan."""
    sick_trace: str = ""
    """The trace parent of the period in which that started."""
    last_trace: str = ""
    """The trace parent of the period before this one."""


class ProgressCurve:
    """A copy's progress as points at least ``_interval_ms`` apart; it doubles if there are too many points."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points: Final = max_points
        self._points: list[list[int]] = []
        self._last: list[int] | None = None
        self._interval_ms = _INITIAL_INTERVAL_MS

    def add(self, time_ms: int, offset: int, end: int, size: int) -> None:
        """Record that the copy has reached ``offset`` of ``end``, with ``size`` bytes in all."""
        point = [time_ms, offset, end, size]
        if self._points and time_ms - self._points[-1][0] < self._interval_ms:
            self._last = point
            return
        self._points.append(point)
        self._last = None
        if len(self._points) > self._max_points:
            self._points = self._points[::2]
            self._interval_ms *= 2

    def points(self) -> list[list[int]]:
        """Return the points of the curve, the latest one included."""
        return [list(point) for point in (*self._points, *([self._last] if self._last else []))]


class TimelineRecorder:
    """Records the :class:`CopyTimeline` of one range while it is copied."""

    def __init__(self, unix_ms: Callable[[], int], now: int, span_ended: Callable[[dict[str, Any]], None]) -> None:
        """``unix_ms`` returns the time in ms since 1970; ``span_ended`` is called with each span."""
        self._unix_ms: Final = unix_ms
        self._began_ms: Final = unix_ms()
        self._phase = CopyPhase.FENCING
        self._phase_since_ms = now
        self._phases: Counter[CopyPhase] = Counter()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._event_count = 0
        self._curve = ProgressCurve()
        self._timeline = CopyTimeline()
        self._leader_epochs: dict[str, int] = {}
        self._spans: deque[dict[str, Any]] = deque(maxlen=MAX_SPANS)
        self._span_ended: Final = span_ended
        self._attempt_began_ms = self._began_ms
        self._start_offset = self._started_ms = 0
        self.source_end: int | None = None
        """The source's end in its latest response."""
        self.started = False
        """Whether :meth:`start` was called."""
        self._catching_up = False

    def next_period(self, now: int) -> TimelineRecorder:
        """Return the recorder of the period that begins now, while the copy goes on."""
        following = TimelineRecorder(self._unix_ms, now, self._span_ended)
        following._phase, following._leader_epochs = self._phase, self._leader_epochs
        following._attempt_began_ms = self._attempt_began_ms
        if self.started and self.source_end is not None:
            last = self.snapshot(now)
            following.start(self.source_end - (last.lag_after or 0), self.source_end, None)
            following._timeline.late_before_ms = last.late_after_ms
            following._catching_up = self._catching_up
        return following

    def enter(self, phase: CopyPhase, now: int) -> None:
        """Enter ``phase`` at ``now``."""
        if phase is not self._phase:
            self._phases[self._phase] += now - self._phase_since_ms
            self._phase, self._phase_since_ms = phase, now

    def relabel_phase(self, phase: CopyPhase) -> None:
        """Count the current phase, from its start, as ``phase``: only now it is known what the copy waited for."""
        self._phase = phase

    @property
    def phase(self) -> CopyPhase:
        """The current phase."""
        return self._phase

    def add_event(self, name: EventName, **attributes: object) -> None:
        """Add an event; attributes that are None are left out."""
        self._event_count += 1
        set_attributes = {key: value for key, value in attributes.items() if value is not None}
        self._events.append({"time_ms": self._unix_ms(), "name": name.value, **set_attributes})

    def attempt_started(self) -> None:
        """Start another attempt."""
        self._attempt_began_ms = self._unix_ms()

    def attempt_ended(self, attempt: int, error: str) -> None:
        """Add the span of an attempt that has failed."""
        self._add_span(SpanName.ATTEMPT, self._attempt_began_ms, attempt=attempt, error=error)

    def _add_span(self, name: SpanName, began_ms: int, **attributes: object) -> None:
        span = {"name": name.value, "began_ms": began_ms, "ended_ms": self._unix_ms(), **attributes}
        self._spans.append(span)
        self._span_ended(span)

    def leader_observed(self, side: str, leader_epoch: int | None, node: int | None = None) -> None:
        """Add an event if the leader epoch of this side (source or target) differs from the one observed before."""
        if leader_epoch is None or leader_epoch < 0:
            return
        before = self._leader_epochs.get(side)
        self._leader_epochs[side] = leader_epoch
        if before is not None and before != leader_epoch:
            self.add_event(EventName.LEADER_CHANGE, side=side, leader_epoch=leader_epoch, node=node)

    def throttled(self, throttle_ms: int) -> None:
        """Count a throttle time of the target; consecutive ones are one event."""
        if throttle_ms <= 0:
            return
        self._timeline.throttled_ms += throttle_ms
        last = self._events[-1] if self._events else None
        if last is not None and last["name"] == EventName.THROTTLED.value:
            last["throttle_ms"] += throttle_ms
        else:
            self.add_event(EventName.THROTTLED, throttle_ms=throttle_ms)

    def start(self, offset: int, end: int, first_ms: int | None) -> None:
        """Record the source's first response: its end, and the timestamp of its first record (None: no record)."""
        timeline, self.started = self._timeline, True
        self._start_offset, self._started_ms, self.source_end = offset, self._unix_ms(), end
        timeline.lag_before = max(0, end - offset)
        timeline.late_before_ms = self._age_ms(timeline.lag_before, first_ms)
        self._catching_up = timeline.lag_before > 0
        self._curve.add(self._began_ms, offset, end, 0)

    def committed(
        self, offset: int, end: int | None, *, records: int, size: int, last_ms: int | None, took_ms: int
    ) -> None:
        """Record a commit of progress at ``offset`` that took ``took_ms``.

        ``last_ms`` is the timestamp of the last record before ``offset``. ``end`` is the source's, None before its
        first response: the start position is committed before anything is read. ``records`` and ``size`` (bytes) are
        what was copied in all.
        """
        timeline = self._timeline
        timeline.commits += 1
        timeline.commit_ms += took_ms
        timeline.commit_max_ms = max(timeline.commit_max_ms, took_ms)
        if end is None:
            return
        self._curve.add(self._unix_ms(), offset, end, size)
        lag = max(0, end - offset)
        timeline.lag_after, timeline.late_after_ms = lag, self._age_ms(lag, last_ms)
        if self._catching_up and not lag:
            self._catching_up = False
            self._add_span(SpanName.CATCH_UP, self._began_ms, records=records, bytes=size)

    def add_trace(self, trace: str) -> None:
        """Add the trace parent that a record of this range carried."""
        if len(self._timeline.traces) < MAX_TRACES and trace not in self._timeline.traces:
            self._timeline.traces.append(trace)

    def _age_ms(self, lag: int, time_ms: int | None) -> int | None:
        if not lag:
            return 0
        return None if time_ms is None or time_ms < 0 else max(0, self._unix_ms() - time_ms)

    def _lag_without_commit(self) -> tuple[int | None, int | None]:
        """Return the lag (records, ms) if nothing was committed: the initial lag, aged, and what was added since."""
        if self.source_end is None:
            return None, None
        lag, late_ms = max(0, self.source_end - self._start_offset), self._timeline.late_before_ms
        if not lag:
            return 0, 0
        return lag, late_ms + self._unix_ms() - self._started_ms if late_ms else None

    def snapshot(self, now: int) -> CopyTimeline:
        """Return the timeline so far; recording may continue."""
        phases = Counter(self._phases)
        phases[self._phase] += now - self._phase_since_ms
        timeline = self._timeline
        lag_after, late_after_ms = timeline.lag_after, timeline.late_after_ms
        if lag_after is None:
            lag_after, late_after_ms = self._lag_without_commit()
        return CopyTimeline(
            began_ms=self._began_ms,
            ended_ms=self._unix_ms(),
            lag_before=timeline.lag_before,
            lag_after=lag_after,
            late_before_ms=timeline.late_before_ms,
            late_after_ms=late_after_ms,
            phases={phase.value: ms for phase, ms in phases.items() if ms > 0},
            events=[dict(event) for event in self._events],
            events_left_out=self._event_count - len(self._events),
            curve=self._curve.points(),
            commits=timeline.commits,
            commit_ms=timeline.commit_ms,
            commit_max_ms=timeline.commit_max_ms,
            throttled_ms=timeline.throttled_ms,
            traces=list(timeline.traces),
            spans=[dict(span) for span in self._spans],
        )
