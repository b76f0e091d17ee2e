"""``mirror status``: show progress and lag per partition, once or live."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from rich.console import Group
from rich.text import Text

from mirror.cli.console import print_error, print_notice
from mirror.cli.options import AsJson, Config, Flow, SecretsDir, Timeout
from mirror.cli.views import status_view
from mirror.cli.views.watching import show_repeatedly
from mirror.config.load import load
from mirror.errors import FlowError, MirrorError
from mirror.exit_status import ATTENTION, DONE, FAILED
from mirror.exporter.page import readings_of, render
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.driver.job_options import ALL, MAX_PARTITIONS_SHOWN
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.preflight.flow_checks import find_refusals
from mirror.spark.status.bounds import Bounds, duration_ms
from mirror.spark.status.status_reader import WATCH_CALL_TIMEOUT_MS, StatusReader, read_statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.exporter.readings import ClusterReading, FlowReading
    from mirror.spark.status.flow_status import FlowStatus


_EVERY_S: Final = 2.0
pause = time.sleep
"""Waits between two readings; tests replace it."""


def _duration(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def status(
    config: Config,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Read again and again, until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option("--every", min=0.2, help="Seconds between two readings with --watch.  [default: 2.0]"),
    ] = None,
    all_partitions: Annotated[
        bool, typer.Option(ALL.name, help=f"Show all partitions, not only the {MAX_PARTITIONS_SHOWN} worst.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page about all flows to this file.", dir_okay=False)
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(
            "--max-lag", metavar="DURATION", parser=_duration, help="Fail if a record that is not copied is older: 60s."
        ),
    ] = None,
    max_age: Annotated[
        int | None,
        typer.Option(
            "--max-age",
            metavar="DURATION",
            parser=_duration,
            help="Fail if the last complete run, or a stream's last sign of life, is longer ago: 90m.",
        ),
    ] = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each flow is: progress and lag per partition, and which run copies it now. Changes nothing.

    With --watch also show how fast and how late each partition is copied, when it will have caught up, and whether that
    is before the source's retention deletes records; unhealthy partitions come first.

    With --json and --watch the command prints one line for each reading.

    If one of a flow's clusters does not answer, it shows what the other one knows: progress or ends.

    --max-lag and --max-age are for probes and pagers: one line on stderr for each flow that breaks a bound.

    Exit status: 0 read, 1 could not read, or one side only, 3 a flow breaks a bound.
    """
    if every is not None and not watch:
        raise typer.BadParameter("has no effect without --watch", param_hint="--every")
    bounds = Bounds(max_lag_ms=max_lag, max_age_ms=max_age)
    if html is not None and (watch or as_json):
        raise typer.BadParameter("cannot be combined with --watch or --json", param_hint="--html")
    if bounds.is_set and watch:
        raise typer.BadParameter("cannot be combined with --watch, which has no end", param_hint="--max-lag, --max-age")
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    flows = loaded.select(flow)
    if not watch:
        with Clusters(loaded) as clusters:
            refusals = find_refusals(loaded, flows, clusters, print_notice)
            statuses, failed = read_statuses(loaded, flows, clusters, refusals)
            broken = _broken(bounds, statuses, clusters, failed)
            sides = {name: clusters.side(name).away for one in flows for name in (one.source, one.target)}
        errors = {name: str(error) for name, error in failed.items()}
        if as_json:
            document = {"flows": [status_.to_json() for status_ in statuses], "errors": errors}
            print(json.dumps({**document, "broken": broken} if bounds.is_set else document, indent=2))
        elif html is not None:
            away = {name: str(error) for name, error in sides.items() if error is not None}
            _write_page(html, readings_of(flows, statuses, failed, away, SystemClock().unix_ms()))
        else:
            Terminal().print(status_view.once(statuses, None if all_partitions else MAX_PARTITIONS_SHOWN))
        lines = {
            line if line.startswith(f"cluster {name} ") else f"cluster {name}: {line}": None
            for status_ in statuses
            for name, line in status_.away.items()
        }
        for line in (*lines, *errors.values()):
            print_error(FlowError(line), debug=False)
        for name, line in broken.items():
            print_error(FlowError(f"flow {name}: {line}"), debug=False)
        raise typer.Exit(FAILED if lines or errors else ATTENTION if broken else DONE)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(StatusReader(loaded, flow_config, call_timeout_ms=WATCH_CALL_TIMEOUT_MS))
            for flow_config in flows
        ]
        try:
            pause_s = _EVERY_S if every is None else every
            _watch_json(readers, pause_s) if as_json else _watch(readers, pause_s, all_partitions=all_partitions)
        except KeyboardInterrupt:
            raise typer.Exit(DONE) from None


def _write_page(path: Path, readings: tuple[list[FlowReading], list[ClusterReading]]) -> None:
    """Write the page, and print its name. Raises FlowError."""
    page = render(*readings, SystemClock().unix_ms())
    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise FlowError(f"{path} cannot be written: {error.strerror}; choose another file with --html") from error
    print(path)


def _broken(
    bounds: Bounds, statuses: Sequence[FlowStatus], clusters: Clusters, failed: dict[str, MirrorError]
) -> dict[str, str]:
    """Return the bounds that flows break, by flow, and add to ``failed`` why those of others could not be checked."""
    broken: dict[str, str] = {}
    for status_ in statuses if bounds.is_set else ():
        if status_.away or status_.flow in failed:
            continue  # it could not be read, and the command fails
        try:
            broken[status_.flow] = bounds.broken_by(status_, clusters.side(status_.source).admin)
        except MirrorError as error:
            failed[status_.flow] = error
    return {name: line for name, line in broken.items() if line}


def _read(readers: Sequence[StatusReader]) -> tuple[list[FlowStatus], dict[str, MirrorError]]:
    """Return the statuses, and the errors by flow of those that could not be read: --watch continues after them."""
    statuses: list[FlowStatus] = []
    errors: dict[str, MirrorError] = {}
    for reader in readers:
        try:
            statuses.append(reader.read())
        except MirrorError as error:
            errors[reader.flow.name] = error
    return statuses, errors


def _watch_json(readers: Sequence[StatusReader], every: float) -> None:
    while True:
        statuses, errors = _read(readers)
        document = {
            "flows": [status_.to_json() for status_ in statuses],
            "errors": {name: str(error) for name, error in errors.items()},
        }
        print(json.dumps(document), flush=True)
        pause(every)


def _watch(readers: Sequence[StatusReader], every: float, *, all_partitions: bool) -> NoReturn:
    before: dict[str, FlowStatus] = {}

    def view(console: Terminal) -> Group:
        statuses, errors = _read(readers)
        before.update({status_.flow: status_ for status_ in statuses})
        most = MAX_PARTITIONS_SHOWN
        if console.is_terminal:
            follows = any(reader.flow.follows_groups for reader in readers)
            most = status_view.rows_for(console.height - 1, len(readers), groups=follows)
        at = Text(f"{datetime.now().astimezone():%H:%M:%S}", style="dim")
        shown = None if all_partitions else most
        return Group(status_view.live(statuses, errors, before, shown, console.width), at)

    show_repeatedly(view, lambda: pause(every), Terminal())
