"""``mirror aside``: list the records that a target did not take, and copy them again."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout, one_flow
from mirror.cli.views.amounts import ago
from mirror.config.load import load
from mirror.errors import printable
from mirror.exit_status import ATTENTION, DONE
from mirror.relay.batches.reencode import time_text
from mirror.spark.aside_topic import AsideTopic, unknown_of
from mirror.spark.clusters import check_answers
from mirror.spark.driver import job_options
from mirror.spark.driver.output.terminal import Terminal

if TYPE_CHECKING:
    from mirror.relay.batches.aside import Place
    from mirror.spark.aside_topic import AsideEntry


def aside(
    config: Config,
    records: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC-PARTITION@OFFSET...]", help="Records, by their source offset.")
    ] = None,
    flow: Annotated[str | None, typer.Option(job_options.FLOW.name, help="The flow.  [default: the only one]")] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Append them to their partitions, behind newer records.")
    ] = False,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Note that nothing is to be done about them.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All that are aside, instead of named ones.")] = False,
    repeat: Annotated[bool, typer.Option("--repeat", help="With --copy: also what was copied or dismissed.")] = False,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """List the records that went aside, since the target did not take them; copy them again, or dismiss them.

    Each is copied once: in one transaction with a note in the aside topic, by which the command knows it. It stands
    behind newer records then, also of its key. A record that the target still refuses stays aside.

    Exit status: 0 nothing is aside any more, or of those that were named; 3 some is; 1 could not run; 2 wrong usage.
    """
    if copy and dismiss:
        raise typer.BadParameter("--copy and --dismiss exclude each other")
    if (copy or dismiss) is not bool(records or everything):
        raise typer.BadParameter("--copy and --dismiss need records, or --all; a list needs neither")
    if (records and everything) or (repeat and not copy):
        raise typer.BadParameter("name records, or give --all; --repeat needs --copy")
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    found = one_flow(loaded, flow)
    topic = AsideTopic(loaded, found)
    check_answers(loaded, (found.target,), print_notice)
    wanted = set(records or ())
    if unknown := unknown_of(sorted(wanted), topic.entries() if wanted else ()):
        raise typer.BadParameter(f"{found.aside} has no {', '.join(map(printable, unknown))}")

    def chosen(place: Place) -> bool:
        return everything or str(place) in wanted

    refused: dict[Place, str] = {}
    if dismiss:
        for place in topic.dismiss(chosen):
            print_notice(f"{place}: dismissed")
    elif copy:
        _, refused = topic.copy(chosen, repeat=repeat, on_line=print_notice)
        for place, why in refused.items():
            print_warning(f"{place} stays aside: {printable(why)}")
    entries = topic.entries()
    _print(entries, refused, as_json=as_json)
    left = [one for one in entries if one.settlement is None and (not wanted or chosen(one.record.place))]
    raise typer.Exit(ATTENTION if left or refused else DONE)


def _print(entries: list[AsideEntry], refused: dict[Place, str], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_values(one, refused) for one in entries], indent=2))
        return
    if not entries:
        print("nothing is aside")
        return
    table = Table("record", "reason", "its time", "bytes", "went aside", "is")
    now_ms = int(time.time() * 1000)
    for one in entries:
        record = one.record
        table.add_row(
            Text(printable(str(record.place))),
            Text(printable(record.reason)),
            time_text(record.timestamp_ms),
            decimal(one.size),
            ago(record.aside_ms, now_ms),
            Text(printable(one.state)),
        )
    Terminal().print(table)


def _values(one: AsideEntry, refused: dict[Place, str]) -> dict[str, Any]:
    record, settlement = one.record, one.settlement
    return {
        "topic": record.place.topic,
        "partition": record.place.partition,
        "offset": record.place.offset,
        "end": record.end,
        "source_cluster_id": record.place.cluster_id,
        "target_topic": record.target_topic,
        "reason": record.reason,
        "timestamp_ms": record.timestamp_ms,
        "aside_ms": record.aside_ms,
        "bytes": one.size,
        "state": one.state,
        "target_offset": None if settlement is None or settlement.target_offset < 0 else settlement.target_offset,
        "refused": refused.get(record.place),
    }
