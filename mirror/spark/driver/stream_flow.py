"""One flow of a stream: how it is started and followed, and what people see of it."""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from mirror.errors import ConfigError, FlowError, FlowHeld, LatchMoved, MirrorError, MirrorMakerResumed, NotRetriable
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import StatusWriter
from mirror.relay.progress.status_values import RunState
from mirror.spark.clusters import is_away
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.telemetry_bridge import describe_flow
from mirror.spark.ledger.initial_partitions import InitialPartitions
from mirror.spark.ledger.results import FlowReport
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.supervision.flow_states import FlowState, Latched, Lost, Refused, Resumed
from mirror.spark.tasks.options import FlowOptions
from mirror.telemetry.metrics.record_results import record_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from mirror.spark.driver.job_options import JobOptions
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.driver.rounds.outages import ClusterOutages
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.spark.supervision.config_file import LoadedFlow
    from mirror.spark.supervision.flow_states import Event, Supervised
    from mirror.spark.supervision.start import SupervisedStream
    from mirror.telemetry.run_telemetry import RunTelemetry

_CLOSE_MS: Final = 1_000
_ACTIVE: Final = frozenset({FlowState.PREPARING, FlowState.RUNNING})
_FAILED: Final = frozenset({FlowState.BACKING_OFF, FlowState.REFUSED})
_AFTER_EDIT: Final = {
    **dict.fromkeys(_ACTIVE, "it ends in order and restarts"),
    FlowState.HELD: "that takes effect once it is resumed",
}
"""What becomes of an edited flow, by its state; one in another state is started."""


class NoFreeSlot(FlowError):
    """Spark has no task slot for a flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts:
    """What the flows of a stream share."""

    context: SparkContext
    options: JobOptions
    consoles: Consoles
    telemetry: RunTelemetry
    outages: ClusterOutages
    give_up_s: float
    """Until when a flow that has never run waits for its clusters, in monotonic seconds."""
    check: Callable[[LoadedFlow], Findings]
    """Returns the findings about a flow that may run. Raises MirrorError for another one."""
    take_slots: Callable[[StreamFlow], int]
    """Returns how many tasks a flow may have. Raises NoFreeSlot."""
    has_lost_spark: Callable[[], bool]
    summarize: Callable[[], None]
    """Writes the summary."""


class StreamFlow:
    """See :class:`mirror.spark.supervision.supervisor.FlowSite`."""

    def __init__(self, parts: StreamParts, name: str, post: Callable[[Event], None]) -> None:
        """``post`` gets what the flow's control finds."""
        self.name: Final = name
        self.report = FlowReport(name, datetime.now(UTC))
        """Of its last run."""
        self.ledger: Ledger | None = None
        """Of its last run, too."""
        self.state = FlowState.REFUSED
        self.slots = 0
        """How many task slots it has."""
        self._parts: Final = parts
        self._post: Final = post
        self._refresh_ms = 0
        """How often it is checked again while it is refused."""
        self._has_begun = self._is_removed = False
        self._initial: Final = InitialPartitions()
        self._control: ControlRecordThread | None = None
        self._writer: StatusWriter | None = None
        self._written: RunState | None = None
        """The state that was reported last."""
        self._said: object = None
        """What was last printed about its state."""

    # --- in the thread of a start

    def open(self, settings: LoadedFlow) -> FlowRun:
        """Check the flow, and return a run of it. Raises MirrorError."""
        control, parts, options = self._control, self._parts, self._parts.options
        assert control is not None  # noqa: S101 - on_change has opened it
        run = control.begin()
        findings = parts.check(settings)
        slots = parts.take_slots(self)
        ledger = options.report_dir.absolute() / "ledger" / self.name / run
        secrets_dir = options.secrets_dir.absolute() if options.secrets_dir else None
        return FlowRun(
            lambda: parts.context,
            settings.config,
            settings.flow,
            FlowOptions(options.config.absolute(), self.name, ledger, secrets_dir, slots),
            FlowReport(self.name, datetime.now(UTC), run=run),
            consoles=parts.consoles,
            telemetry=parts.telemetry,
            findings=findings,
            control=control,
            follows=True,
            initial=self._initial,
            outages=parts.outages,
            debug=options.debug,
        )

    @property
    def is_reported(self) -> bool:
        """Whether its report counts: not that of a flow that was removed before it could run."""
        return self._has_begun or not self._is_removed

    def use(self, stream: SupervisedStream) -> None:
        """Show this run."""
        run = cast("FlowRun", stream)
        self.report, self.ledger = run.report, run.ledger

    def event_of(self, error: BaseException) -> Event:
        """Return what an error is: one that may pass by itself soon, or one that someone has to mend."""
        parts = self._parts
        line = "; ".join(error_lines(error))
        if not isinstance(error, MirrorError) and parts.has_lost_spark():
            return Lost(line)  # it fails each call in its own way, which says nothing of the reason
        if is_away(error):
            return Lost(line, outage=True)
        if parts.options.debug or not isinstance(error, MirrorError):
            reported = error if isinstance(error, Exception) else FlowError(line)
            parts.consoles.report(reported, debug=parts.options.debug, flow=self.name)
        if isinstance(error, FlowHeld) and not isinstance(error, MirrorMakerResumed):
            return Latched(line)
        is_refused = isinstance(error, ConfigError | FlowError | NotRetriable) and not isinstance(
            error, NoFreeSlot | LatchMoved
        )
        return Refused(line, self._refresh_ms) if is_refused else Lost(line)

    # --- in the main thread

    def gives_up(self, now: Supervised) -> bool:
        """Whether the job is not to wait for what keeps the flow from running."""
        is_waiting = now.state is FlowState.BACKING_OFF and not self._has_begun
        return is_waiting and time.monotonic() >= self._parts.give_up_s

    def on_change(self, settings: LoadedFlow | None, before: Supervised, now: Supervised) -> None:
        """Print the change, and write it for other hosts, the metrics and the summary."""
        self.state = now.state
        self._has_begun = self._has_begun or now.state is FlowState.RUNNING
        if now.state not in _ACTIVE:
            self.slots = 0
        self._say(before, now)
        self._keep_error(before, now)
        telemetry = self._parts.telemetry
        if settings is not None and now.state is not FlowState.ENDED:
            describe_flow(telemetry.metrics, settings.flow)
        with telemetry.metrics.lock:
            record_state(telemetry.metrics, self.name, None if now.state is FlowState.ENDED else now.state.value)
        if now.by_other_run:
            self.report.fenced = self.report.fenced or now.reason
        if settings is not None:
            self._refresh_ms = settings.flow.refresh_ms
            control = self._follow(settings, now)
            if not (now.by_other_run or before.by_other_run):  # it is that run's to write
                self._write_state(control, now)
        self._parts.summarize()

    def _follow(self, settings: LoadedFlow, now: Supervised) -> ControlRecordThread:
        """Have the control record say what follows from the state."""
        control, options = self._control, settings.config.clusters[settings.flow.target].client_options()
        is_ending = now.state in _ACTIVE and now.then is not None  # as it was configured before
        if control is None or (control.options != options and not is_ending):
            if control is not None:
                control.leave()  # what it posted behind `Resumed` would hold the flow, and nothing would correct it
                # Its target may not answer.
                leave, of_target = f"mirror-leave-{self.name}", (control, self._writer)
                threading.Thread(target=self._leave, args=of_target, name=leave, daemon=True).start()
            self._writer = writer = StatusWriter(options, self.name)
            again = partial(self._write_again, writer)
            self._control = control = ControlRecordThread(
                settings.flow, options, self._post, self._warn, took_back=again
            )
            if now.by_other_run:
                self._post(Resumed())  # that run has the flow on the target of before
        if now.state in _FAILED:
            # Of a flow that is refused nothing is made on the target.
            control.wait(claims=now.state is FlowState.BACKING_OFF)
        elif now.state is FlowState.HELD and not now.by_other_run:
            control.hold(by_latch=now.by_latch)
        return control

    def _keep_error(self, before: Supervised, now: Supervised) -> None:
        """Keep in the report why the flow does not run, or did not at its end."""
        report = self.report
        if now.state in _FAILED and not self._parts.has_lost_spark():
            report.error = now.reason  # what its last run has copied does not count as complete
        elif (now.state is FlowState.HELD or self._is_removed) and not report.held:
            report.error = None  # it is not to run
        elif now.state is FlowState.ENDED and before.state in {*_FAILED, FlowState.PREPARING}:
            report.error = report.error or before.reason or None
        if now.state is FlowState.ENDED:
            report.ended = report.ended or datetime.now(UTC)

    def _say(self, before: Supervised, now: Supervised) -> None:
        if before.edit_refused and not now.edit_refused and now.state is not FlowState.ENDED:
            self._tell("its configuration is valid again")
        if now.edit_refused and before.edit_refused != now.edit_refused:
            self._warn(f"{now.edit_refused}; until this is corrected, the flow keeps its previous configuration")
        label = "it ends in order" if now.then is FlowState.HELD else now.state.value
        said = label, re.sub(r"\d+", "#", now.reason)
        is_again = label == FlowState.PREPARING and self._said is not None
        if said == self._said or is_again or now.state is FlowState.ENDED:
            return
        if now.state is FlowState.BACKING_OFF and self._parts.has_lost_spark():
            return
        self._said = said
        if now.state in _FAILED:
            again = "it is tried again by itself" if now.until_ms is not None else "correct the configuration file"
            self._warn(f"{now.state.value}: {now.reason}; {again}")
        else:
            self._tell(f"{label}: {now.reason}" if now.reason else label)

    def _write_state(self, control: ControlRecordThread, now: Supervised) -> None:
        if self._writer is None:
            return
        reason = "; ".join(filter(None, [now.reason, now.edit_refused and f"its edit is refused: {now.edit_refused}"]))
        state = RunState(
            run=control.run,
            host=socket.gethostname(),
            state=now.state.value,
            since_ms=now.since_ms,
            reason=reason,
            until_ms=now.until_ms,
            failures=now.failures,
            follows=True,
        )
        self._written = state
        self._writer.put(status_values.RUN, state)

    def _write_again(self, writer: StatusWriter) -> None:
        """Report the state again, over that of another run; in the control's thread."""
        if self._written is not None:
            writer.put(status_values.RUN, self._written)

    def on_edit(self, keys: list[str]) -> None:
        """Say which keys an edit has changed, without values."""
        changed = f" ({', '.join(keys)})" if keys else ""
        follows = _AFTER_EDIT.get(self.state, "it is started with it now")
        self._tell(f"its configuration was read again{changed}: {follows}")

    def on_removal(self) -> None:
        """Say that the flow ends because it was removed."""
        self._is_removed = True
        follows = "it ends in order" if self.state in _ACTIVE else "it is not started again"
        self._tell(f"it was removed from the configuration file: {follows}")

    def _tell(self, line: str) -> None:
        self._parts.consoles.progress(f"flow {self.name}: {line}")

    def _warn(self, line: str) -> None:
        self._parts.consoles.warning(f"flow {self.name}: {line}")

    # --- in a thread of its own

    def leave(self) -> None:
        """Record that the flow's run has ended."""
        if self._control is not None:
            self._leave(self._control, self._writer)

    @staticmethod
    def _leave(control: ControlRecordThread, writer: StatusWriter | None) -> None:
        control.close()
        if writer is not None:
            writer.close(_CLOSE_MS)
