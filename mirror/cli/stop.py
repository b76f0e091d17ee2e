"""``mirror stop``: have whoever copies a flow end in order, wherever it runs."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.client import Admin
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.spark.run_orders import RunOrders

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

_LOOK_S = 0.5
_BEYOND_S = 10.0
"""What a run may take to end beyond its shutdown-timeout-ms: Spark's own end."""


def stop(
    config: Annotated[Path, typer.Option("--config", help="The TOML file with clusters and flows.")],
    flow: Annotated[str | None, typer.Option("--flow", help="Only this flow (default: all).")] = None,
    secrets_dir: Annotated[
        Path | None, typer.Option("--secrets-dir", help="Folder with one file per secret.", file_okay=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the run says that it has ended.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """End the stream (or run) of each flow in order: what is acknowledged is committed, and its progress kept.

    The word goes through the target cluster, so it may be given on any host. Exit status: 0 all have ended, or nothing
    ran; 1 could not be told; 3 told, but not ended within shutdown-timeout-ms and 10 seconds.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    told = [_stop(loaded, each, wait=wait) for each in loaded.select(flow)]
    if as_json:
        print(json.dumps(told, indent=2))
    for one in () if as_json else told:
        print(_line(one))
    raise typer.Exit(3 if wait and any(one["state"] == "told" for one in told) else 0)


def _stop(config: MirrorConfig, flow: FlowConfig, *, wait: bool) -> dict[str, Any]:
    with Admin(config.clusters[flow.target].client_options()) as admin:
        orders = RunOrders(admin, flow.name)
        found = orders.stop()
        if found is None:
            return {"flow": flow.name, "state": "nothing runs"}
        since = datetime.fromtimestamp(found.since_ms / 1000, UTC).isoformat(timespec="seconds")
        about = {"flow": flow.name, "run": found.run, "host": found.host, "since": since}
        until = time.monotonic() + flow.shutdown_timeout_ms / 1000 + _BEYOND_S
        while wait and time.monotonic() < until:
            told = orders.read()
            if told is None or told.ended:
                return {**about, "state": "ended"}
            if told.run != found.run:
                raise FlowError(f"flow {flow.name}: meanwhile run {told.run} on {told.host} has begun")
            if sys.stderr.isatty():
                print(f"waiting for run {found.run} on {found.host}", end="\r", file=sys.stderr)
            time.sleep(_LOOK_S)
        return {**about, "state": "told"}


def _line(one: dict[str, Any]) -> str:
    if one["state"] == "nothing runs":
        return f"{one['flow']}: nothing runs"
    where = f"run {one['run']} on {one['host']}, since {one['since']}"
    return f"{one['flow']}: {where}: " + ("ended" if one["state"] == "ended" else "told to end")
