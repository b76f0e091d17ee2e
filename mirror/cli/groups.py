"""``mirror groups``: show where consumer groups are on both sides, and what is not in step."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mirror.cli.console import print_warning
from mirror.cli.offsets import MEANINGS
from mirror.cli.options import AsJson, Config, SecretsDir
from mirror.client import LATEST, Admin
from mirror.config.flow_rules import source_options, target_options
from mirror.config.load import load
from mirror.errors import printable
from mirror.groups.sync import GroupSync
from mirror.groups.way_back import WayBack
from mirror.runtime.clock import SystemClock
from mirror.spark.driver import job_options
from mirror.spark.driver.group_rounds import rules_of
from mirror.spark.driver.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.positions import GroupPosition, GroupsReport
    from mirror.groups.rules import GroupRules
    from mirror.groups.way_back import BackPosition

IN_STEP: Final = 0
NOT_IN_STEP: Final = 3
_EVERY_S: Final = 5.0
_CALL_TIMEOUT_MS: Final = 10_000

pause = time.sleep
"""Waits between two readings; tests replace it."""

View = tuple[dict[str, Any], Table, list[str], bool]
"""The JSON document, the table, warnings, and whether all groups are in step."""


def groups(
    config: Config,
    flow: Annotated[str, typer.Option(job_options.FLOW.name, help="The flow whose groups are shown.")],
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be repeated.")] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Show where the target's groups would continue on the source.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", help="First take this group's offsets on the target for the flow's own.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Read again and again, until Ctrl-C.")] = False,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show where consumer groups are on both sides, how far they lag, and what is not in step, and why.

    A group that a consumer has taken over on the target is left alone from then on. --resume GROUP has the flow write
    it again, once the source's group has passed the target's. Without that option the command changes nothing.

    Exit status: 0 all groups are in step, 3 some are not, 1 could not read, 2 wrong usage.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    (chosen,) = loaded.select(flow)
    rules = _only(rules_of(chosen), group)
    clients = (chosen.name, source_options(loaded, chosen), target_options(loaded, chosen), chosen.copy_policy())
    if reverse:
        with WayBack(*clients, rules, SystemClock()) as way_back:
            _show(lambda: _view_back(chosen, *way_back.read()), watch=watch, as_json=as_json)
        return
    with GroupSync(*clients, rules, SystemClock()) as sync:
        if resume is not None:
            count = sync.resume(resume)
            line = f"group {printable(resume)}: {count} partitions are the flow's again; its next round continues them"
            print(f"mirror: {line}", file=sys.stderr)
        _show(lambda: _view(loaded, chosen, sync.round(write=False)), watch=watch, as_json=as_json)


def _only(rules: GroupRules, wanted: list[str] | None) -> GroupRules:
    if not wanted:
        return rules
    return replace(rules, includes=lambda name: name in wanted and rules.includes(name))


def _show(read: Callable[[], View], *, watch: bool, as_json: bool) -> None:
    """Print what ``read`` returns. Raises typer.Exit with the exit status."""
    console = Terminal()
    try:
        if watch and as_json:
            while True:
                print(json.dumps(read()[0]), flush=True)
                pause(_EVERY_S)
        if watch:
            with Live(console=console, auto_refresh=False, screen=console.is_terminal) as screen:
                while True:
                    _, table, warnings, _ = read()
                    screen.update(Group(table, *(Text(line) for line in warnings)), refresh=True)
                    pause(_EVERY_S)
    except KeyboardInterrupt:
        raise typer.Exit(IN_STEP) from None
    document, table, warnings, in_step = read()
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        console.print(table)
    for line in warnings:
        print_warning(line)
    raise typer.Exit(IN_STEP if in_step else NOT_IN_STEP)


# --- from the source to the target


def _view(config: MirrorConfig, flow: FlowConfig, report: GroupsReport) -> View:
    positions = [one for state in report.groups.values() for one in state.positions]
    source_ends = _ends(config, flow.source, (one.source for one in positions))
    target_ends = _ends(config, flow.target, (one.target for one in positions))
    table = _table(f"flow {flow.name}: {flow.source} to {flow.target}", "source", "target")
    documents = []
    for name in sorted(report.groups):
        state = report.groups[name]
        shown = []
        for one in state.positions:
            lags = (
                _lag(one.source_offset, source_ends.get(one.source)),
                _lag(one.target_offset, target_ends.get(one.target)),
            )
            shown.append(_position_json(one, *lags))
            status = _status(one) if state.reason is None else state.reason.value
            _add_row(table, name, one.source, one.source_offset, lags[0], one.target_offset, lags[1], status)
        if not state.positions:
            table.add_row(_shown(name), "", "", "", "", "", "", _shown(f"{_value(state.reason)}: {state.detail}"))
        documents.append({"group": name, "reason": _value(state.reason), "detail": state.detail, "positions": shown})
    in_step = report.in_step == len(report.groups) and not report.problems
    return {"flow": flow.name, "groups": documents, "problems": [*report.problems]}, table, [*report.problems], in_step


def _position_json(one: GroupPosition, source_lag: int | None, target_lag: int | None) -> dict[str, Any]:
    return {
        "topic": one.source.topic,
        "target_topic": one.target.topic,
        "partition": one.source.partition,
        "source_offset": one.source_offset,
        "source_lag": source_lag,
        "target_offset": one.target_offset,
        "target_lag": target_lag,
        "reason": _value(one.reason),
        "detail": one.detail,
        "pending": one.pending,
    }


def _status(one: GroupPosition) -> str:
    if one.reason is not None:
        return f"{one.reason.value}: {one.detail}" if one.detail else one.reason.value
    return "to be committed" if one.pending else "in step"


def _value(reason: Any) -> str | None:
    return None if reason is None else str(reason.value)


# --- and back


def _view_back(flow: FlowConfig, positions: list[BackPosition], problems: list[str]) -> View:
    table = Table(title=Text(f"flow {flow.name}: {flow.target} back to {flow.source}"), title_justify="left")
    for name in ("group", "topic", "partition", "target", "is on the source", "committed there", "remarks"):
        numeric = name in {"partition", "target", "is on the source", "committed there"}
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    documents = []
    for one in positions:
        place, offset = one.translation
        remark = f"{MEANINGS[place]}: {one.detail}" if one.detail else MEANINGS[place]
        cells = (f"{one.target.partition}", f"{one.target_offset}", _number(offset), _number(one.source_offset))
        table.add_row(_shown(one.group), Text(one.target.topic), *cells, _shown(remark))
        documents.append(
            {
                "group": one.group,
                "topic": one.source.topic,
                "target_topic": one.target.topic,
                "partition": one.source.partition,
                "target_offset": one.target_offset,
                "source_offset": offset,
                "place": place.value,
                "committed_source_offset": one.source_offset,
                "detail": one.detail,
            }
        )
    document = {"flow": flow.name, "positions": documents, "problems": problems}
    return document, table, problems, not problems and all(one.is_in_step for one in positions)


# --- both


def _ends(config: MirrorConfig, cluster: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offsets of the partitions whose leaders answer."""
    wanted = dict.fromkeys(tps, LATEST)
    if not wanted:
        return {}
    with Admin(config.clusters[cluster].client_options()) as admin:
        found = admin.list_offsets(wanted, partial=True, timeout_ms=_CALL_TIMEOUT_MS)
    return {tp: one.offset for tp, one in found.items()}


def _lag(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(0, end - offset)


def _table(title: str, *sides: str) -> Table:
    table = Table(title=Text(title), title_justify="left")
    table.add_column("group", overflow="fold")
    table.add_column("topic", overflow="fold")
    table.add_column("partition", justify="right")
    for side in sides:
        table.add_column(side, justify="right")
        table.add_column("lag", justify="right")
    table.add_column("state", overflow="fold")
    return table


def _add_row(table: Table, group: str, tp: TopicPartition, *values: int | str | None) -> None:
    *numbers, state = values
    cells = (_number(value) for value in numbers)
    table.add_row(_shown(group), Text(tp.topic), f"{tp.partition}", *cells, _shown(str(state)))


def _number(value: int | str | None) -> str:
    return "" if value is None else f"{value}"


def _shown(text: str) -> Text:
    """Return the name of a group, or what a broker says, so that it does not control the terminal."""
    return Text(printable(text))
