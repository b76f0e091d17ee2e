"""``mirror failover``: move the clients of flows' topics to the target while the source is away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, Debug, SecretsDir
from mirror.cli.switching import arrivals, run, state_of
from mirror.cli.views import switch_view
from mirror.config.load import load
from mirror.errors import printable
from mirror.exit_status import ATTENTION, DONE
from mirror.extras import REPORT, require
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.switch.acting import Files
from mirror.switch.failover.deciding import FAILOVER
from mirror.switch.failover.site import FailoverSite
from mirror.switch.machine import Terms
from mirror.switch.record import State

if TYPE_CHECKING:
    from mirror.config.models import MirrorConfig
    from mirror.config.switch_settings import SwitchConfig

_UNTIL: Final = (State.READY, State.MOVED, State.OPEN)


def failover(
    config: Config,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The switch, of a table \\[switches.NAME].")],
    assess: Annotated[
        bool, typer.Option("--assess", help="Show what the target has, and by when; change nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show that, and what would be done; change nothing.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all partitions and groups, not only the worst.")
    ] = False,
    watch_seconds: Annotated[
        int,
        typer.Option("--watch-seconds", min=0, help="Once it is done, wait so long for clients on the target."),
    ] = 0,
    status: Annotated[bool, typer.Option("--status", help="Show how far the switch is; change nothing.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="With --status: until it has ended.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write its record as one HTML file.", dir_okay=False),
    ] = None,
    although_reachable: Annotated[
        bool, typer.Option("--although-reachable", help="Go on although the source answers, which is fenced first.")
    ] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STATE", help="Stop in this state; the same command goes on.")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Remove the fence, and let the flows go on, if it is not open yet.")
    ] = False,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Open the target for clients, with what was copied to it: the source need not answer.

    Nothing of the old flow writes to the target any more: it is held, and its open transactions are aborted. What only
    the source has is not there. The state is on the target: a command that was killed is repeated, on any host.

    Exit status: 0 done, 1 could not read the target, 2 wrong usage, 3 refused, and no client is affected, such as since
    the source answers, or it was done and does not hold any more, 5 stopped with producers fenced, 6 rolled back, 7
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
        quiet_ms=0,
        deadline_ms=switch.deadline_seconds * 1000,
        fence=switch.fence,
        switches=bool(switch.hook_switch),
        hook_ms=switch.hook_seconds * 1000 if switch.hook_fence or switch.hook_switch else 0,
        sees_clients=bool(switch.clients),
        although_reachable=although_reachable,
        rollback=rollback,
        until=state_of(until, _UNTIL),
    )
    target_id = _target_id(loaded, switch)
    with FailoverSite(loaded, switch, terms, Files(config, secrets_dir, Path()), print_notice) as site:
        if status:
            switch_view.show(site.read_record, name, html, watch=watch, as_json=as_json)
            raise typer.Exit(DONE)
        if assess or dry_run:
            raise typer.Exit(_assess(site, switch, terms, steps=dry_run, every=show_all, as_json=as_json))
        outcome = run(site, switch.flows, terms, ("", target_id), FAILOVER, debug=debug)
        arrived = arrivals(site.standby.clients, outcome.record, watch_seconds, name)
    if as_json:
        print(json.dumps(switch_view.to_json(name, outcome.record, arrived, status=outcome.status), indent=2))
    if outcome.record.unfenced:
        print_warning(f"switch {name}: the source was not fenced: {outcome.record.unfenced}")
    for line in outcome.lines:
        print_notice(f"switch {name}: {line}")
    if html is not None:
        switch_view.write_page(html, name, outcome.record, SystemClock().unix_ms(), arrived)
    raise typer.Exit(outcome.status)


def _target_id(config: MirrorConfig, switch: SwitchConfig) -> str:
    """Return the id of the target's cluster. Raises MirrorError if it does not answer."""
    name = config.flows[switch.flows[0]].target
    with Clusters(config) as clusters:
        for error in clusters.away((name,), print_notice).values():
            raise error
        return clusters.side(name).cluster.cluster_id


def _assess(site: FailoverSite, switch: SwitchConfig, terms: Terms, *, steps: bool, every: bool, as_json: bool) -> int:
    found = site.standby.assess()
    refusals = [one for one in found.refusals() if found.source_away or not terms.although_reachable]
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        for line in found.lines(every=every):
            print(printable(line))
        for line in _steps(switch, terms, reachable=not found.source_away) if steps else ():
            print(printable(line))
    for line in refusals:
        print_warning(line)
    return ATTENTION if refusals else DONE


def _steps(switch: SwitchConfig, terms: Terms, *, reachable: bool) -> list[str]:
    """Return what a failover would do now."""
    fence = (
        "denies WRITE to everyone on the source" if switch.fence == "acl" else f"runs: {' '.join(switch.hook_fence)}"
    )
    return [
        *([f"{fence}, for as long as the source answers"] if reachable and terms.although_reachable else []),
        f"holds {', '.join(switch.flows)}, which takes 12 s or more, and ends the transactions of their copies",
        "opens the target: deletes the denials that are listed",
        *([f"runs: {' '.join(switch.hook_switch)}"] if switch.hook_switch else []),
    ]
