"""``mirror plan``: what a run would copy and change, without Spark and without changing anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.cli.console import complain
from mirror.cli.options import REPORT_DIR, AsJson, Config, Debug, Flow, ReportDir, SecretsDir
from mirror.config.load import load
from mirror.errors import FlowError, MirrorError
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.terminal import Terminal
from mirror.spark.preflight.dry_run import Action, FlowForecast, PartitionForecast, forecast
from mirror.spark.preflight.flow_checks import check_flows

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.preflight.flow_checks import Findings

NOTHING_TO_DO: Final = 0
COULD_NOT_LOOK: Final = 1
SOMETHING_TO_DO: Final = 3

_STYLES: Final = {Action.COPY: "green", Action.WAIT: "yellow", Action.FAIL: "red"}
_FEW: Final = 5
"""Topics named in a line; of the others their number."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def plan(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = REPORT_DIR,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what a run would copy and change now: backlogs, how they are copied, how long it takes. Changes nothing.

    How long it takes is told from the rate of the earlier runs in --report-dir.

    Exit status: 0 nothing to do, 3 something to copy or change or a partition that would fail, 1 could not look,
    2 wrong usage.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    flows = loaded.select(flow)
    findings = check_flows(loaded, flows)
    forecasts: list[FlowForecast] = []
    errors: dict[str, str] = {}
    for each in flows:
        try:
            forecasts.append(_look(loaded, each, findings, report_dir))
        except MirrorError as error:
            # Those that can be looked at are still told about.
            errors[each.name] = str(error)
            complain(_named(each, error), debug=debug)
    if as_json:
        print(json.dumps({"flows": [_to_json(each, findings) for each in forecasts], "errors": errors}, indent=2))
    else:
        console = Terminal()
        for one in forecasts:
            _print(one, findings, console)
    if errors:
        raise typer.Exit(COULD_NOT_LOOK)
    raise typer.Exit(SOMETHING_TO_DO if any(each.to_do for each in forecasts) else NOTHING_TO_DO)


def _look(config: MirrorConfig, flow: FlowConfig, findings: Findings, report_dir: Path) -> FlowForecast:
    if error := findings.unreachable.get(flow.name):
        raise error
    return forecast(config, flow, wall_ms=SystemClock().unix_ms(), ledger=report_dir / "ledger" / flow.name)


class _Named(FlowError):
    """Those of one flow."""

    several_lines = True


def _named(flow: FlowConfig, error: MirrorError) -> FlowError:
    """With the flow's name before each line."""
    mark = f"flow {flow.name}: "
    lines = [line if line.startswith(mark) else mark + line for line in str(error).splitlines()]
    named = _Named("\n".join(lines))
    named.__cause__ = error
    return named


def _to_json(one: FlowForecast, findings: Findings) -> dict[str, object]:
    told = one.to_json()
    return {**told, "warnings": [*findings.warnings.get(one.flow, []), *one.warnings]}


def _print(one: FlowForecast, findings: Findings, console: Terminal) -> None:
    def say(text: str) -> None:
        # Topic names are never markup, and lines are not cut.
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    shown = [each for each in one.partitions if each.action is not Action.NOTHING]
    console.print(_table(one, shown))
    if len(shown) < len(one.partitions):
        say(f"{len(one.partitions) - len(shown)} of {len(one.partitions)} partitions have nothing to copy")
    for reason, topics in _reasons(shown).items():
        say(f"{reason} ({_named_few(topics)})")
    if one.records:
        say(f"estimated time: {_time(one)}")
    for line in one.changes:
        say(f"on {one.target}: {line}")
    for line in (*findings.warnings.get(one.flow, []), *one.warnings):
        say(f"warning: {line}")
    if not one.to_do:
        say("nothing to do")


def _table(one: FlowForecast, shown: list[PartitionForecast]) -> Table:
    title = Text(f"flow {one.flow}: {one.source} to {one.target}")
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("topic", "to copy", overflow="fold")
    table.add_column("partition", justify="right")
    table.add_column("records", f"{one.records:,}", justify="right")
    table.add_column("bytes", _size(one.bytes), justify="right")
    table.add_column("how")
    table.add_column("what")
    errors = any(each.error for each in shown)
    if errors:
        table.add_column("remarks", overflow="fold")
    for each in shown:
        table.add_row(
            Text(each.topic),
            f"{each.partition}",
            f"{each.records:,}",
            _size(each.bytes),
            each.way.value,
            Text(each.action.value, style=_STYLES.get(each.action, "")),
            *([Text(each.error or "")] if errors else []),
        )
    return table


def _reasons(shown: list[PartitionForecast]) -> dict[str, list[str]]:
    """Why topics do not just go as bytes: reason -> its topics."""
    told: dict[str, dict[str, None]] = {}
    for each in shown:
        for reason in each.reasons:
            told.setdefault(f"{each.way.value}: {reason}", {})[each.topic] = None
    return {reason: list(topics) for reason, topics in told.items()}


def _named_few(topics: list[str]) -> str:
    more = f" and {len(topics) - _FEW} more" if len(topics) > _FEW else ""
    return ", ".join(topics[:_FEW]) + more


def _size(size: int | None) -> str:
    return "unknown" if size is None else decimal(size)


def _time(one: FlowForecast) -> str:
    where = "as in earlier runs" if one.overhead_measured else "as measured elsewhere, on two cores"
    start = f"{one.overhead_seconds:.0f} s of it are Spark's start, {where}"
    if one.seconds is None or one.bytes_per_second is None:
        why = " (no earlier run in the report folder tells a rate)" if one.bytes is not None else ""
        return f"unknown{why}; {start}"
    return f"{_duration(one.seconds)}, copying at {decimal(int(one.bytes_per_second))}/s; {start}"


def _duration(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"
