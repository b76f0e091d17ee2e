"""``mirror positions``: translate positions that are in no consumer group, and write them for engines."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from mirror.cli.bounded import bounded
from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout, one_flow
from mirror.cli.views.place_texts import MEANINGS
from mirror.client import Admin
from mirror.config.load import load
from mirror.errors import FlowError, MirrorError, named, printable
from mirror.exit_status import ATTENTION, DONE
from mirror.extras import SPARK, require
from mirror.positions.continuing import CheckpointFolder
from mirror.positions.files import LocalFiles
from mirror.positions.iceberg import parse_snapshot, property_of
from mirror.positions.internal_topics import advice, ends_of
from mirror.positions.lists import FORMS, Listed, Moved, parse_list
from mirror.positions.places import Found, SourcePosition
from mirror.positions.translating import translate
from mirror.relay.progress.flow_topic import cluster_options
from mirror.spark.clusters import contact
from mirror.spark.driver import job_options
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.preflight.flow_groups import access_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.clusters import FlowAccess
    from mirror.positions.files import Files

app = typer.Typer(
    no_args_is_help=True,
    help="Translate positions that are in no consumer group: checkpoints, lists of offsets, snapshots of tables.",
)

_STDIN: Final = "-"
_BEHIND: Final = (
    "a job of Flink that stops does not wait until its last offsets are committed: unless it had read all there is,"
    " take them from its savepoint, by jobs/FlinkOffsets.java"
)

Flow = Annotated[
    str | None,
    typer.Option(job_options.FLOW.name, help="The flow that copies the topics.  [default: the only one]"),
]


class Form(enum.StrEnum):
    """What a list of positions is written as, for a program."""

    CSV = "csv"
    FLINK = "flink"
    SPARK = "spark"


class _Site(NamedTuple):
    """A flow, and whether its source answers."""

    config: MirrorConfig
    flow: FlowConfig
    access: FlowAccess
    away: MirrorError | None

    @classmethod
    def of(cls, config: Path, flow: str | None, secrets_dir: Path | None, timeout: float | None) -> _Site:
        """Raises MirrorError: also if the target does not answer, which has the index."""
        loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
        copied = one_flow(loaded, flow)
        away = contact(loaded, (copied.source, copied.target), print_notice)
        if copied.target in away:
            raise away[copied.target]
        return cls(loaded, copied, access_of(loaded, copied), away.get(copied.source))

    def target_topic(self, topic: str) -> str | None:
        """Return the target's name of a topic; None if the flow does not copy it."""
        return self.flow.target_topic(topic) if self.flow.includes(topic) else None

    def brings(self, group: str) -> bool:
        """Whether the flow brings a group's positions to the target, under the same name."""
        groups = self.flow.groups
        return groups.sync and groups.includes(group) and groups.target_group(group) == group

    def translate(self, positions: Iterable[SourcePosition]) -> Found:
        """Return what positions are on the target. Raises KafkaError."""
        if self.away is not None:
            print_warning(
                f"cluster {self.flow.source} does not answer: positions are those of its log as it was copied"
            )
        return translate(self.access, self.target_topic, positions, source_is_away=self.away is not None)

    def source(self) -> Admin:
        """Return a client of the source, to be closed. Raises the error if it does not answer."""
        if self.away is not None:
            raise self.away
        return Admin(cluster_options(self.access.source_options))


@app.command("translate")
@bounded
def translate_list(
    config: Config,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help='Positions of the source: CSV, as kafka-consumer-groups --export writes it ("topic,partition,offset"'
            ' or "group,topic,partition,offset"), or JSON, as Spark writes it; - is stdin.',
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="What this group has committed instead; may be repeated.")
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--as",
            help="csv for kafka-consumer-groups --reset-offsets --from-file, flink for setStartingOffsets, spark for"
            " startingOffsets.  [default: a table]",
        ),
    ] = None,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Print the offsets of the target for a list of the source's, or for what groups have committed there.

    With --as nothing is printed unless each offset is exact. Changes nothing.

    Exit status: 0 all exact, 3 some are not copied yet, unknown, or deleted on the target, 1 could not read, 2 wrong
    usage.
    """
    if (file is None) is not bool(group):
        raise typer.BadParameter("give either a FILE or --group")
    if form is not None and as_json:
        raise typer.BadParameter("not together with --as", param_hint="--json")
    site = _Site.of(config, flow, secrets_dir, timeout)
    listed = _committed(site, group) if group else parse_list(_text(file or _STDIN), file or _STDIN)
    found = site.translate(one.position for one in listed)
    exact = not any(found[one.position].problem for one in listed)
    if form is None:
        _show(site, listed, found, as_json=as_json)
    elif exact:
        if group and form is Form.FLINK:
            print_warning(_BEHIND)
        print(FORMS[form](_moved(site, listed, found)), end="")
    else:
        for one in listed:
            if problem := found[one.position].problem:
                print_warning(f"{one.position.tp} at offset {one.position.offset}: {problem}")
        print_warning("nothing is printed: some positions are not exact")
    raise typer.Exit(DONE if exact else ATTENTION)


@app.command()
@bounded
def checkpoint(
    config: Config,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The checkpointLocation of the query, which is stopped.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Where to write the one that continues on the target.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the positions.")] = False,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint of Spark Structured Streaming that continues on the target. OLD does not change.

    Folders of this host need no Spark; others (s3a://, hdfs://) are reached as by a job, with spark-defaults.conf.

    Exit status: 0 written, 3 some positions are not exact and nothing was written, 1 could not, 2 wrong usage.
    """
    folder = CheckpointFolder(_files(old, new), old)
    read = folder.read()
    site = _Site.of(config, flow, secrets_dir, timeout)
    found = site.translate(read.wanted)
    listed = [Listed("", one) for one in sorted(read.needed)]
    exact = not any(found[one.position].problem for one in listed)
    _show(site, listed, found, as_json=as_json, batch=read.last.number, committed=read.last.is_committed)
    if not exact:
        print_warning("nothing is written: some positions are not exact")
        raise typer.Exit(ATTENTION)
    if dry_run:
        raise typer.Exit(DONE)
    count = folder.write(read, found, new)
    print_notice(f"{count} files are in {new}; the query continues there behind batch {read.last.number}")
    if not read.last.is_committed:
        print_notice(f"batch {read.last.number} was planned and not committed: it is run again, with the same records")
    if read.other_sources:
        print_notice(f"as they were: {named('source', read.other_sources)}, which Kafka is not the source of")
    topics = named("topic", [site.flow.target_topic(topic) for topic in read.topics])
    print_notice(f"start it with this checkpoint, the servers of cluster {site.flow.target}, and {topics}")


@app.command()
@bounded
def iceberg(
    config: Config,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="The table's *.metadata.json, or the summary of its snapshot; - is stdin."),
    ],
    control_topic: Annotated[
        str | None, typer.Option("--control-topic", help="The sink's control topic, if its name cannot be seen.")
    ] = None,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Print what a table's snapshots have to say so that an Iceberg sink of Kafka Connect continues on the target.

    Exit status: 0 done, 3 the control topic is not copied, or not far enough, 1 could not read, 2 wrong usage.
    """
    sinks = parse_snapshot(_text(file), file, control_topic)
    site = _Site.of(config, flow, secrets_dir, timeout)
    found = site.translate(one for sink in sinks for one in sink.positions)
    _show(site, [Listed(sink.group, one) for sink in sinks for one in sink.positions], found, as_json=as_json)
    status = DONE
    for sink in sinks:
        try:
            name, value = property_of(sink, site.target_topic(sink.topic) or "", found)
        except FlowError:
            print_warning(
                f"group {sink.group}: give the sink another iceberg.control.topic on the target, once it has committed"
                f" all it has read: it would leave out what is in front of these offsets of {sink.topic}"
            )
            status = ATTENTION
        else:
            print_notice(
                f"group {sink.group}: set iceberg.control.topic = {site.target_topic(sink.topic)}, and commit an empty"
                f" snapshot with the property {name} = {value}"
            )
        # A coordinator goes on in the copied control topic by a group of its own.
        groups = [sink.group] if site.target_topic(sink.topic) is None else [sink.group, f"{sink.group}-coord"]
        for group in (one for one in groups if not site.brings(one)):
            print_warning(
                f"group {group}: flow {site.flow.name} does not bring its positions to cluster {site.flow.target} under"
                " that name, so the sink would not continue: see groups.include, exclude (by default also connect-.*)"
                " and names"
            )
            status = ATTENTION
    raise typer.Exit(status)


@app.command()
@bounded
def streams(
    config: Config,
    application: Annotated[
        str, typer.Argument(metavar="APPLICATION_ID", help="The application.id, which is its group.")
    ],
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Show where a Kafka Streams application is, and what to do with each of its internal topics. Changes nothing.

    Exit status: 0 it can start on the target, 3 not yet, 1 could not read, 2 wrong usage.
    """
    site = _Site.of(config, flow, secrets_dir, timeout)
    listed = _committed(site, [application])
    with site.source() as admin:
        ends = ends_of(admin, application)
    found = site.translate([*(one.position for one in listed), *(one for each in ends.values() for one in each)])
    topics = advice(application, ends, found, site.target_topic)
    rows = [{"topic": one.name, "kind": one.kind, "ready": one.is_ready, "advice": one.advice} for one in topics]
    _show(site, listed, found, as_json=as_json, internal_topics=rows)
    if not as_json:
        table = Table(title=Text(f"internal topics of {printable(application)}"), title_justify="left")
        for name in ("topic", "what to do"):
            table.add_column(name)
        for one in topics:
            table.add_row(Text(one.name), Text(one.advice))
        Terminal().print(table)
    print_notice("delete the folder state.dir of each instance: it has offsets of the source's changelogs")
    exact = all(one.is_ready for one in topics) and not any(found[one.position].problem for one in listed)
    if (renamed := site.flow.groups.target_group(application)) != application:
        print_warning(
            f"application {printable(application)}: its positions are those of group {printable(renamed)} on cluster"
            f" {site.flow.target}, where it would not begin with them: leave the group out of groups.names"
        )
        exact = False
    raise typer.Exit(DONE if exact else ATTENTION)


def _committed(site: _Site, groups: list[str]) -> list[Listed]:
    """Return what groups have committed on the source. Raises FlowError if one has nothing, KafkaError."""
    with site.source() as admin:
        offsets = {group: admin.group_offsets(group) for group in groups}
    listed = list[Listed]()
    for group, committed in offsets.items():
        if not committed:
            raise FlowError(f"group {printable(group)} has committed nothing on cluster {site.flow.source}")
        left_out = sorted({tp.topic for tp in committed if site.target_topic(tp.topic) is None})
        if left_out:
            print_warning(
                f"group {printable(group)}: left out, as the flow does not copy them: {named('topic', left_out)}"
            )
        listed += [
            Listed(group, SourcePosition(*tp, one.offset))
            for tp, one in sorted(committed.items())
            if tp.topic not in left_out
        ]
    return listed


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FlowError(f"{file} is no text") from None
    except OSError as error:
        raise FlowError(f"{file}: {error.strerror}") from None


def _files(*paths: str) -> Files:
    """Return what reaches these paths: without a scheme they are of this host."""
    if not any("://" in path for path in paths):
        return LocalFiles()
    require("a checkpoint on another file system", SPARK)
    from mirror.spark.driver.hadoop_files import HadoopFiles  # it needs Spark

    return HadoopFiles()


def _moved(site: _Site, listed: Iterable[Listed], found: Found) -> list[Moved]:
    places = ((site.flow.groups.target_group(one.group) if one.group else "", found[one.position]) for one in listed)
    return [
        Moved(group, *there.target, there.offset)
        for group, there in places
        if there.target is not None and there.offset is not None
    ]


def _show(site: _Site, listed: Iterable[Listed], found: Found, *, as_json: bool, **facts: object) -> None:
    """Print the positions as a table, or with these ``facts`` as JSON."""
    if as_json:
        rows = [
            {
                **({"group": group} if group else {}),
                **one._asdict(),
                "target_topic": None if (target := found[one].target) is None else target.topic,
                "target_offset": found[one].offset,
                "place": found[one].place.value,
                "passed": found[one].passed,
                "reason": found[one].reason,
            }
            for group, one in listed
        ]
        print(json.dumps({"flow": site.flow.name, **facts, "positions": rows}, indent=2))
        return
    table = Table(title=Text(f"flow {site.flow.name}"), title_justify="left")
    table.add_column("source")
    table.add_column("offset", justify="right")
    table.add_column("target")
    table.add_column("offset", justify="right")
    table.add_column("remarks")
    for group, one in listed:
        there = found[one]
        remark = there.problem or MEANINGS[there.place]
        cells = (f"{group} {one.tp}".strip(), f"{one.offset}", there.target or "", there.offset, remark)
        table.add_row(*(Text("" if cell is None else f"{cell}") for cell in cells))
    Terminal().print(table)
