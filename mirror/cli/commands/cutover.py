"""``mirror cutover``: move the clients of flows' topics from the source to the target, with proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, Debug, SecretsDir
from mirror.cli.switching import arrivals, run, state_of
from mirror.cli.views import switch_view
from mirror.cluster.acls import read_denial, write_denial
from mirror.config.load import load
from mirror.errors import SeveralErrors, printable
from mirror.exit_status import ATTENTION, DONE
from mirror.extras import REPORT, require
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.switch.acting import ClusterSite, Files
from mirror.switch.machine import CUTOVER, Terms
from mirror.switch.pause import expected_pause, measured
from mirror.switch.readiness import blockers
from mirror.switch.record import State

if TYPE_CHECKING:
    from mirror.config.models import MirrorConfig
    from mirror.config.switch_settings import SwitchConfig

_DEFAULT_FOLDER: Final = Path("mirror-switch")
_UNTIL: Final = (State.READY, State.FENCED, State.DRAINED, State.PROVED, State.MOVED, State.OPEN, State.REVERSED)


def cutover(
    config: Config,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The switch, of a table \\[switches.NAME].")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and what keeps it from beginning; do nothing.")
    ] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STATE", help="Stop in this state; the same command goes on.")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Remove the fence, and let the flows go on, if it is not open yet.")
    ] = False,
    abort_open: Annotated[
        bool, typer.Option("--abort-open", help="Abort transactions of producers that are open behind the fence.")
    ] = False,
    watch_seconds: Annotated[
        int,
        typer.Option("--watch-seconds", min=0, help="Once it is done, wait so long for clients on the target."),
    ] = 0,
    status: Annotated[
        bool, typer.Option("--status", help="Show how far it is, by either cluster; change nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="With --status: until it has ended.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write its record as one HTML file.", dir_okay=False),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="Where proofs are kept between two commands.", file_okay=False)
    ] = _DEFAULT_FOLDER,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Move clients to the target: fence producers, copy and prove the rest, move groups, then open the target.

    The state is on both clusters: a command that was killed is repeated, on any host. Before the switch is open, a
    failure or a passed deadline rolls it back, with ACLs as they were.

    Exit status: 0 done, 1 could not read the clusters, this command has changed nothing, 2 wrong usage, 3 refused, no
    client is affected, or it was done and does not hold any more, 5 stopped with producers fenced, 6 rolled back, 7
    open and not done.
    """
    if watch and not status:
        raise typer.BadParameter("needs --status", param_hint="--watch")
    if html is not None:
        require("--html", REPORT)
    loaded = load(config, secrets_dir=secrets_dir)
    switch = loaded.switch(name)
    terms = Terms(
        name=name,
        quiet_ms=switch.quiet_seconds * 1000,
        deadline_ms=switch.deadline_seconds * 1000,
        fence=switch.fence,
        deny_read=switch.deny_read,
        lag_records=switch.lag_records,
        back=switch.back,
        switches=bool(switch.hook_switch),
        hook_ms=switch.hook_seconds * 1000 if switch.hook_fence or switch.hook_switch else 0,
        sees_clients=bool(switch.clients),
        abort_open=abort_open,
        rollback=rollback,
        until=state_of(until, _UNTIL),
    )
    ids = _ids(loaded, switch, needs_both=dry_run)
    with ClusterSite(loaded, switch, terms, Files(config, secrets_dir, folder), print_notice) as site:
        if status:
            switch_view.show(site.read_record, name, html, watch=watch, as_json=as_json)
            raise typer.Exit(DONE)
        if dry_run:
            raise typer.Exit(_dry_run(loaded, switch, site, as_json=as_json))
        folder.mkdir(parents=True, exist_ok=True)
        outcome = run(site, switch.flows, terms, ids, CUTOVER, debug=debug)
        arrived = arrivals(site.reader.clients, outcome.record, watch_seconds, name)
    if as_json:
        print(json.dumps(switch_view.to_json(name, outcome.record, arrived, status=outcome.status), indent=2))
    pause = measured(outcome.record)
    for line in (*outcome.lines, *([] if pause is None else [pause.line()])):
        print_notice(f"switch {name}: {line}")
    if html is not None:
        switch_view.write_page(html, name, outcome.record, SystemClock().unix_ms(), arrived)
    raise typer.Exit(outcome.status)


def _ids(config: MirrorConfig, switch: SwitchConfig, *, needs_both: bool) -> tuple[str, str]:
    """Return the ids of the source and of the target, empty for one that is away. Raises MirrorError if both are.

    A switch that is open needs no source; one that is fenced is shown, and rolled back, without the target.
    """
    flow = config.flows[switch.flows[0]]
    names = (flow.source, flow.target)
    with Clusters(config) as clusters:
        away = clusters.away(names, print_notice)
        if away and (needs_both or len(away) == len(names)):
            errors = [*away.values()]
            raise errors[0] if len(errors) == 1 else SeveralErrors(errors)
        source, target = ("" if name in away else clusters.side(name).cluster.cluster_id for name in names)
        return source, target


def _dry_run(config: MirrorConfig, switch: SwitchConfig, site: ClusterSite, *, as_json: bool) -> int:
    topics = site.reader.topics()
    acls = [write_denial(topic) for topic in topics] if switch.fence == "acl" else []
    acls += [read_denial(group) for group in sorted(site.reader.groups(topics))] if switch.deny_read else []
    pause = expected_pause(switch.quiet_seconds, site.reader.paces(), len((*switch.flows, *switch.back)))
    found = [*blockers(config, switch, site.reader)]
    if as_json:
        hooks = {"fence": switch.hook_fence, "switch": switch.hook_switch}
        shown = {"switch": switch.name, "topics": [*topics], "acls": [*map(str, acls)], "hooks": hooks}
        print(json.dumps({**shown, "pause": pause, "blockers": found}, indent=2))
        return ATTENTION if found else DONE
    for acl in acls:
        print(printable(f"creates on the source: {acl}"))
    if switch.hook_fence:
        print(printable(f"runs: {' '.join(switch.hook_fence)}"))
    print(f"waits until {len(topics)} topics have been quiet for {switch.quiet_seconds} s; copies the rest meanwhile,")
    print(f"compares both clusters, holds {', '.join((*switch.flows, *switch.back))}, and moves groups")
    if switch.hook_switch:
        print(printable(f"runs: {' '.join(switch.hook_switch)}"))
    for line in pause:
        print(printable(line))
    for line in found:
        print_warning(line)
    return ATTENTION if found else DONE
