"""Supervises the flows of a stream: each runs, or is tried again once what keeps it from running may have gone.

::

    configuration file ──ConfigFile──► Edited, StopAsked ┐
    signals ───────────────────────────► StopAsked ──────┤
    clock ─────────────────────────────► Due ────────────┼──► next_state ──► Start (a thread for each) ──► a stream
    starts, and control of flows ──────► Lost, Held ... ─┘         └──► on_change: log, status, metrics
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from mirror.backoff import Backoff
from mirror.runtime.clock import SystemClock, process_rng
from mirror.spark.supervision.config_file import LoadedFlow, merged
from mirror.spark.supervision.flow_states import (
    MAX_BACKOFF_MS,
    MIN_BACKOFF_MS,
    NEW,
    Due,
    Edited,
    Event,
    FlowState,
    JobEnded,
    Lost,
    StopAsked,
    Supervised,
    WrongEdit,
    is_due,
    next_state,
)
from mirror.spark.supervision.start import Start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.config.models import MirrorConfig
    from mirror.spark.supervision.config_file import ConfigFile, Edit
    from mirror.spark.supervision.start import SupervisedStream

STEP_S: Final = 0.2
"""How soon the clock is noticed while a flow is not running. Events of flows, and signals, are noticed at once."""
IDLE_STEP_S: Final = 1.0
"""As :data:`STEP_S`, while all flows run."""
POLL_S: Final = 1.0
"""How often the configuration file is read."""
_LEAVE_S: Final = 3.0
"""How long the end of a stream waits for its flows' threads, which may wait for a cluster."""
_GRACE_S: Final = 10.0
"""How long after ``shutdown-timeout-ms`` a stream is cancelled that has not ended, and given up after as long again."""
_OVER: Final = frozenset({FlowState.HELD, FlowState.ENDED})
_ACTIVE: Final = frozenset({FlowState.PREPARING, FlowState.RUNNING})
_FAILED: Final = frozenset({FlowState.BACKING_OFF, FlowState.REFUSED})


class FlowSite(Protocol):
    """What the supervisor supervises one flow with."""

    # In the thread of a start:

    def open(self, settings: LoadedFlow) -> SupervisedStream:
        """Check the flow, and return a new stream of it. An exception is an event: see :meth:`event_of`."""

    def use(self, stream: SupervisedStream) -> None:
        """Take what :meth:`open` has returned for the flow's stream: it runs next."""

    def event_of(self, error: BaseException) -> Event:
        """Return what ``error`` of a start is: ``Lost`` or ``Refused``."""

    # In the main thread:

    def gives_up(self, now: Supervised) -> bool:
        """Whether the flow, which has failed or was refused, is not to be started again."""

    def on_change(self, settings: LoadedFlow | None, before: Supervised, now: Supervised) -> None:
        """Report a change of the state or the settings, which are None for a flow that was always wrong."""

    def on_edit(self, keys: list[str]) -> None:
        """Report that an edit has changed these keys."""

    def on_removal(self) -> None:
        """Report that the flow is no longer in the file."""

    # In a thread of its own:

    def leave(self) -> None:
        """Do what is left to do once nothing of the flow runs any more."""


class Site(Protocol):
    """What the supervisor supervises with, in the main thread."""

    def add(self, flow: str, post: Callable[[Event], None]) -> FlowSite:
        """Return the site of a flow that is added; ``post`` may be called from any thread."""

    def on_file(self, error: str) -> None:
        """Report why the file is wrong as a whole, one line for each problem; "" if an edit has left it valid."""

    def tick(self) -> int:
        """Do what is due, and return how many signals have asked the stream to end."""


@dataclass(slots=True, eq=False)
class _Flow:
    name: str
    site: FlowSite
    settings: LoadedFlow | None = None
    """None: it has been wrong since it was added to the file."""
    now: Supervised = NEW
    start: Start | None = None
    """The last one, unless it was given up."""
    deadline_s: float = math.inf
    """Until when it is to have ended as it was asked to."""
    is_cancelled: bool = False


# Invariant: Each flow runs whenever it can: an edit, an addition or a removal concerns its own flow, a wrong edit
#   changes nothing, and nor does a late thread of a start that was given up.
# Test: tests/spark/supervision/test_supervisor.py::test_flows_are_added_and_removed_while_the_others_run
# Test: tests/spark/supervision/test_supervisor.py::test_a_start_that_was_given_up_changes_nothing_of_the_next_one
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
    ) -> None:
        """Supervise all flows of ``config``, or the one with the name ``only``."""
        self._site: Final = site
        self._config = config
        self._file: Final = file
        self._only: Final = only
        self._unix_ms: Final = unix_ms or SystemClock().unix_ms
        self._now_s: Final = now_s
        self._backoff: Final = Backoff(MIN_BACKOFF_MS, MAX_BACKOFF_MS, process_rng())
        self._events: Final[queue.SimpleQueue[tuple[_Flow, Start | None, Event] | None]] = queue.SimpleQueue()
        """None only ends a wait."""
        self._flows: Final = dict[str, _Flow]()
        self._leaving: Final = list[threading.Thread]()
        self._signals = 0
        self._poll_s = now_s() + POLL_S
        for name in filter(self._is_wanted, config.flows):
            self._add(name)

    @property
    def states(self) -> Mapping[str, Supervised]:
        """The state of each flow that is or was in the file."""
        return {name: flow.now for name, flow in self._flows.items()}

    def run(self) -> None:
        """Supervise until each flow has ended or was stopped. Whatever ends this, no flow goes on.

        One that its latch holds is waited for: what starts the stream again would only find it held again.
        """
        try:
            while any(flow.now.state not in _OVER or flow.now.by_latch for flow in self._flows.values()):
                self.step()
        finally:
            for flow in self._flows.values():
                self._apply(flow, StopAsked(at_once=True))
            until_s = time.monotonic() + _LEAVE_S
            for thread in self._leaving:
                thread.join(max(0.0, until_s - time.monotonic()))

    def wake(self) -> None:
        """Have a signal noticed at once; may be called from its handler."""
        self._events.put(None)

    def step(self) -> None:
        """Do what is due now, and apply the events that come until more is due."""
        self._obey(self._site.tick())
        if not self._signals and self._now_s() >= self._poll_s:
            self._poll_s = self._now_s() + POLL_S
            if (edit := self._file.poll()) is not None:
                self._edit(edit)
        for flow in list(self._flows.values()):
            self._attend(flow)
        is_idle = all(flow.now.state is FlowState.RUNNING for flow in self._flows.values())
        with contextlib.suppress(queue.Empty):
            found = self._events.get(timeout=IDLE_STEP_S if is_idle else STEP_S)
            while True:
                if found is not None:
                    self._take(*found)
                found = self._events.get_nowait()

    def _obey(self, signals: int) -> None:
        if signals > self._signals:
            self._signals = signals
            for flow in self._flows.values():
                self._apply(flow, StopAsked(at_once=signals > 1))

    def _attend(self, flow: _Flow) -> None:
        """Do what the time demands for a flow."""
        if flow.now.state in _ACTIVE:
            self._enforce_deadline(flow)
        elif is_due(flow.now, self._unix_ms()):
            self._apply(flow, Due())
        elif flow.now.state in _FAILED and flow.site.gives_up(flow.now):
            self._apply(flow, StopAsked())

    def _enforce_deadline(self, flow: _Flow) -> None:
        if self._now_s() < flow.deadline_s:
            return
        if not flow.is_cancelled and flow.start is not None:
            flow.is_cancelled, flow.deadline_s = True, self._now_s() + _GRACE_S
            flow.start.stop(at_once=True)
        else:
            flow.start = None  # its thread is left to itself: it may hang
            self._apply(flow, Lost("it has not ended as it was asked to"))

    def _take(self, flow: _Flow, start: Start | None, event: Event) -> None:
        if start is None or start is flow.start:  # otherwise it was given up
            self._apply(flow, event)

    def _apply(self, flow: _Flow, event: Event) -> None:
        before = flow.now
        flow.now, action = next_state(before, event, self._unix_ms(), self._backoff)
        if flow.now != before or event == Edited():  # a held flow stays held, and may have another target
            flow.site.on_change(flow.settings, before, flow.now)
        match action:
            case "run":
                self._start(flow)
            case "stop" | "cancel":
                self._end(flow, at_once=action == "cancel")
            case "end":
                thread = threading.Thread(target=flow.site.leave, name=f"mirror-leave-{flow.name}", daemon=True)
                thread.start()
                self._leaving.append(thread)

    def _start(self, flow: _Flow) -> None:
        assert flow.settings is not None  # noqa: S101 - without, it is refused until it is edited
        flow.deadline_s, flow.is_cancelled = math.inf, False

        def post(start: Start, event: Event) -> None:
            self._events.put((flow, start, event))

        site = flow.site
        flow.start = Start(flow.name, partial(site.open, flow.settings), site.use, site.event_of, post)

    def _end(self, flow: _Flow, *, at_once: bool) -> None:
        timeout_ms = 0 if at_once or flow.settings is None else flow.settings.flow.shutdown_timeout_ms
        flow.deadline_s, flow.is_cancelled = self._now_s() + timeout_ms / 1000 + _GRACE_S, at_once
        if flow.start is None or not flow.start.stop(at_once=at_once):
            # Its check may wait for a cluster, and has changed nothing.
            flow.start = None
            self._apply(flow, JobEnded("in order"))

    # --- the configuration

    def _is_wanted(self, name: str) -> bool:
        return self._only in (None, name)

    def _add(self, name: str, wrong: str = "") -> None:
        def post(event: Event) -> None:
            self._events.put((flow, None, event))

        flow = self._flows[name] = _Flow(name, self._site.add(name, post))
        if wrong:
            flow.now = replace(flow.now, since_ms=self._unix_ms(), reason=wrong, until_ms=None)
            flow.site.on_change(None, NEW, flow.now)
        else:
            flow.now = replace(flow.now, since_ms=self._unix_ms())
            flow.settings = LoadedFlow(self._config, self._config.flows[name])

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
                flow.site.on_removal()
                self._apply(flow, StopAsked())
            else:
                self._apply_edit(flow)
        for name in filter(self._is_wanted, (*edit.config.flows, *edit.wrong)):
            if name not in known:
                self._add(name, edit.wrong.get(name, ""))

    def _apply_edit(self, flow: _Flow) -> None:
        before, flow.settings = flow.settings, LoadedFlow(self._config, self._config.flows[flow.name])
        keys = [] if before is None else before.changed_keys(flow.settings)
        if changed := bool(keys) or before is None:
            flow.site.on_edit(keys)
        self._apply(flow, Edited(changed))
