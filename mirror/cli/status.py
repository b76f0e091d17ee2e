"""``mirror status``: progress and lag per partition, once or live."""

from __future__ import annotations

import json
import operator
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mirror.cli.options import AsJson, Config, Flow, SecretsDir
from mirror.config.load import load
from mirror.errors import KafkaError
from mirror.spark.status import FlowStatus, PartitionStatus, look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import FlowConfig, MirrorConfig

_PLAIN_WIDTH: Final = 160
_SHOWN: Final = 40
"""Partitions of a flow, those with the most lag, unless all are asked for."""


def status(
    config: Config,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks of --watch.")] = 2.0,
    everything: Annotated[
        bool, typer.Option("--all", help=f"All partitions, not only the {_SHOWN} that lag most.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far each flow is: progress and lag per partition, and which run copies it now.

    It looks at both clusters and changes nothing. With --json and --watch it prints a line for each look.

    Exit status: 0 looked, 1 could not.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    flows = loaded.select(flow)
    if not watch:
        found = _look(loaded, flows)
        print(json.dumps(_json(found), indent=2)) if as_json else _console().print(_shown(found, everything=everything))
        return
    try:
        _watch(loaded, flows, every, everything=everything, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _look(config: MirrorConfig, flows: Sequence[FlowConfig]) -> list[FlowStatus]:
    return [look(config, each) for each in flows]


def _watch(config: MirrorConfig, flows: Sequence[FlowConfig], every: float, *, everything: bool, as_json: bool) -> None:
    if as_json:
        while True:
            print(json.dumps(_json(_look(config, flows))), flush=True)
            time.sleep(every)
    with Live(console=_console(), auto_refresh=False, screen=sys.stdout.isatty()) as live:
        while True:
            try:
                live.update(_shown(_look(config, flows), everything=everything), refresh=True)
            except KafkaError as error:
                live.update(Text(f"{error}; looking again"), refresh=True)  # who watches wants to see the end of it
            time.sleep(every)


def _json(found: Sequence[FlowStatus]) -> dict[str, object]:
    return {"flows": [one.to_json() for one in found]}


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def _shown(found: Sequence[FlowStatus], *, everything: bool) -> Group:
    return Group(*(_table(one, everything=everything) for one in found))


def _table(one: FlowStatus, *, everything: bool) -> Table:
    order = [(each.lag is not None, -(each.lag or 0), each.topic, each.partition) for each in one.partitions]
    lagging = [each for _, each in sorted(zip(order, one.partitions, strict=True), key=operator.itemgetter(0))]
    shown = lagging if everything else lagging[:_SHOWN]
    left = len(lagging) - len(shown)
    more = f"{left} more partitions, none of which lags more (--all)" if left else None
    table = Table(title=Text(_title(one)), title_justify="left", caption=more, caption_justify="left")
    for name in ("topic", "partition", "progress", "source end", "lag", "committed"):
        table.add_column(name, justify="left" if name in {"topic", "committed"} else "right", overflow="fold")
    for each in shown:
        table.add_row(*_cells(each))
    return table


def _title(one: FlowStatus) -> str:
    by = "nothing runs" if one.run is None else f"run {one.run.run} on {one.run.host}"
    told = ", told to stop" if one.run is not None and one.run.stop else ""
    unknown = f", {one.unknown} partitions not begun or not known" if one.unknown else ""
    return f"flow {one.flow}: {one.source} to {one.target}; {one.lag:,} behind{unknown}; {by}{told}"


def _cells(each: PartitionStatus) -> list[Text]:
    # Text, not str: a topic's name is never markup.
    return [
        Text(each.topic),
        Text(f"{each.partition}"),
        Text("none yet" if each.progress is None else f"{each.progress:,}"),
        Text("no leader" if each.end is None else f"{each.end:,}"),
        Text("" if each.lag is None else f"{each.lag:,}", style="yellow" if each.lag else "green"),
        Text("" if each.committed_ms is None else _ago(each.committed_ms)),
    ]


def _ago(wall_ms: int) -> str:
    seconds = max(0, int(datetime.now(UTC).timestamp() - wall_ms / 1000))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    for count, unit in ((days, "d"), (hours, "h"), (minutes, "min")):
        if count > 1:
            return f"{count} {unit} ago"
    return f"{seconds} s ago"
