"""``mirror failback``: what a cluster that has come back has, what only it has, and the way home."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.console import print_error, print_notice
from mirror.cli.options import AsJson, Config, Debug, SecretsDir
from mirror.config.load import load
from mirror.errors import FlowError, MirrorError, SeveralErrors, printable
from mirror.exit_status import ATTENTION, DONE, FAILED
from mirror.relay.progress.stored_record import plain
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.holding import user
from mirror.switch.command import CommandOutcome, SwitchCommand
from mirror.switch.failback import lines as shown
from mirror.switch.failback.deciding import Wish, rebuild_plan, spans
from mirror.switch.failback.deciding import failback as machine_of
from mirror.switch.failback.listing import TailLister, costs_of_groups
from mirror.switch.failback.site import FailbackSite
from mirror.switch.failback.tail import Span
from mirror.switch.machine import Terms
from mirror.switch.operator import Operator
from mirror.switch.record_topic import CALL_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.config.models import MirrorConfig
    from mirror.config.switch_settings import SwitchConfig
    from mirror.switch.record import SwitchRecord


def failback(
    config: Config,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The switch that mirror failover has opened.")],
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Show what became of the old cluster; change nothing.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Show the tail: what only the old cluster has; change nothing.")
    ] = False,
    export: Annotated[
        bool,
        typer.Option("--export", help="Export the tail into TOPIC.tail.GENERATION, and release the flows behind it."),
    ] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Confirm that the flows append the tail of topics of append-tail.")
    ] = False,
    rebuild: Annotated[
        list[str] | None,
        typer.Option(
            "--rebuild",
            metavar="TOPIC",
            help="Delete a topic of the old cluster that cannot be continued, and create it again: the flow back copies"
            " it as a whole. Repeatable.",
        ),
    ] = None,
    rebuild_all: Annotated[
        bool, typer.Option("--rebuild-all", help="Rebuild all topics that cannot be continued.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what a rebuild deletes and creates; change nothing.")
    ] = False,
    lift: Annotated[
        bool, typer.Option("--lift", help="Remove the denials that this switch has created on the old cluster.")
    ] = False,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Take back a cluster that clients have left by a failover: fence it, find what only it has, and export that.

    Without an option it fences the old cluster, and finds the tail. A command that was killed is repeated, on any host.

    Exit status: 0 done, 1 could not read the clusters, 2 wrong usage, 3 refused, or the old cluster is not as it was.
    """
    rebuilds = bool(rebuild) or rebuild_all
    if sum((inspect, list_, export or append, rebuilds, lift)) > 1:
        raise typer.BadParameter("give one of --inspect, --list, --export, --rebuild and --lift")
    if rebuild and rebuild_all:
        raise typer.BadParameter("give --rebuild or --rebuild-all")
    if dry_run and not rebuilds:
        raise typer.BadParameter("--dry-run shows what --rebuild does: give both")
    if append and not export:
        raise typer.BadParameter("--append confirms what --export does: give both")
    loaded = load(config, secrets_dir=secrets_dir)
    switch = loaded.switch(name)
    terms = Terms(
        name=name,
        quiet_ms=switch.quiet_seconds * 1000,
        deadline_ms=switch.deadline_seconds * 1000,
        fence=switch.fence,
        back=switch.back,
        hook_ms=switch.hook_seconds * 1000 if switch.hook_fence else 0,
    )
    with FailbackSite(loaded, switch, terms, print_notice) as site:
        if inspect or list_:
            raise typer.Exit(_show(loaded, switch, site, lists=list_, as_json=as_json))
        wish = Wish(export=export, append=append, rebuild=tuple(rebuild or ()), rebuild_all=rebuild_all, lift=lift)
        if dry_run:
            raise typer.Exit(_show_rebuild(site, switch, terms, wish))
        outcome = _run(loaded, switch, site, terms, wish, debug=debug)
        lines = list(outcome.lines)
        if outcome.status in {DONE, ATTENTION} and outcome.record.state.is_open:
            appends = site.facts(outcome.record).appends
            lines += shown.next_lines(name, switch.back, outcome.record, appends)
    if as_json:
        print(json.dumps({"switch": name, "status": outcome.status, **plain(outcome.record)}, indent=2))
    for line in lines:
        print_notice(f"switch {name}: {line}")
    raise typer.Exit(outcome.status)


def _run(
    config: MirrorConfig, switch: SwitchConfig, site: FailbackSite, terms: Terms, wish: Wish, *, debug: bool
) -> CommandOutcome:
    operator = Operator(site, terms, f"{user()}, process {os.getpid()}", SystemClock().unix_ms, machine_of(wish))
    try:
        ids = _ids(config, switch)
        _record(site, switch)
        operator.claim(switch.flows, ids)
        outcome = SwitchCommand(operator, terms, print_notice, lambda _: "").run()
        operator.leave()
    except MirrorError as error:
        print_error(error, debug=debug)
        return CommandOutcome(record=operator.record, status=FAILED)
    return outcome


def _ids(config: MirrorConfig, switch: SwitchConfig) -> tuple[str, str]:
    flow = config.flows[switch.flows[0]]
    with Clusters(config) as clusters:
        if away := clusters.away((flow.source, flow.target), print_notice):
            errors = [*away.values()]
            raise errors[0] if len(errors) == 1 else SeveralErrors(errors)
        return (clusters.side(flow.source).cluster.cluster_id, clusters.side(flow.target).cluster.cluster_id)


def _record(site: FailbackSite, switch: SwitchConfig) -> SwitchRecord:
    """Return the record of the failover. Raises FlowError, KafkaError."""
    record = site.read_record()
    if record is None or not record.state.is_open:
        state = "has not begun" if record is None else f"is {record.state}"
        raise FlowError(f"switch {switch.name} {state}: mirror failover {switch.name} opens the standby first")
    return record


def _show_rebuild(site: FailbackSite, switch: SwitchConfig, terms: Terms, wish: Wish) -> int:
    record = _record(site, switch)
    refusal, lines = rebuild_plan(record, site.facts(record), wish, terms)
    for line in lines:
        print(printable(line))
    if refusal:
        print_notice(f"switch {switch.name}: {refusal}")
    return ATTENTION if refusal else DONE


def _show(config: MirrorConfig, switch: SwitchConfig, site: FailbackSite, *, lists: bool, as_json: bool) -> int:
    record = _record(site, switch)
    inspection = site.inspect(record)
    found: dict[str, Any] = {"switch": switch.name, "inspection": asdict(inspection)}
    lines = [*shown.inspected(inspection)]
    if lists:
        back = record.failback
        tails: Mapping[str, Sequence[Span]] = {topic: spans(back, topic) for topic in back.starts}
        if not back.located_ms:
            tails = {
                one.topic: [Span(max(part.tail_start, 0), part.end) for part in one.partitions]
                for one in inspection.topics
                if one.tail
            }
        topics = []
        for flow in site.flows:
            of_flow = {topic: of for topic, of in tails.items() if flow.includes(topic)}
            topics += TailLister(config, flow, CALL_MS).list(of_flow, record, site.source, site.target)
        groups = costs_of_groups(site.flows, topics, record, site.target, CALL_MS)
        found |= {
            "exact": bool(back.located_ms),
            "topics": [asdict(one) for one in topics],
            "groups": [asdict(one) for one in groups],
        }
        lines += shown.listed(topics, groups)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for line in lines:
            print(printable(line))
    return DONE if inspection.is_sound else ATTENTION
