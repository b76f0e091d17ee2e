"""``mirror stop``: stop the runs of flows in order, on whichever host they run."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.console import print_notice
from mirror.cli.options import AsJson, Config, Flow, SecretsDir, Timeout
from mirror.client import Admin
from mirror.config.load import load
from mirror.errors import FlowHeld, MirrorError, printable
from mirror.exit_status import ATTENTION, DONE, FAILED, HELD
from mirror.relay.progress.latch import LatchCheck
from mirror.spark.clusters import contact
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.control_record import RunControl

_POLL_INTERVAL_S = 0.5
pause = time.sleep
"""Waits between two polls; tests replace it."""
_WAITED = 0.8
"""The share of ``--timeout`` after which it is not waited any longer: what was sent is still reported."""
_SPARK_SHUTDOWN_S = 10.0
"""The time that Spark may take to end after a flow's shutdown-timeout-ms."""
_RESUME_TEXTS = {
    "resumed": "begun again",
    "resume requested": "asked to begin again",
    "not resumed": "no stream has begun it again: if none runs, start it with mirror stream",
}


def stop(
    config: Config,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Stop this run only (see mirror status), and none that took over."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the run reports its end.")] = True,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Have a stream that still runs begin the flows again that it holds since a stop."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the stream (or run) of each flow in order: it commits what the target has acknowledged, and its progress.

    The command is sent through the target cluster, so it works from any host. A run without a sign of life for a minute
    has died; the command does not wait for it.

    A stream goes on with its other flows, and holds those that were stopped until --resume. One that has ended, since
    it had no other flows, is started again with mirror stream: --resume starts none.

    Exit status: 0 all have ended, or nothing ran; 1 the command could not be sent; 3 sent, but a run has not ended
    (with --resume: no stream has begun it again) within shutdown-timeout-ms and 10 seconds, or --timeout; 4 with
    --resume: a flow is held, and is released by mirror release.
    """
    if run is not None and resume:
        raise typer.BadParameter("--run names a run to stop, and --resume begins flows again: give one of both")
    until_s = math.inf if timeout is None else time.monotonic() + _WAITED * timeout
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    flows = loaded.select(flow)
    away = contact(loaded, (one.target for one in flows), print_notice)
    with ExitStack() as stack:
        # The command is sent to all flows before waiting for any of them.
        requests = [
            _StopRequest(stack, loaded, one, away.get(one.target), until_s, run=run, resume=resume) for one in flows
        ]
        outcomes = [request.outcome(wait=wait) for request in requests]
    if as_json:
        print(json.dumps(outcomes, indent=2))
    for outcome in () if as_json else outcomes:
        if "error" in outcome:
            print_notice(_line(outcome))
        else:
            print(printable(_line(outcome)))
    states = {outcome["state"] for outcome in outcomes}
    if states == {"not this run"}:
        print_notice(f"no flow is copied by run {run}: it has ended, or has another ID (mirror status)")
    waits = wait and states & {"requested", "not resumed"}
    sent = ATTENTION if waits else DONE
    raise typer.Exit(FAILED if "unknown" in states else HELD if "held" in states else sent)


class _StopRequest:
    """A stop command to the run of one flow, which is sent when this is created."""

    def __init__(
        self,
        stack: ExitStack,
        config: MirrorConfig,
        flow: FlowConfig,
        away: MirrorError | None,
        until_s: float,
        *,
        run: str | None,
        resume: bool,
    ) -> None:
        """``away`` is why the target does not answer. The end is awaited until ``until_s``, in monotonic seconds.

        ``run`` is the only one to stop; None: whichever copies the flow. ``resume``: it is the command to begin again.
        """
        self._flow = flow
        self._run = run
        self._resume = resume
        self._deadline_s = min(until_s, time.monotonic() + flow.shutdown_timeout_ms / 1000 + _SPARK_SHUTDOWN_S)
        self._error: MirrorError | None = away
        self._found: RunControl | None = None
        self._silent_ms: int | None = None
        if away is not None:
            return
        try:
            admin = stack.enter_context(Admin(config.clusters[flow.target].client_options()))
            if resume:
                LatchCheck(config.clusters[flow.target].client_options(), flow.name)()
            self._control = RunControlClient(admin, flow.name)
            self._found = self._control.resume() if resume else self._control.stop(run)
        except MirrorError as error:
            self._error = error

    def outcome(self, *, wait: bool) -> dict[str, Any]:
        """Return the outcome as JSON values.

        ``state`` is "nothing runs", "not this run", "requested", "ended", "taken over", "gone" or (with ``error``)
        "unknown"; of the command to begin again "nothing is held", "resume requested", "resumed" or "not resumed".
        """
        state = ""
        try:
            nothing = "nothing is held" if self._resume else "nothing runs" if self._run is None else "not this run"
            state = nothing if self._found is None else self._result(self._found, wait=wait)
        except MirrorError as error:
            self._error = error
        if self._error is not None:
            state = "held" if isinstance(self._error, FlowHeld) else "unknown"
            return {"flow": self._flow.name, "state": state, "error": str(self._error)}
        if self._found is None:
            return {"flow": self._flow.name, "state": state}
        since = datetime.fromtimestamp(self._found.since_ms / 1000, UTC).isoformat(timespec="seconds")
        run = {"run": self._found.run, "host": self._found.host, "since": since}
        silent = {} if self._silent_ms is None else {"silent_seconds": self._silent_ms // 1000}
        return {"flow": self._flow.name, **run, "state": state, **silent}

    def _result(self, found: RunControl, *, wait: bool) -> str:
        if self._resume:
            return self._await_next(found) if wait else "resume requested"
        now_ms = _unix_ms()
        self._silent_ms = found.silent_ms(now_ms)
        if found.is_dead(now_ms):
            self._control.mark_ended(found)
            return "gone"
        if wait:
            return self._await_end(found)
        pause(_POLL_INTERVAL_S)
        if (control := self._control.read()) is not None and control.run == found.run and not control.stop:
            self._control.stop(found.run)  # the run's own renewal has overwritten the command
        return "requested"

    def _await_end(self, found: RunControl) -> str:
        while time.monotonic() < self._deadline_s:
            control = self._control.read()
            if control is None or (control.run == found.run and control.ended):
                return "ended"
            if control.run != found.run:
                return "taken over"
            if not control.stop:
                self._control.stop(found.run)  # a record of the run has overwritten the command
            pause(_POLL_INTERVAL_S)
        return "requested"

    def _await_next(self, found: RunControl) -> str:
        """Wait until the stream that holds the flow has claimed it as another run."""
        while time.monotonic() < self._deadline_s:
            control = self._control.read()
            if control is not None and control.run != found.run:
                return "resumed"
            if control is not None and control.stop:
                self._control.resume()  # the stream's renewal of the record has overwritten the command
            pause(_POLL_INTERVAL_S)
        return "not resumed"


def _unix_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _line(outcome: dict[str, Any]) -> str:
    if "error" in outcome:
        return f"{outcome['flow']}: the command could not be sent: {outcome['error']}"
    if "run" not in outcome:
        return f"{outcome['flow']}: {outcome['state']}"
    dead = f"no sign of life for {outcome.get('silent_seconds')} s: it has died or cannot reach the target"
    if (text := _RESUME_TEXTS.get(outcome["state"])) is not None:
        return f"{outcome['flow']}: {text}"
    texts = {
        "requested": "stop requested; its end is not reported yet",
        "taken over": "ended: another run took over",
        "gone": dead,
    }
    state = texts.get(outcome["state"], outcome["state"])
    return f"{outcome['flow']}: run {outcome['run']} on {outcome['host']}, since {outcome['since']}: {state}"
