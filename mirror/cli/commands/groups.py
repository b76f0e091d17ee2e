"""``mirror groups``: show where consumer groups are on both sides, and what is not in step."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from rich.console import Group
from rich.text import Text

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout, one_flow
from mirror.cli.views.groups_view import LogEnds, View, view_of, view_of_kept
from mirror.cli.views.reverse_view import view_back
from mirror.cli.views.watching import show_repeatedly
from mirror.client import TopicPartition
from mirror.config.load import load
from mirror.errors import FlowError, KafkaError, printable
from mirror.exit_status import ATTENTION, DONE
from mirror.groups.kept_positions import read_kept
from mirror.groups.sync import GroupSync
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters, contact
from mirror.spark.driver import job_options
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.preflight.flow_groups import only_groups, open_sync, open_way_back, rules_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.errors import MirrorError
    from mirror.groups.rules import GroupRules

_EVERY_S: Final = 5.0
_OTHER_LINES: Final = 10
"""Lines of a screen besides those of groups: the time, the title, the table's frame and caption."""
_MIN_ROWS: Final = 3

pause = time.sleep
"""Waits between two readings; tests replace it."""

Read = Callable[[int | None], View]
"""Reads both clusters for a view with at most so many lines in its table; None: all. Raises KafkaError."""


def groups(
    config: Config,
    flow: Annotated[
        str | None,
        typer.Option(job_options.FLOW.name, help="The flow whose groups are shown.  [default: the only one]"),
    ] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be repeated.")] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Show where the target's groups would continue on the source.")
    ] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="With --reverse: commit these positions on the source, for a failback.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", help="First take this group's offsets on the target for the flow's own.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Read again and again, until Ctrl-C.")] = False,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Show where consumer groups are on both sides, how far they lag, and what is not in step, and why.

    A group that a consumer has taken over on the target is left alone from then on. --resume GROUP has the flow write
    it again, once the source's group has passed the target's. --reverse --commit commits on the source where the
    target's groups are: never for a group with members there, and never back. Otherwise the command changes nothing.

    While the source is away, it shows where the groups are on the target, and since when (exit status 1).

    With --watch a cluster that does not answer is shown, and read again; with --json, too, each reading is a line.

    Exit status: 0 all groups are in step (with --watch: ended by Ctrl-C), 3 some are not, 1 could not read,
    2 wrong usage, 4 with --resume or --commit: the flow is held.
    """
    if commit and (watch or not reverse):
        raise typer.BadParameter("needs --reverse, and not --watch", param_hint="--commit")
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    chosen = one_flow(loaded, flow)
    if resume is not None:
        _check_resumed(resume, chosen, only_groups(rules_of(chosen), group or ()), reverse=reverse)
    away = {} if watch else contact(loaded, (chosen.source, chosen.target), print_notice)
    if (error := away.get(chosen.target, away.get(chosen.source))) is not None:
        if chosen.target not in away and not reverse and resume is None:
            _show_kept(loaded, chosen, group or (), error, as_json=as_json)
        raise error
    if reverse:
        with open_way_back(loaded, chosen, only=group or ()) as way_back:
            ask = partial(way_back.commit, resume=chosen.groups.sync) if commit else way_back.read
            back = partial(view_back, chosen, committed=commit)
            _show(lambda _: back(*ask()), chosen.name, watch=watch, as_json=as_json)
    with open_sync(loaded, chosen, only=group or ()) as sync:
        if resume is not None:
            _resume(sync, resume)
        with LogEnds(loaded, chosen) as ends:

            def read(most: int | None) -> View:
                return view_of(chosen, sync.round(write=False), ends, group or (), most)

            _show(read, chosen.name, watch=watch, as_json=as_json)


def _show_kept(
    config: MirrorConfig, flow: FlowConfig, only: Collection[str], error: MirrorError, *, as_json: bool
) -> None:
    """Print what the target knows of the groups while the source is away. Raises KafkaError."""
    options = config.clusters[flow.target].client_options()
    with Clusters(config) as clusters, LogEnds(config, flow) as ends:
        kept = [
            one
            for one in read_kept(clusters.side(flow.target).admin, options, flow.name, flow.groups.source_group)
            if not only or one.group in only
        ]
        tps = {TopicPartition(place.topic, place.partition) for one in kept for place in one.positions}
        document, table, _, _ = view_of_kept(flow, kept, ends.of_target(tps), str(error), SystemClock().unix_ms())
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        Terminal().print(table)


def _check_resumed(group: str, flow: FlowConfig, rules: GroupRules, *, reverse: bool) -> None:
    """Raise BadParameter if a group cannot be resumed."""
    if reverse:
        raise typer.BadParameter("--resume is for the way from the source to the target: leave out --reverse")
    if not rules.includes(group):
        raise typer.BadParameter(f"flow {flow.name} does not include group {printable(group)} (include, exclude)")


def _resume(sync: GroupSync, group: str) -> None:
    """Raises FlowError if there is nothing to resume."""
    count = sync.resume(group)
    if not count:
        raise FlowError(f"group {printable(group)} has no offsets on the target that the flow could continue")
    partitions = "1 partition is" if count == 1 else f"{count} partitions are"
    line = f"group {printable(group)}: {partitions} the flow's again; its next round continues there"
    print(f"mirror: {line}", file=sys.stderr)


def _show(read: Read, flow: str, *, watch: bool, as_json: bool) -> NoReturn:
    """Print what ``read`` returns. Raises typer.Exit with the exit status."""
    if watch:
        try:
            _watch_json(read, flow) if as_json else _watch(read, flow)
        except KeyboardInterrupt:
            raise typer.Exit(DONE) from None
    document, table, warnings, in_step = read(None)
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        Terminal().print(table)
    for line in warnings:
        print_warning(line)
    raise typer.Exit(DONE if in_step else ATTENTION)


def _watch_json(read: Read, flow: str) -> NoReturn:
    while True:
        try:
            document = {**read(None)[0], "error": None}
        except KafkaError as error:
            document = {"flow": flow, "error": str(error)}
        print(json.dumps(document), flush=True)
        pause(_EVERY_S)


def _watch(read: Read, flow: str) -> NoReturn:
    last = Group()

    def view(console: Terminal) -> Group:
        nonlocal last
        most = max(_MIN_ROWS, console.height - _OTHER_LINES) if console.is_terminal else None
        now = f"{datetime.now().astimezone():%H:%M:%S}"
        try:
            _, table, warnings, _ = read(most)
        except KafkaError as error:
            failed = Text(f"{now} flow {flow}: {error}; retrying", style="red")
            return Group(failed, last) if console.is_terminal else Group(failed)
        last = Group(Text(now, style="dim"), *(Text(line, style="yellow") for line in warnings), table)
        return last

    show_repeatedly(view, lambda: pause(_EVERY_S), Terminal())
