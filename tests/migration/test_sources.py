"""Resources of Kubernetes, lists of them, YAML as ``kubectl`` reads it, and templates that are none of these."""

from __future__ import annotations

import base64
import textwrap

import pytest

from mirror.config.models import FlowConfig
from mirror.errors import ConfigError
from mirror.migration.configuration import Imported
from mirror.migration.findings import Kind
from mirror.migration.importing import import_source, lint
from mirror.migration.sources import read

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: copy, namespace: streams}
spec:
  connectCluster: far
  clusters:
  - {alias: near, bootstrapServers: "near:9092"}
  - {alias: far, bootstrapServers: "far:9092"}
  mirrors:
  - sourceCluster: near
    targetCluster: far
    sourceConnector:
      config:
        CONFIG
    topicsPattern: "invoices"
"""
PROPERTIES = """\
clusters = near, far
near.bootstrap.servers = near:9092
far.bootstrap.servers = far:9092
near->far.enabled = true
near->far.topics = orders
"""


def imported(text: str) -> Imported:
    return import_source(read(text.encode(), "file"), name="file")


def flow(text: str) -> FlowConfig:
    found = imported(text)
    assert found.file, found.findings
    (only,) = found.file.check().flows.values()
    return only


def resource(config: str, *, before: str = "") -> str:
    head, _, rest = RESOURCE.partition("metadata:")
    return head + before + "metadata:" + rest.replace("CONFIG", config)


@pytest.mark.parametrize("word", ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
def test_a_word_without_quotes_is_the_boolean_that_kubectl_reads(word: str) -> None:
    checkpoints = f"    checkpointConnector: {{config: {{sync.group.offsets.enabled: {word}}}}}\n"
    assert flow(resource("{}") + checkpoints).groups.sync


@pytest.mark.parametrize("word", ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
def test_a_word_without_quotes_is_the_opposite_boolean(word: str) -> None:
    found = flow(resource(f"{{sync.topic.acls.enabled: {word}, sync.topic.configs.enabled: {word}}}"))
    assert (found.acls.sync, found.configs) == (False, "create")


@pytest.mark.parametrize("value", ['"no"', "'off'", "!!str no", "nO", "oN"])
def test_with_quotes_or_other_cases_it_is_a_text_which_kafka_refuses(value: str) -> None:
    findings = imported(resource(f"sync.topic.acls.enabled: {value}")).findings
    assert any(one.kind is Kind.REFUSED and one.meaning == "neither true nor false" for one in findings)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0x1e", 30),
        ("036", 30),
        ("0o36", 30),
        ("0b11110", 30),
        ("1_000", 1000),
        ("+30", 30),
        ("30", 30),
        ("030x", None),
    ],
)
def test_numbers_are_those_of_kubectl(text: str, number: int | None) -> None:
    key = "refresh.topics.interval.seconds"
    found = imported(resource(f"{key}: {text}"))
    if number is None:
        assert found.file is None
    else:
        assert flow(resource(f"{key}: {text}")).refresh_ms == number * 1000


COMMON = "x-common: &common {replication.factor: -1, refresh.topics.interval.seconds: 60}\n"
OTHER = "x-other: &other {replication.factor: 5, replication.policy.class: IdentityReplicationPolicy}\n"


@pytest.mark.parametrize(
    ("config", "factor", "refresh_ms", "naming"),
    [
        ("<<: *common", -1, 60_000, "prefix"),
        ("{<<: *common, refresh.topics.interval.seconds: 30}", -1, 30_000, "prefix"),
        ("{<<: [*common, *other]}", -1, 60_000, "identity"),
        ("{<<: [*other, *common]}", 5, 60_000, "identity"),
        ("{<<: {replication.factor: 4}}", 4, 600_000, "prefix"),
        ('{"<<": *common}', 2, 600_000, "prefix"),
    ],
)
def test_merge_keys_are_merged(config: str, factor: int, refresh_ms: int, naming: str) -> None:
    found = flow(resource(config, before=COMMON + OTHER))
    assert (found.replication_factor, found.refresh_ms, found.naming) == (factor, refresh_ms, naming)


def test_a_merge_below_a_key_replaces_it_as_for_kubectl_and_is_named() -> None:
    text = resource("{replication.factor: 3, <<: *common}", before=COMMON)
    assert flow(text).replication_factor == -1
    twice = resource("{replication.factor: 3, replication.factor: 4}")
    assert flow(twice).replication_factor == 4
    for one in (text, twice):
        (named,) = (finding for finding in imported(one).findings if "the last one counts" in finding.meaning)
        assert (named.value, named.key) == ("3", "spec.mirrors[0].sourceConnector.config.replication.factor")


def test_what_cannot_be_merged_is_one_error() -> None:
    with pytest.raises(ConfigError, match="line 14: << merges a mapping, or a list of mappings"):
        read(resource("<<: text").encode(), "file")


def test_a_boolean_in_place_of_a_name_is_named_and_the_name_stays() -> None:
    text = resource("{}").replace("alias: near", "alias: no").replace("sourceCluster: near", 'sourceCluster: "no"')
    found = imported(text)
    assert found.file
    assert found.file.flows == ("no-far",)
    (refused,) = (one for one in found.findings if one.kind is Kind.REFUSED)
    assert (refused.key, refused.value, refused.action) == ("spec.clusters[0].alias", "no", 'write "no"')


def as_item(text: str) -> str:
    return "- " + textwrap.indent(text, "  ").removeprefix("  ")


def config_map(text: str, name: str = "mm2.properties", kind: str = "ConfigMap") -> str:
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\ndata:\n  {name}: |\n" + textwrap.indent(text, "    ")


def test_each_item_of_a_list_counts() -> None:
    own = PROPERTIES.replace("far", "b")
    items = [
        resource("{}").replace("alias: near", "alias: third").replace("sourceCluster: near", "sourceCluster: third"),
        config_map(own),
        config_map("log4j.rootLogger = INFO\n", "log4j.properties"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
    ]
    text = "apiVersion: v1\nkind: List\nitems:\n" + "".join(map(as_item, items))
    found = imported(text)
    assert found.file
    assert found.file.flows == ("third-far", "near-b")
    line = text.split("\n").index("      near->b.topics = orders") + 1
    assert f"topics = [  # line {line}: near->b.topics" in found.file.text
    named = {finding.key: finding.meaning for finding in found.findings}
    assert named["items[2]"] == "of Kubernetes, not of the connectors"
    assert named["items[3].Pod"] == "it has no connectors of MirrorMaker 2"


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_a_file_in_a_resource_is_read_as_it_would_be_alone(kind: str) -> None:
    content = base64.b64encode(PROPERTIES.encode()).decode() + "\n" if kind == "Secret" else PROPERTIES
    assert flow(config_map(content, kind=kind)).topics == ("orders",)
    connector = (
        '{"name": "x", "config": {"connector.class": "x.MirrorSourceConnector", "source.cluster.alias": "near",\n'
    )
    connector += (
        '"source.cluster.bootstrap.servers": "a:1", "target.cluster.bootstrap.servers": "b:1", "topics": "t"}}\n'
    )
    if kind == "ConfigMap":
        assert flow(config_map(connector, "connector.json")).topics == ("t",)


def test_a_resource_below_its_anchors_is_found() -> None:
    assert flow("# common\n" + COMMON + resource("<<: *common")).replication_factor == -1


@pytest.mark.parametrize(
    "text",
    [
        resource("{}").replace('"near:9092"', "{{ .Values.near }}:9092"),
        "{{- if .Values.mirror }}\n" + resource("{}") + "{{- end }}\n",
        '{"connector.class": {{ class | tojson }}}',
    ],
    ids=["value", "condition", "json"],
)
def test_a_template_that_cannot_be_parsed_is_called_one(text: str) -> None:
    with pytest.raises(ConfigError, match=r"a template with \{\{.*\}\}; render it"):
        read(text.encode(), "file")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("${BROKERS}", "${BROKERS}"),
        ("${BROKERS:-near:9092}", "${BROKERS}"),
        ("PLAINTEXT://$BROKER_HOST:9092", "$BROKER_HOST"),
        ("{{ kafka_brokers }}", "{{ kafka_brokers }}"),
        ("<%= @brokers %>", "<%= @brokers %>"),
        ("#{Brokers}#", "#{Brokers}#"),
    ],
)
def test_placeholders_of_templates_are_named_as_such(value: str, shown: str) -> None:
    for text in (PROPERTIES.replace("near:9092", value), resource("{}").replace("near:9092", value)):
        named = [one for one in lint(read(text.encode(), "file")) if "of a template is not filled in" in one.meaning]
        assert [one.kind for one in named] == [Kind.OTHER_EFFECT]
        assert named[0].meaning.startswith(f"{shown} of a template")


@pytest.mark.parametrize(
    "line", ["{{- if .Values.tls }}", "${SOURCE}->far.enabled = true", "  {% for c in clusters %}"]
)
def test_a_template_without_a_value_is_named_too(line: str) -> None:
    findings = lint(read(f"{PROPERTIES}{line}\n".encode(), "file"))
    assert [one.line for one in findings if "of a template is not filled in" in one.meaning] == [6]


def test_a_document_that_is_no_resource_is_named() -> None:
    found = imported("values: {a: 1}\n---\n" + resource("{}"))
    assert ("document", "it has no connectors of MirrorMaker 2") in {(one.key, one.meaning) for one in found.findings}


@pytest.mark.parametrize("paused", ["pause: yes", "state: stopped"])
def test_a_connector_that_does_not_run_is_named(paused: str) -> None:
    text = (
        "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nspec:\n  class: x.MirrorSourceConnector\n"
        f"  {paused}\n  autoRestart: {{enabled: true}}\n  config: {{source.cluster.alias: a, target.cluster.alias: b,"
        " source.cluster.bootstrap.servers: 'a:1', target.cluster.bootstrap.servers: 'b:1', topics: t}\n"
    )
    named = {one.key: one.meaning for one in imported(text).findings}
    assert named[f"spec.{paused.partition(':')[0]}"] == "the connector is paused or stopped, and the flow is not"
    assert "spec.autoRestart" in named


@pytest.mark.parametrize(
    "value", ["$ConnectionString", "p$word", "a$", "x|ORDERS$|y", "$1", "${file:/a:b}", "pa$$W0RD"]
)
def test_other_dollars_are_no_placeholders(value: str) -> None:
    text = f"{PROPERTIES}near.client.id = {value}\n"
    assert not any("of a template" in one.meaning for one in lint(read(text.encode(), "file")))


@pytest.mark.parametrize("key", ["near->far.topics", "near.ssl.key.password", "tasks.max"])
def test_a_comment_behind_a_value_is_named_and_no_secret_is_shown(key: str) -> None:
    found = [
        one for one in lint(read(f"{PROPERTIES}{key} = 4711 # hunter2\n".encode(), "file")) if "comment" in one.meaning
    ]
    assert [one.kind for one in found] == [Kind.OTHER_EFFECT]
    assert ("hunter2" in found[0].meaning) == (key != "near.ssl.key.password")
