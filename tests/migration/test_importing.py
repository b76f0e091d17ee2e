"""What ``mirror import`` makes of properties files."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pytest

from mirror.config.key_names import is_secret
from mirror.config.models import MirrorConfig
from mirror.migration.configuration import ConfigurationFile, Imported
from mirror.migration.findings import Kind
from mirror.migration.importing import import_source
from mirror.migration.parsing.reading import read_properties
from mirror.migration.sources import read
from mirror.migration.tables.document import render
from tests.migration.generated_files import properties

REAL: Final = sorted((Path(__file__).parent / "files").glob("*.properties"))
NO_FLOW: Final = {"repeated", "separator", "swallowed-line", "transforms", "trailing-blank"}
"""None of their pairs is enabled, or can be carried over."""
PLAIN: Final = "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"


def imported(text: str) -> Imported:
    data = text.encode("iso-8859-1")
    return import_source(read(data, "mm2.properties"), name="mm2.properties")


def only(text: str) -> MirrorConfig:
    """The one configuration that a file becomes, as our own loader reads it."""
    return written(text).check()


def written(text: str) -> ConfigurationFile:
    file = imported(text).file
    assert file
    return file


def kinds(found: Imported, key: str) -> set[Kind]:
    return {finding.kind for finding in found.findings if finding.key == key}


@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
def test_every_line_of_a_written_file_is_accounted_for(path: Path) -> None:
    found = imported(path.read_text("iso-8859-1"))
    assert (found.file is None) == (path.stem in NO_FLOW)
    check(found, path.read_text("iso-8859-1"))


def test_every_line_of_generated_files_is_accounted_for() -> None:
    rng = random.Random(5)
    files = flows = 0
    for _ in range(80):
        text = properties(rng)
        found = imported(text)
        check(found, text)
        files += found.file is not None
        flows += len(found.file.flows) if found.file else 0
    assert files > 30
    assert flows > files


def check(found: Imported, text: str) -> None:
    """Every file loads, each line of the source is written or named, and no secret is shown."""
    source = read_properties(text.encode("iso-8859-1"), "mm2.properties")
    written = found.file.text if found.file else ""
    if found.file:
        assert tuple(found.file.check().flows) == found.file.flows
    named = {int(number) for number in re.findall(r"line (\d+): ", written)}
    named |= {finding.line for finding in found.findings}
    assert named >= {entry.line for entry in source.lines}
    secrets = {entry.value for entry in source.lines if is_secret((entry.key,)) and "${" not in entry.value}
    shown = written + "\n".join(map(str, found.findings)) + repr(found)
    assert [value for value in secrets if len(value) > 1 and value in shown] == []


def test_each_line_names_its_origin() -> None:
    file = written(PLAIN + "a->b.topics = orders, clicks\n")
    lines = [line for line in file.text.splitlines() if "=" in line]
    assert all(re.search(r"  # .*(line \d+|default of|a->b)", line) for line in lines), file.text
    assert "topics = [  # line 5: a->b.topics" in lines


def test_the_defaults_of_mirrormaker_are_written() -> None:
    flow = only(PLAIN).flows["a-b"]
    assert flow.topics == (".*",)
    assert flow.replication_factor == 2
    assert flow.refresh_ms == 600_000
    assert flow.naming == "prefix"
    assert flow.groups.sync is False
    assert flow.groups.interval_ms == 60_000
    assert flow.mirrormaker.checkpoints
    assert flow.mirrormaker.heartbeats


@pytest.mark.parametrize(
    ("lines", "interval_ms"),
    [
        ("emit.checkpoints.interval.seconds = 10", 10_000),
        ("emit.checkpoints.interval.seconds = 10\nsync.group.offsets.enabled = true", 10_000),
        ("sync.group.offsets.interval.seconds = 5", 60_000),
        ("sync.group.offsets.interval.seconds = 5\nsync.group.offsets.enabled = true", 5_000),
    ],
)
def test_positions_of_groups_are_written_as_often_as_before(lines: str, interval_ms: int) -> None:
    assert only(PLAIN + lines + "\n").flows["a-b"].groups.interval_ms == interval_ms


def test_what_becomes_of_acls_is_said_unless_they_are_switched_off() -> None:
    assert kinds(imported(PLAIN), "sync.topic.acls.enabled") == {Kind.CHANGED}
    key = "a->b.sync.topic.acls.enabled"
    assert Kind.CHANGED not in kinds(imported(f"{PLAIN}{key} = false\n"), key)


@pytest.mark.parametrize(
    ("topic", "copied"),
    [
        ("orders", True),
        ("my.internal", True),
        ("x.b.orders", False),
        ("b.orders", False),
        ("ab.orders", True),
        ("mm2-status.b.internal", False),
        ("c.checkpoints.internal", False),
        ("mirror-progress.f.internal", False),
        ("__consumer_offsets", False),
        (".hidden", False),
        ("orders.replica", False),
    ],
)
def test_a_flow_copies_the_topics_that_mirrormaker_copies(topic: str, copied: bool) -> None:
    assert only(PLAIN).flows["a-b"].selects(topic) is copied


def test_heartbeats_are_those_of_the_opposite_direction() -> None:
    assert not only(PLAIN + "b->a.emit.heartbeats.enabled = false\n").flows["a-b"].mirrormaker.heartbeats
    assert only(PLAIN + "a->b.emit.heartbeats.enabled = false\n").flows["a-b"].mirrormaker.heartbeats
    assert not only(PLAIN + "a->b.heartbeats.replication.enabled = false\n").flows["a-b"].mirrormaker.heartbeats


def test_the_producer_of_the_records_is_that_of_the_target() -> None:
    flow = only(PLAIN + "b.producer.batch.size = 500000\na->b.producer.batch.size = 1\na.producer.batch.size = 2\n")
    assert flow.flows["a-b"].producer == {"batch.size": 500_000}


def test_the_consumer_of_the_source_wins_over_that_of_the_pair() -> None:
    flow = only(PLAIN + "a.consumer.fetch.max.bytes = 5000000\na->b.consumer.fetch.max.bytes = 1\n").flows["a-b"]
    assert flow.consumer == {"fetch.max.bytes": 5_000_000}


def test_isolation_that_a_flow_has_anyway_is_not_missing() -> None:
    key = "a.consumer.isolation.level"
    assert kinds(imported(f"{PLAIN}{key} = read_committed\n"), key) == {Kind.NOT_NEEDED}
    assert kinds(imported(f"{PLAIN}{key} = read_uncommitted\n"), key) == {Kind.CHANGED}


def test_flows_in_both_directions_are_written() -> None:
    config = only(PLAIN + "b->a.enabled = true\n")
    assert list(config.flows) == ["a-b", "b-a"]
    assert not config.flows["b-a"].selects("a.orders")


def test_flows_that_copy_in_a_circle_are_not_written() -> None:
    policy = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    found = imported(PLAIN + "b->a.enabled = true\n" + policy)
    assert found.file
    assert found.file.flows == ("a-b",)
    assert kinds(found, "b->a") == {Kind.LEFT_OUT}


@pytest.mark.parametrize(
    "line",
    [
        "replication.policy.separator = _",
        "replication.policy.class = com.example.OurPolicy",
        "a->b.transforms = x",
        "topic.filter.class = com.example.OurTopics",
        "topics = (?!test).*",
        "topics = ${one}",
        "topics.exclude = [a-z&&[^x]]",
        "topics =",
        "a.consumer.auto.offset.reset = none",
    ],
)
def test_a_flow_whose_records_would_differ_is_not_written(line: str) -> None:
    found = imported(f"{PLAIN}{line}\n")
    assert found.file is None
    left_out = [finding for finding in found.findings if finding.kind is Kind.LEFT_OUT]
    assert [finding.line for finding in left_out] == [5]


def test_references_are_neither_resolved_nor_lost() -> None:
    line = 'a.sasl.jaas.config = PlainLoginModule required username="u" password="${file:/x:pw}";\n'
    sasl = "a.security.protocol = SASL_SSL\na.sasl.mechanism = PLAIN\n"
    provider = "config.providers = file\n"
    found = imported(PLAIN + sasl + line + provider)
    file = found.file
    assert file
    assert "MIRROR_CLUSTERS__A__SASL_JAAS_CONFIG" in file.text
    assert file.secrets == {}
    assert kinds(found, "a.sasl.jaas.config") == {Kind.TO_DO}


def test_secrets_go_to_the_folder_of_secrets() -> None:
    line = 'b.sasl.jaas.config = ScramLoginModule required username="u" password="4711";\n'
    file = written(PLAIN + "b.security.protocol = SASL_PLAINTEXT\nb.sasl.mechanism = SCRAM-SHA-256\n" + line)
    assert list(file.secrets) == ["clusters__b__sasl_jaas_config"]
    assert "4711" not in file.text
    assert "4711" not in repr(file)


def test_clusters_whose_variables_have_one_name_are_not_both_written() -> None:
    text = PLAIN.replace("a, b", "a, b, A") + "A.bootstrap.servers = c:9092\nA->b.enabled = true\n"
    found = imported(text)
    assert found.file
    assert found.file.flows == ("a-b",)
    (left_out,) = (finding for finding in found.findings if finding.kind is Kind.LEFT_OUT)
    assert "cannot be distinguished" in left_out.meaning


def test_heartbeats_that_no_flow_carries_are_named() -> None:
    assert Kind.NO_EQUIVALENT in kinds(imported(PLAIN), "emit.heartbeats.enabled")
    both = imported(PLAIN + "b->a.enabled = true\n")
    assert kinds(both, "emit.heartbeats.enabled") == set()


def test_an_alias_that_no_cluster_can_have_is_named() -> None:
    text = PLAIN.replace("a.boot", "ä.boot").replace("a, b", "ä, b").replace("a->b", "ä->b")
    found = imported(text)
    assert found.file is None
    assert Kind.LEFT_OUT in kinds(found, "ä->b")


def test_a_comment_cannot_leave_its_line() -> None:
    file = written(PLAIN + "a->b.topics = orders\\n[flows.evil]\n")
    assert tuple(file.check().flows) == ("a-b",)
    assert render(["x"], []) == "# x\n"


def test_configurations_and_acls_are_kept_in_step_as_before() -> None:
    flow = only(PLAIN).flows["a-b"]
    assert (flow.configs, flow.acls.sync, flow.sync_interval_ms) == ("sync", True, 600_000)
    changed = only(
        f"{PLAIN}sync.topic.configs.enabled = false\na->b.config.properties.exclude = segment.*,x\n"
        "sync.topic.acls.interval.seconds = 20\n"
    ).flows["a-b"]
    assert (changed.configs, changed.acls.sync, changed.sync_interval_ms) == ("create", True, 20_000)
    assert changed.configs_exclude == ("segment.*", "x")
    assert not only(f"{PLAIN}sync.topic.acls.enabled = false\n").flows["a-b"].acls.sync


def test_filter_of_ones_own_leaves_configurations_alone() -> None:
    text = f"{PLAIN}config.property.filter.class = org.example.Filter\n"
    assert only(text).flows["a-b"].configs == "create"
    assert kinds(imported(text), "config.property.filter.class") == {Kind.LEFT_OUT}


def test_own_names_of_a_dedicated_cluster_are_options_of_the_takeover() -> None:
    own = imported(f"{PLAIN}b.offset.storage.topic = positions\nb.group.id = workers\n")
    actions = [finding.action for finding in own.findings if finding.kind is Kind.TO_DO]
    assert actions == [
        "take the flow a-b over with --offsets-topic positions",
        "take the flow a-b over with --worker-group workers",
    ]
    of_connector = imported(f"{PLAIN}a->b.offsets.storage.topic = own\n")
    assert [finding.action for finding in of_connector.findings if finding.kind is Kind.TO_DO] == [
        "take the flow a-b over with --worker-group a-mm2",
        "take the flow a-b over with --offsets-topic own",
    ]
    of_workers = imported(f"{PLAIN}b.offset.storage.topic = a-mm2-offsets\n")
    assert "take the flow a-b over with --worker-group a-mm2" in {finding.action for finding in of_workers.findings}
    usual = imported(f"{PLAIN}b.offset.storage.topic = mm2-offsets.a.internal\nb.group.id = a-mm2\n")
    assert [finding for finding in usual.findings if finding.kind is Kind.TO_DO] == []
