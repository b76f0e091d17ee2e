"""``mirror plan``: show what a run would copy and change, without Spark and without changing anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.cli.console import print_notice
from mirror.cli.each_flow import ask_each
from mirror.cli.options import AsJson, Config, Debug, Flow, MaxDeletions, SecretsDir, Timeout
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.planning.range_planner import left_out_lines
from mirror.spark.preflight.dry_run import Action, FlowForecast, PartitionForecast, forecast
from mirror.spark.preflight.plan_file import PlanFile, configuration_hash
from mirror.spark.rehearsing.couplings import coupled_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.models import FlowConfig
    from mirror.observation import Sides
    from mirror.spark.preflight.flow_checks import Findings

_STYLES: Final = {Action.COPY: "green", Action.WAIT: "yellow", Action.FAIL: "red"}
_MAX_NAMES_SHOWN: Final = 5
"""Topics named in a line; of the others only the number is given."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def plan(
    config: Config,
    flow: Flow = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write what `mirror apply FILE` is to change to this file.", dir_okay=False),
    ] = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="As `mirror apply --adopt`.")] = False,
    max_deletions: MaxDeletions = None,
    coupled: Annotated[
        float | None,
        typer.Option(
            "--coupled",
            metavar="HOURS",
            min=0,
            help="Also read all batches of so many hours on the source, for topics that no flow copies and transactions"
            " couple to the flow's.",
        ),
    ] = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what a run would copy and change now: the backlog, how it is copied, and how long it takes. Changes nothing.

    The time is estimated from the rate of earlier runs. The file of --out has the changes, the facts that each rests
    on, and no secrets; what is copied is not in it.

    Exit status: 0 nothing to do, 3 something to copy or change or a partition that would fail, 1 could not plan,
    2 wrong usage.
    """
    if out is not None and not out.parent.is_dir():
        raise typer.BadParameter(f"folder {out.parent} does not exist", param_hint="--out")
    as_loaded = load(config, secrets_dir=secrets_dir)
    loaded = as_loaded.with_timeout(timeout)
    flows = loaded.select(flow)
    now_ms = SystemClock().unix_ms()

    def ask(one: FlowConfig, sides: Sides) -> FlowForecast:
        found = forecast(loaded, one, sides, wall_ms=now_ms, adopt=adopt, max_deletions=max_deletions)
        if coupled is not None:
            since_ms = max(0, now_ms - round(coupled * _HOUR_S * 1000))
            found.warnings.extend(coupled_topics(loaded, one, sides.source, since_ms=since_ms))
        return found

    answers = ask_each(loaded, flows, ask, debug=debug)
    if as_json:
        answers.print_json(lambda one: _to_json(one, answers.findings))
    else:
        console = Terminal()
        for one in answers.found.values():
            _print(one, answers.findings, console)
    if out is not None:
        if answers.errors:
            raise FlowError(f"{out} is not written: {', '.join(answers.errors)} could not be planned")
        planned = PlanFile(
            configuration=configuration_hash(as_loaded),
            adopt=adopt,
            max_deletions=max_deletions,
            flows={name: one.drift.planned for name, one in answers.found.items()},
        )
        planned.write(out)
        print_notice(f"{out} has {planned.count} changes; mirror apply {out} makes these and nothing else")
    answers.exit(lambda one: one.to_do)


def _to_json(flow: FlowForecast, findings: Findings) -> dict[str, object]:
    left_out = [{"topic": topic, "reason": why} for topic, why in findings.left_out.get(flow.drift.flow, {}).items()]
    warnings = [*findings.warnings.get(flow.drift.flow, []), *flow.warnings]
    return {**flow.to_json(), "left_out": left_out, "warnings": warnings}


def _print(flow: FlowForecast, findings: Findings, console: Terminal) -> None:
    def say(text: str) -> None:
        # Topic names are not markup, and lines are not truncated.
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    shown = [partition for partition in flow.partitions if partition.action is not Action.NOTHING]
    console.print(_table(flow, shown))
    if len(shown) < len(flow.partitions):
        say(f"{len(flow.partitions) - len(shown)} of {len(flow.partitions)} partitions have nothing to copy")
    for reason, topics in _reasons(shown).items():
        say(f"{reason} ({_listed(topics)})")
    for line in left_out_lines(findings.left_out.get(flow.drift.flow, {})):
        say(line)
    if flow.records:
        say(f"estimated time: {_time(flow)}")
    for line in _changes(flow):
        say(line)
    if flow.limits:
        say("limits: " + ", ".join(f"{key} {count:,}" for key, count in flow.limits.items()))
    for line in (*findings.warnings.get(flow.drift.flow, []), *flow.warnings):
        say(f"warning: {line}")
    if not flow.to_do:
        say("nothing to do")


def _changes(flow: FlowForecast) -> Iterator[str]:
    """Yield what a run would change on both clusters, besides what it copies."""
    yield from flow.drift.changes
    for found in (*flow.drift.kinds, flow.groups):
        yield from (f"on {flow.drift.target}: {line}" for line in (found.lines() if found is not None else ()))


def _named(partition: PartitionForecast, source: str) -> str:
    """Return the topic, with the name of its copy where that is not one by ``naming``."""
    topic, copy = partition.topic, partition.target_topic
    return topic if copy in {topic, f"{source}.{topic}"} else f"{topic} -> {copy}"


def _table(flow: FlowForecast, shown: list[PartitionForecast]) -> Table:
    title = Text(f"flow {flow.drift.flow}: {flow.drift.source} to {flow.drift.target}")
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("topic", "to copy", overflow="fold")
    table.add_column("partition", justify="right")
    table.add_column("records", f"{flow.records:,}", justify="right")
    table.add_column("bytes", _size(flow.bytes), justify="right")
    table.add_column("path")
    table.add_column("action")
    errors = any(partition.error for partition in shown)
    if errors:
        table.add_column("remarks", overflow="fold")
    for partition in shown:
        table.add_row(
            Text(_named(partition, flow.drift.source)),
            f"{partition.partition}",
            f"{partition.records:,}",
            _size(partition.bytes),
            partition.way.value,
            Text(partition.action.value, style=_STYLES.get(partition.action, "")),
            *([Text(partition.error or "")] if errors else []),
        )
    return table


def _reasons(shown: list[PartitionForecast]) -> dict[str, list[str]]:
    """Return why batches are not all passed on as bytes: reason -> its topics."""
    topics_of: dict[str, dict[str, None]] = {}
    for partition in shown:
        for reason in partition.reasons:
            topics_of.setdefault(f"{partition.way.value}: {reason}", {})[partition.topic] = None
    return {reason: list(topics) for reason, topics in topics_of.items()}


def _listed(topics: list[str]) -> str:
    more = f" and {len(topics) - _MAX_NAMES_SHOWN} more" if len(topics) > _MAX_NAMES_SHOWN else ""
    return ", ".join(topics[:_MAX_NAMES_SHOWN]) + more


def _size(size: int | None) -> str:
    return "unknown" if size is None else decimal(size)


def _time(flow: FlowForecast) -> str:
    start = f"{flow.overhead_seconds:.0f} s of it are Spark's start, as measured elsewhere on two cores"
    if flow.seconds is None or flow.bytes_per_second is None:
        why = " (no earlier run of the flow has shown a rate)" if flow.bytes is not None else ""
        return f"unknown{why}; {start}"
    return f"{_duration(flow.seconds)}, copying at {decimal(int(flow.bytes_per_second))}/s; {start}"


def _duration(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"
