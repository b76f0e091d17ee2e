"""``mirror takeover``: begin where MirrorMaker 2 has stopped, in the same target topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout
from mirror.client import TopicPartition
from mirror.config.flow_rules import source_options, target_options
from mirror.config.load import load
from mirror.errors import FlowError, printable
from mirror.exit_status import ATTENTION, DONE
from mirror.spark.clusters import Clusters, check_answers
from mirror.spark.driver import job_options
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight import flow_topics
from mirror.spark.preflight.flow_groups import rules_of, with_the_same_name
from mirror.takeover.hand_back import hand_back
from mirror.takeover.places import Deployment
from mirror.takeover.sides import OBSERVED_S, TakeoverRequest
from mirror.takeover.taking_over import Takeover

if TYPE_CHECKING:
    from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
    from mirror.takeover.hand_back_decision import HandBackReport
    from mirror.takeover.takeover_report import TakeoverReport


def takeover(
    config: Config,
    flow: Annotated[str, typer.Option(job_options.FLOW.name, help="The flow that continues what MirrorMaker 2 did.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be taken over; fence and write nothing.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="The other way: have MirrorMaker 2 continue where the flow has stopped.")
    ] = False,
    offsets_topic: Annotated[
        str | None,
        typer.Option(
            "--offsets-topic",
            help="The topic of its positions (offset.storage.topic). [default: the usual names]",
        ),
    ] = None,
    connector: Annotated[
        str | None,
        typer.Option("--connector", help="The name of the source connector. [default: that of the positions]"),
    ] = None,
    offsets_cluster: Annotated[
        str | None,
        typer.Option(
            "--offsets-cluster",
            metavar="CLUSTER",
            help="The configuration's cluster that has this topic, if Kafka Connect's workers use another than the"
            " target.",
        ),
    ] = None,
    worker_group: Annotated[
        str | None,
        typer.Option("--worker-group", help="The workers' group.id. [default: by the topic's usual name]"),
    ] = None,
    status_topic: Annotated[
        str | None,
        typer.Option(
            "--status-topic",
            help="The workers' topic of states (status.storage.topic). [default: by the usual names]",
        ),
    ] = None,
    source_alias: Annotated[
        str | None,
        typer.Option("--source-alias", help="MirrorMaker 2's alias of the source. [default: the flow's name for it]"),
    ] = None,
    target_alias: Annotated[
        str | None,
        typer.Option("--target-alias", help="MirrorMaker 2's alias of the target. [default: the flow's name for it]"),
    ] = None,
    observe: Annotated[
        float, typer.Option("--observe", metavar="SECONDS", min=0, help="How long to watch whether something writes.")
    ] = OBSERVED_S,
    while_it_writes: Annotated[
        bool,
        typer.Option(
            "--while-it-writes",
            help="Go on although something writes: others use the same topics, or the connector copies other topics.",
        ),
    ] = False,
    unmatched_from_start: Annotated[
        bool,
        typer.Option(
            "--unmatched-from-start",
            help="Copy a partition from the source's beginning if MirrorMaker 2 has stored no position, and none of the"
            " target's records is a copy: the source has deleted these records, or others have written them.",
        ),
    ] = False,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Begin where MirrorMaker 2 has stopped, in the same target topics: no record is lost, and none copied again.

    Stop MirrorMaker 2 first. A partition that cannot be settled is left out and named; the others are taken over, and
    the command can be repeated.

    With --back, MirrorMaker 2's own positions are written instead, so that it continues where the flow has stopped, and
    the flow's progress is removed. Stop the flow first.

    Exit status: 0 all partitions are taken over, 3 some are left out, 1 could not take over, 2 wrong usage,
    4 the flow is held.
    """
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    (copied,) = loaded.select(flow)
    options = source_options(loaded, copied), target_options(loaded, copied)
    positions_options = None if offsets_cluster is None else _cluster(loaded, offsets_cluster).client_options()
    others = () if offsets_cluster is None else (offsets_cluster,)
    check_answers(loaded, (copied.source, copied.target, *others), print_notice)
    request = TakeoverRequest(
        flow=copied.name,
        deployment=Deployment(
            source=source_alias or copied.source,
            target=target_alias or copied.target,
            offsets_topic=offsets_topic,
            offsets_cluster=offsets_cluster,
            connector=connector,
            worker_group=worker_group,
            status_topic=status_topic,
        ),
        targets=_partitions(copied, loaded),
        exactly_once=copied.exactly_once,
        dry_run=dry_run,
        while_it_writes=while_it_writes,
        observed_s=observe,
        unmatched_from_start=unmatched_from_start,
        includes_group=with_the_same_name(rules_of(copied)) if copied.groups.sync else None,
    )

    def prepare() -> None:
        needed = flow_topics.of_takeover(copied)
        with Clusters(loaded) as clusters:
            target = clusters.side(copied.target)
            _, warnings = flow_topics.prepare([*flow_topics.on_target(copied), needed], target)
            for warning in warnings:
                print_warning(f"flow {copied.name}: {warning}")
            if needed.name not in target.admin.describe_topics([needed.name]):
                raise FlowError(
                    f"flow {copied.name}: topic {needed.name} is missing on {copied.target}, so nothing is taken over:"
                    " create it (one partition, cleanup.policy = compact), or correct what the warning says"
                )

    report: TakeoverReport | HandBackReport
    if back:
        report = hand_back(request, *options, positions_options=positions_options)
    else:
        with Takeover(request, *options, positions_options=positions_options, prepare=prepare) as prepared:
            report = prepared.run()
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for line in report.lines():
            print(printable(line))
    for warning in report.warnings:
        print_warning(f"flow {copied.name}: {warning}")
    raise typer.Exit(DONE if report.is_complete else ATTENTION)


def _cluster(loaded: MirrorConfig, name: str) -> ClusterConfig:
    if name not in loaded.clusters:
        known = ", ".join(sorted(loaded.clusters))
        raise FlowError(f"--offsets-cluster: the configuration has no cluster {name}, only {known}")
    return loaded.clusters[name]


def _partitions(flow: FlowConfig, config: MirrorConfig) -> dict[TopicPartition, TopicPartition]:
    """Return the flow's source partitions, and their target partitions. Raises FlowError, KafkaError."""
    with Clusters(config) as clusters:
        topics = clusters.side(flow.source).topics
    return {
        TopicPartition(name, one.partition): TopicPartition(flow.target_topic(name), one.partition)
        for name in select_topics(flow, topics)
        if flow.includes(name)
        for one in topics[name].partitions
    }
