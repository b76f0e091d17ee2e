"""``mirror status``: progress and lag per partition, once or live."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from mirror.cli import status_view
from mirror.cli.options import REPORT_DIR, AsJson, Config, Flow, ReportDir, SecretsDir
from mirror.config.load import load
from mirror.errors import KafkaError
from mirror.spark.driver.terminal import Terminal
from mirror.spark.status.status import WATCH_CALL_TIMEOUT_MS, StatusReader, read_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.spark.status.flow_status import FlowStatus

pause = time.sleep
"""Between two looks."""


def status(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = REPORT_DIR,
    secrets_dir: SecretsDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks of --watch.")] = 2.0,
    everything: Annotated[
        bool, typer.Option("--all", help=f"All partitions, not only the {status_view.SHOWN} that are worst off.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far each flow is: progress and lag per partition, and which run copies it now.

    With --watch also how fast it is copied, how late it is, when it will have caught up, and whether it will before the
    source's retention takes records away; the sick partitions first. It looks at both clusters and changes nothing.
    With --json and --watch it prints a line for each reading of the clusters.

    Exit status: 0 looked, 1 could not.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    flows = loaded.select(flow)
    if not watch:
        found = [read_status(loaded, each, report_dir=report_dir) for each in flows]
        if as_json:
            print(json.dumps({"flows": [one.to_json() for one in found]}, indent=2))
        else:
            _console().print(status_view.once(found, None if everything else status_view.SHOWN))
        return
    with ExitStack() as stack:
        watches = [
            stack.enter_context(
                StatusReader(loaded, each, report_dir=report_dir, call_timeout_ms=WATCH_CALL_TIMEOUT_MS)
            )
            for each in flows
        ]
        try:
            _watch_json(watches, every) if as_json else _watch(watches, every, everything=everything)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _look(watches: Sequence[StatusReader]) -> tuple[list[FlowStatus], dict[str, KafkaError]]:
    """Those that answered, and by flow why others did not: who watches wants to see the end of it."""
    found: list[FlowStatus] = []
    errors: dict[str, KafkaError] = {}
    for each in watches:
        try:
            found.append(each.read())
        except KafkaError as error:
            errors[each.flow.name] = error
    return found, errors


def _watch_json(watches: Sequence[StatusReader], every: float) -> None:
    while True:
        found, errors = _look(watches)
        told = {"flows": [one.to_json() for one in found], "errors": {name: str(one) for name, one in errors.items()}}
        print(json.dumps(told), flush=True)
        pause(every)


def _watch(watches: Sequence[StatusReader], every: float, *, everything: bool) -> None:
    console = _console()
    if not console.is_terminal:
        while True:
            found, errors = _look(watches)
            console.print(_view(found, errors, None if everything else status_view.SHOWN, console.width))
            pause(every)
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        while True:
            found, errors = _look(watches)
            most = None if everything else status_view.rows_for(console.height - 1, len(watches))
            screen.update(_view(found, errors, most, console.width), refresh=True)
            pause(every)


def _view(found: Sequence[FlowStatus], errors: Mapping[str, KafkaError], most: int | None, width: int) -> Group:
    at = Text(f"{datetime.now().astimezone():%H:%M:%S}", style="dim")
    return Group(status_view.live(found, errors, most, width), at)


def _console() -> Terminal:
    return Terminal()
