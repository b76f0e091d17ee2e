"""``mirror rehearse``: what it would cost if consumers switched to the other cluster now."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.console import print_notice, print_warning
from mirror.cli.each_flow import ask_each
from mirror.cli.options import AsJson, Config, Debug, Flow, SecretsDir, Timeout
from mirror.cli.views.rehearsal_view import view
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.extras import REPORT, require
from mirror.rehearsal.coverage import Waivers
from mirror.rehearsal.summary import to_json
from mirror.rehearsal.values import Limits
from mirror.relay.progress.status_topic import STATUS_MS, write_status
from mirror.relay.progress.status_values import REHEARSAL
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.status_table import read_reported
from mirror.spark.rehearsing.rehearse import Request
from mirror.spark.rehearsing.rehearse import rehearse as rehearse_ahead
from mirror.spark.rehearsing.reverse import rehearse_back
from mirror.telemetry.evidence import LastRehearsal
from mirror.telemetry.report.format import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.rehearsal.values import Rehearsal


def rehearse(
    config: Config,
    flow: Flow = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be repeated.")] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Rehearse the way back: the target's consumers switch to the source.")
    ] = False,
    max_records: Annotated[
        int | None,
        typer.Option(
            "--max-records",
            min=0,
            help="Not ready if more records have not arrived, or if a group would read more of a partition again.",
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", min=0, help="Not ready if the oldest record that has not arrived is older."),
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(
            "--waive",
            metavar="NAME",
            help="Accept what the flow does not cover: topics, groups and partitions with this name (a regular"
            " expression for all of it); may be repeated.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write it as one HTML file.", dir_okay=False)
    ] = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what would happen if consumers switched to the target now. Changes nothing but for a record of the result.

    That is written to the flow's status topic on the target, if it may be, without --reverse and --group.

    Of each group and partition: what would be read again, and what skipped. What has not arrived: records, bytes, and
    the age of the oldest one (the recovery point); how long the rest would take, at the rate of earlier runs (the
    recovery time). And what is not ready: groups, topics, configurations, ACLs, what the flow does
    not cover, and what to do. While the source is away, it says what the last rehearsal has found.

    Exit status: 0 ready, 3 not ready, 1 could not look, 2 wrong usage.
    """
    if html is not None:
        require("--html", REPORT)
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    flows = loaded.select(flow)
    try:
        waivers = Waivers.parse(waive or ())
    except re.error as wrong:
        raise typer.BadParameter(f"is no regular expression: {wrong}", param_hint="--waive") from None
    limits = Limits(max_records=max_records, max_seconds=max_seconds)

    def ask(one: FlowConfig, sides: Sides) -> Rehearsal:
        request = Request(
            config=loaded,
            flow=one,
            limits=limits,
            groups=frozenset(group or ()),
            waivers=waivers,
            together=[other.name for other in flows],
        )
        return rehearse_back(request, sides) if reverse else rehearse_ahead(request, sides)

    answers = ask_each(loaded, flows, ask, debug=debug)
    found = list(answers.found.values())
    _store(loaded, [] if reverse or group else found)
    if as_json:
        answers.print_json(to_json)
    else:
        for rehearsal in found:
            Terminal().print(view(rehearsal))
    for line in _earlier(
        loaded, [one for one in flows if one.source in answers.away and one.target not in answers.away]
    ):
        print_notice(line)
    answers.print_warnings()
    if html is not None and found:
        _write_html(html, found)
    answers.exit(lambda one: not one.is_ready)


def _earlier(config: MirrorConfig, flows: Sequence[FlowConfig]) -> Iterator[str]:
    """Yield what is known of flows whose source is away: their last rehearsals."""
    for flow in flows:
        last = read_reported(config.clusters[flow.target].client_options(), flow.name)[0].rehearse
        if last is None:
            yield f"flow {flow.name}: {flow.target} knows of no earlier rehearsal; mirror groups shows what it knows"
            continue
        found = "ready" if last.ready else f"not ready ({last.groups_not_ready} of {last.groups} groups)"
        at = f"as of {moment(last.time_ms)} it was {found}"
        yield f"flow {flow.name}: {at}; mirror groups shows what {flow.target} knows"


def _store(config: MirrorConfig, found: Sequence[Rehearsal]) -> None:
    """Leave what was found in the flows' status topics, for their runs on any host."""
    for one in found:
        last = LastRehearsal.of(to_json(one))
        target = config.clusters[config.flows[one.flow].target].client_options()
        refused = write_status(target, one.flow, {REHEARSAL: last}, STATUS_MS)
        if refused is not None:
            print_warning(f"flow {one.flow}: its runs will not know of this rehearsal: {refused}")


def _write_html(path: Path, found: Sequence[Rehearsal]) -> None:
    # Not at the top: the import of Jinja takes 0.1 s.
    from mirror.telemetry.report.rehearsal_page import render

    page = render(found, int(time.time() * 1000)).encode("utf-8", "replace")
    try:
        write_atomically(path, page)
    except OSError as error:
        raise FlowError(f"{path} cannot be written: {error.strerror}; choose another file with --html") from error
