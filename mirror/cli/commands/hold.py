"""``mirror hold`` and ``mirror release``: have nothing of a flow write any more, and let it copy again."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.console import print_notice
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout
from mirror.config.load import load
from mirror.errors import printable
from mirror.exit_status import ATTENTION, DONE
from mirror.spark import holding
from mirror.spark.clusters import check_answers

if TYPE_CHECKING:
    from mirror.relay.progress.latch import Latch

pause = time.sleep
"""Waits between two polls; tests replace it."""
_WAITED = 0.8
"""The share of ``--timeout`` after which it is not waited any longer: what was done is still reported."""

FlowName = Annotated[str, typer.Argument(metavar="FLOW", help="The flow.")]


def hold(
    flow: FlowName,
    config: Config,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for those who find it held.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until nothing of the flow writes.")] = True,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Have nothing of a flow write any more, on whichever host it runs or begins, until `mirror release FLOW`.

    What runs of it ends in order, and the command waits for that. Its next runs refuse to copy (exit status 4), and
    streams wait. The source need not answer. The command may be repeated.

    Exit status: 0 held, and nothing of the flow writes; 3 held, but something may still write; 1 it may be held, or
    not; 2 wrong usage.
    """
    until_s = math.inf if timeout is None else time.monotonic() + _WAITED * timeout
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    (found,) = loaded.select(flow)
    check_answers(loaded, (found.target,), print_notice)
    by = holding.user()
    outcome = holding.hold(loaded, found, why=why, by=by, wait=wait, until_s=until_s, pause=pause)
    _print(flow, outcome.latch, outcome.running, as_json=as_json)
    raise typer.Exit(ATTENTION if outcome.running else DONE)


def release(
    flow: FlowName,
    config: Config,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Let a flow copy again that was held. Streams that wait for it begin it; other runs begin as they are scheduled.

    Exit status: 0 it is active, 1 it is not released, 2 wrong usage.
    """
    until_s = math.inf if timeout is None else time.monotonic() + _WAITED * timeout
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    (found,) = loaded.select(flow)
    check_answers(loaded, (found.target,), print_notice)
    latch = holding.release(loaded, found, by=holding.user(), until_s=until_s, pause=pause)
    _print(flow, latch, "", as_json=as_json)
    raise typer.Exit(DONE)


def _print(flow: str, latch: Latch, running: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"flow": flow, **asdict(latch), "running": running or None}, indent=2))
        return
    print(f"{flow}: {latch.line() if latch.generation else 'active: it was never held'}")
    if running:
        print_notice(f"flow {flow} is held, but {printable(running)}")
