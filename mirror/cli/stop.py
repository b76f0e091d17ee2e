"""``mirror stop``: have whoever copies a flow end in order, wherever it runs."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.options import AsJson, Config, Flow, SecretsDir
from mirror.client import Admin
from mirror.config.load import load
from mirror.errors import MirrorError, printable
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.control import RunControl

_LOOK_S = 0.5
pause = time.sleep
"""Between two looks."""
_BEYOND_S = 10.0
"""What a run may take to end beyond its shutdown-timeout-ms: Spark's own end."""


def stop(
    config: Config,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the run says that it has ended.")] = True,
    as_json: AsJson = False,
) -> None:
    """End the stream (or run) of each flow in order: what is acknowledged is committed, and its progress kept.

    The word goes through the target cluster, so it may be given on any host. A run that has not been heard of for a
    minute is gone, and not waited for. Exit status: 0 all have ended, or nothing ran; 1 could not be told; 3 told, but
    not ended within shutdown-timeout-ms and 10 seconds.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    with ExitStack() as stack:
        # All are told before any is waited for.
        words = [_Word(stack, loaded, each) for each in loaded.select(flow)]
        told = [each.outcome(wait=wait) for each in words]
    if as_json:
        print(json.dumps(told, indent=2))
    for one in () if as_json else told:
        print(printable(_line(one)))
    states = {one["state"] for one in told}
    raise typer.Exit(1 if "unknown" in states else 3 if wait and "told" in states else 0)


class _Word:
    """Given to whoever copies a flow, when it is made."""

    def __init__(self, stack: ExitStack, config: MirrorConfig, flow: FlowConfig) -> None:
        self._flow = flow
        self._until_s = time.monotonic() + flow.shutdown_timeout_ms / 1000 + _BEYOND_S
        self._error: MirrorError | None = None
        self._found: RunControl | None = None
        self._silent_ms: int | None = None
        try:
            admin = stack.enter_context(Admin(config.clusters[flow.target].client_options()))
            self._orders = RunControlClient(admin, flow.name)
            self._found = self._orders.stop()
        except MirrorError as error:
            self._error = error

    def outcome(self, *, wait: bool) -> dict[str, Any]:
        """What came of it.

        ``state`` is "nothing runs", "told", "ended", "taken over", "gone" or (with ``error``) "unknown".
        """
        state = ""
        try:
            state = "nothing runs" if self._found is None else self._told(self._found, wait=wait)
        except MirrorError as error:
            self._error = error
        if self._error is not None:
            return {"flow": self._flow.name, "state": "unknown", "error": str(self._error)}
        if self._found is None:
            return {"flow": self._flow.name, "state": state}
        since = datetime.fromtimestamp(self._found.since_ms / 1000, UTC).isoformat(timespec="seconds")
        where = {"run": self._found.run, "host": self._found.host, "since": since}
        silent = {} if self._silent_ms is None else {"silent_seconds": self._silent_ms // 1000}
        return {"flow": self._flow.name, **where, "state": state, **silent}

    def _told(self, found: RunControl, *, wait: bool) -> str:
        now_ms = _wall_ms()
        self._silent_ms = found.silent_ms(now_ms)
        if found.gone(now_ms):
            self._orders.mark_ended(found)
            return "gone"
        if wait:
            return self._await_end(found)
        pause(_LOOK_S)
        if (told := self._orders.read()) is not None and told.run == found.run and not told.stop:
            self._orders.stop()  # the run has said at the same time that it goes on
        return "told"

    def _await_end(self, found: RunControl) -> str:
        while time.monotonic() < self._until_s:
            told = self._orders.read()
            if told is None or (told.run == found.run and told.ended):
                return "ended"
            if told.run != found.run:
                return "taken over"
            if not told.stop:
                self._orders.stop()  # it was lost: the run has given another order at the same time
            pause(_LOOK_S)
        return "told"


def _wall_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _line(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{one['flow']}: could not be told: {one['error']}"
    if "run" not in one:
        return f"{one['flow']}: nothing runs"
    gone = f"nothing has been there for {one.get('silent_seconds')} s: it has died, or cannot reach the target"
    words = {"told": "told to end", "taken over": "ended: another run took over", "gone": gone}
    said = words.get(one["state"], one["state"])
    return f"{one['flow']}: run {one['run']} on {one['host']}, since {one['since']}: {said}"
