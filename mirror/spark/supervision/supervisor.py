"""Supervises the flows of a stream: each runs, or is tried again once what keeps it from running may have gone.

::

    configuration file ──ConfigFile──► Edited, Removed ──┐
    signals ───────────────────────────► StopAsked ──────┤
    clock ─────────────────────────────► Due ────────────┼──► next_state ──► FlowWorker (a thread per flow) ──► Stream
    streams, and polls of waiting flows ► Lost, Held ... ┘         └──► on_change: log, status, metrics
"""

from __future__ import annotations

import contextlib
import math
import queue
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from mirror.backoff import Backoff
from mirror.runtime.clock import SystemClock, process_rng
from mirror.spark.supervision.config_file import FlowSettings, merged
from mirror.spark.supervision.flow_worker import IDLE_S, FlowWorker
from mirror.spark.supervision.states import (
    MAX_BACKOFF_MS,
    MIN_BACKOFF_MS,
    Due,
    Edited,
    Event,
    FlowState,
    JobEnded,
    Lost,
    Removed,
    StopAsked,
    Supervised,
    WrongEdit,
    is_due,
    next_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.config.models import MirrorConfig
    from mirror.spark.supervision.config_file import ConfigFile, Edit
    from mirror.spark.supervision.flow_worker import Stream

STEP_S: Final = 0.2
"""How soon a signal and the clock are noticed. Events of flows are noticed at once."""
POLL_S: Final = 1.0
"""How often the configuration file is read."""
_LEAVE_S: Final = 3.0
"""How long the end of a stream waits for its flows' threads, which may wait for a cluster."""
_GRACE_S: Final = 10.0
"""How long after ``shutdown-timeout-ms`` a stream is cancelled that has not ended, and given up after as long again."""
_OVER: Final = frozenset({FlowState.HELD, FlowState.ENDED})
_ACTIVE: Final = frozenset({FlowState.PREPARING, FlowState.RUNNING})
_FAILED: Final = frozenset({FlowState.BACKING_OFF, FlowState.REFUSED})


class Site(Protocol):
    """What the supervisor supervises with."""

    # In the flow's thread:

    def open(self, settings: FlowSettings) -> Stream:
        """Check a flow, and return a new stream of it. An exception is an event: see :meth:`event_of`."""

    def event_of(self, flow: str, error: BaseException) -> Event:
        """Return what ``error`` of a stream, or of another call in the flow's thread, is: ``Lost`` or ``Refused``."""

    def idle(self, settings: FlowSettings, now: Supervised) -> Event | None:
        """Look for what a flow that does not run awaits."""

    def leave(self, settings: FlowSettings) -> None:
        """Do what is left to do for a flow of which nothing runs any more."""

    # In the main thread:

    def gives_up(self, flow: str, now: Supervised) -> bool:
        """Whether a flow that has failed or was refused is not to be started again."""

    def on_change(self, name: str, settings: FlowSettings | None, before: Supervised | None, now: Supervised) -> None:
        """Report a change; ``before`` is None for a flow that is new, ``settings`` for one that was always wrong."""

    def on_edit(self, flow: str, keys: list[str]) -> None:
        """Report that an edit has changed these keys of a flow."""

    def on_removal(self, flow: str) -> None:
        """Report that a flow is no longer in the file."""

    def on_file(self, error: str) -> None:
        """Report why the file is wrong as a whole, one line for each problem; "" if an edit has left it valid."""

    def tick(self) -> int:
        """Do what is due, and return how many signals have asked the stream to end."""


@dataclass(slots=True)
class _Flow:
    name: str
    settings: FlowSettings | None
    """None: it has been wrong since it was added to the file."""
    now: Supervised
    worker: FlowWorker
    edits: int = 0
    deadline_s: float = math.inf
    """Until when it is to have ended as it was asked to."""
    is_cancelled: bool = False


class Supervisor:
    """For the driver's main thread. A flow's events are applied one after the other, in this thread."""

    def __init__(
        self,
        site: Site,
        config: MirrorConfig,
        file: ConfigFile,
        *,
        only: str | None = None,
        unix_ms: Callable[[], int] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        idle_s: float = IDLE_S,
    ) -> None:
        """Supervise all flows of ``config``, or the one with the name ``only``."""
        self._site: Final = site
        self._config = config
        self._file: Final = file
        self._only: Final = only
        self._unix_ms: Final = unix_ms or SystemClock().unix_ms
        self._now_s: Final = now_s
        self._idle_s: Final = idle_s
        self._backoff: Final = Backoff(MIN_BACKOFF_MS, MAX_BACKOFF_MS, process_rng())
        self._events: Final[queue.SimpleQueue[tuple[str, FlowWorker, Event, bool]]] = queue.SimpleQueue()
        self._flows: Final = dict[str, _Flow]()
        self._leaving: Final = list[FlowWorker]()
        self._signals = 0
        self._poll_s = now_s() + POLL_S
        for name in filter(self._is_wanted, config.flows):
            self._add(name)

    @property
    def states(self) -> Mapping[str, Supervised]:
        """The state of each flow that is or was in the file."""
        return {name: flow.now for name, flow in self._flows.items()}

    def run(self) -> None:
        """Supervise until each flow has ended or is held."""
        while any(flow.now.state not in _OVER for flow in self._flows.values()):
            self.step()
        for flow in self._flows.values():
            self._apply(flow, StopAsked())
        until_s = time.monotonic() + _LEAVE_S
        for worker in self._leaving:
            worker.join(max(0.0, until_s - time.monotonic()))

    def step(self) -> None:
        """Do what is due now, and apply the events that come within :data:`STEP_S`."""
        self._obey(self._site.tick())
        if not self._signals and self._now_s() >= self._poll_s:
            self._poll_s = self._now_s() + POLL_S
            if (edit := self._file.poll()) is not None:
                self._edit(edit)
        for flow in list(self._flows.values()):
            self._attend(flow)
        with contextlib.suppress(queue.Empty):
            found = self._events.get(timeout=STEP_S)
            while True:
                self._take(*found)
                found = self._events.get_nowait()

    def _obey(self, signals: int) -> None:
        if signals > self._signals:
            self._signals = signals
            for flow in self._flows.values():
                self._apply(flow, StopAsked(at_once=signals > 1))

    def _attend(self, flow: _Flow) -> None:
        """Do what the time, or the end of its thread, demands for a flow."""
        if flow.now.state is FlowState.ENDED:
            return
        if not flow.worker.is_alive:
            flow.worker = self._worker(flow.name)
            self._apply(flow, Lost("its thread has ended"))
        elif flow.now.state in _ACTIVE:
            self._enforce_deadline(flow)
        elif flow.now.state in _FAILED and self._site.gives_up(flow.name, flow.now):
            self._apply(flow, StopAsked())
        elif is_due(flow.now, self._unix_ms()):
            self._apply(flow, Due())

    def _enforce_deadline(self, flow: _Flow) -> None:
        if self._now_s() < flow.deadline_s:
            return
        if not flow.is_cancelled:
            flow.is_cancelled, flow.deadline_s = True, self._now_s() + _GRACE_S
            flow.worker.stop(at_once=True)
        else:
            self._abandon(flow)
            self._apply(flow, Lost("it has not ended as it was asked to"))

    def _take(self, name: str, worker: FlowWorker, event: Event, from_idle: bool) -> None:
        flow = self._flows[name]
        if flow.worker is not worker:
            return  # it was abandoned
        if from_idle and flow.now.state in _ACTIVE:
            return  # the flow was started meanwhile, and will find out itself
        self._apply(flow, event)

    def _apply(self, flow: _Flow, event: Event) -> None:
        before = flow.now
        flow.now, action = next_state(before, event, self._unix_ms(), self._backoff)
        if flow.now != before:
            self._site.on_change(flow.name, flow.settings, before, flow.now)
        match action:
            case "run":
                assert flow.settings is not None  # noqa: S101 - without, it is refused until it is edited
                flow.deadline_s, flow.is_cancelled = math.inf, False
                flow.worker.run(partial(self._site.open, flow.settings))
            case "stop" | "cancel":
                self._end(flow, at_once=action == "cancel")
            case "end":
                leave = bool if flow.settings is None else partial(self._site.leave, flow.settings)
                flow.worker.close(leave)
                self._leaving.append(flow.worker)

    def _end(self, flow: _Flow, *, at_once: bool) -> None:
        timeout_ms = 0 if at_once or flow.settings is None else flow.settings.flow.shutdown_timeout_ms
        flow.deadline_s, flow.is_cancelled = self._now_s() + timeout_ms / 1000 + _GRACE_S, at_once
        if not flow.worker.stop(at_once=at_once):
            # Its check may wait for a cluster, and has changed nothing.
            self._abandon(flow)
            self._apply(flow, JobEnded("in order"))

    def _abandon(self, flow: _Flow) -> None:
        """Leave the thread of a flow to itself, which may hang."""
        flow.worker.close()
        flow.worker = self._worker(flow.name)

    def _worker(self, name: str) -> FlowWorker:
        def post(worker: FlowWorker, event: Event, from_idle: bool) -> None:
            self._events.put((name, worker, event, from_idle))

        def idle() -> Event | None:
            flow = self._flows.get(name)
            return None if flow is None or flow.settings is None else self._site.idle(flow.settings, flow.now)

        return FlowWorker(name, post, idle, partial(self._site.event_of, name), idle_s=self._idle_s)

    # --- the configuration

    def _is_wanted(self, name: str) -> bool:
        return self._only in (None, name)

    def _add(self, name: str, wrong: str = "") -> None:
        settings = FlowSettings(self._config, self._config.flows[name]) if name in self._config.flows else None
        now = Supervised(FlowState.WANTED, self._unix_ms(), config="0")
        if wrong:
            now = Supervised(FlowState.REFUSED, self._unix_ms(), config="0", reason=wrong)
        self._flows[name] = _Flow(name, settings, now, self._worker(name))
        self._site.on_change(name, settings, None, now)

    def _edit(self, edit: Edit) -> None:
        """Apply what the file says now. A flow whose own edit is wrong goes on with its last valid configuration."""
        if edit.config is None:
            self._site.on_file(edit.error)
            return
        self._site.on_file("")
        known = {name: flow for name, flow in self._flows.items() if flow.now.state is not FlowState.ENDED}
        kept = {name: known[name].settings for name in edit.wrong if name in known}
        self._config = merged(edit.config, [settings for settings in kept.values() if settings is not None])
        for name, flow in known.items():
            if name in edit.wrong:
                self._apply(flow, WrongEdit(edit.wrong[name]))
            elif name not in edit.config.flows:
                self._site.on_removal(name)
                self._apply(flow, Removed())
            else:
                self._apply_edit(flow)
        for name in filter(self._is_wanted, (*edit.config.flows, *edit.wrong)):
            if name not in known:
                self._add(name, edit.wrong.get(name, ""))

    def _apply_edit(self, flow: _Flow) -> None:
        before, flow.settings = flow.settings, FlowSettings(self._config, self._config.flows[flow.name])
        keys = [] if before is None else before.changed_keys(flow.settings)
        if keys or before is None:
            flow.edits += 1
            self._site.on_edit(flow.name, keys)
        self._apply(flow, Edited(str(flow.edits)))
