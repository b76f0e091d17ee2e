"""``mirror offsets``: translate offsets of a partition between source and target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout, one_flow
from mirror.cli.views.place_texts import MEANINGS
from mirror.client import Admin, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.config.flow_rules import source_options, target_options
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.exit_status import ATTENTION, DONE
from mirror.relay.offsets.index import Place, Translation
from mirror.relay.offsets.target_index import open_on_target
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import cluster_options
from mirror.spark.clusters import contact
from mirror.spark.driver import job_options
from mirror.spark.driver.output.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.relay.offsets.partition_offsets import PartitionOffsets


def offsets(
    config: Config,
    topic: Annotated[str, typer.Argument(help="The source topic.")],
    partition: Annotated[int, typer.Argument(min=0, help="The partition.")],
    wanted: Annotated[list[int], typer.Argument(metavar="OFFSET...", min=0, help="Offsets of the source.")],
    flow: Annotated[
        str | None,
        typer.Option(job_options.FLOW.name, help="The flow that copies the topic.  [default: the only one]"),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The offsets are those of the target topic.")] = False,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Show which offsets of the target are those of the source, or with --reverse the other way. Changes nothing.

    Every answer is exact: an offset without a record is that of the next record, and what cannot be known is unknown.
    If the source does not answer, it is what the target's index says of its log as it was copied.

    Exit status: 0 all translated, 3 an offset is unknown or not copied yet, 1 could not read, or the target only,
    2 wrong usage.
    """
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    copied = one_flow(loaded, flow)
    source = TopicPartition(topic, partition)
    target = TopicPartition(copied.target_topic(topic), partition)
    away = contact(loaded, (copied.source, copied.target), print_notice)
    if copied.target in away:
        raise away[copied.target]  # which has the index
    clusters = source_options(loaded, copied), target_options(loaded, copied)
    if copied.source in away:
        timeout_ms = ClusterSettings.parse(cluster_options(clusters[1])).default_api_timeout_ms
        found = open_on_target(copied.name, clusters[1], copied.copy_policy(), topic, target, timeout_ms)
        translations, passed = _translate(found, wanted, reverse=reverse), dict.fromkeys(wanted, 0)
    else:
        _check_exists(copied.source, source, clusters[0])
        with OffsetTranslator(copied.name, *clusters, copied.copy_policy()) as translator:
            found = translator.open({source: target})[source]
            count = found.passed_back if reverse else found.passed
            translations = _translate(found, wanted, reverse=reverse)
            passed = {offset: count(offset, one) for offset, one in translations.items()}
    names = ("target", "source") if reverse else ("source", "target")
    if as_json:
        documents = [
            {names[0]: offset, names[1]: one.offset, "place": one.place.value, "passed": passed[offset]}
            for offset, one in translations.items()
        ]
        heading = {"flow": copied.name, "topic": topic, "target_topic": target.topic, "partition": partition}
        print(json.dumps({**heading, "offsets": documents, "reason": found.reason}, indent=2))
    else:
        Terminal().print(_table(f"flow {copied.name}: {source} to {target}", names, translations, passed))
        is_unknown = any(one.place is Place.UNKNOWN for one in translations.values())
        if found.reason and (is_unknown or away or not found.is_of_copied_topic):
            print_warning(found.reason)
    if away:
        raise away[copied.source]
    incomplete = {Place.UNKNOWN, Place.NOT_COPIED} & {one.place for one in translations.values()}
    raise typer.Exit(ATTENTION if incomplete else DONE)


def _translate(found: PartitionOffsets, wanted: Iterable[int], *, reverse: bool) -> dict[int, Translation]:
    translate = found.translate_back if reverse else found.translate
    return {offset: translate(offset) for offset in wanted}


def _check_exists(cluster: str, source: TopicPartition, options: Mapping[str, object]) -> None:
    """Raise FlowError if the cluster has no such partition: its brokers would be asked again until the timeout."""
    with Admin(options) as admin:
        found = admin.describe_topics([source.topic]).get(source.topic)
    if found is None:
        raise FlowError(f"cluster {cluster} has no topic {source.topic}, or its user lacks Describe on it")
    if source.partition >= (count := len(found.partitions)):
        raise FlowError(
            f"topic {source.topic} of cluster {cluster} has no partition {source.partition}: it has {count}"
        )


def _table(title: str, names: tuple[str, str], translations: dict[int, Translation], passed: dict[int, int]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("remarks")
    for offset, (place, other) in translations.items():
        remark = f"; {passed[offset]:,} records in front of it are deleted there" if passed[offset] else ""
        table.add_row(f"{offset}", "" if other is None else f"{other}", MEANINGS[place] + remark)
    return table
