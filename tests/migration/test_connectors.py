"""Connectors of Kafka Connect and Strimzi become configurations, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from mirror.config.models import FlowConfig
from mirror.errors import ConfigError
from mirror.migration.configuration import Imported
from mirror.migration.findings import Kind
from mirror.migration.importing import import_source, lint
from mirror.migration.sources import read

FOLDER: Final = Path(__file__).parent / "connectors"
FILES: Final = sorted(FOLDER.iterdir())
CONFIG: Final = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "a",
    "target.cluster.alias": "b",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b:9092",
    "topics": "orders",
}


def imported(data: bytes) -> Imported:
    return import_source(read(data, "connectors"), name="connectors")


def flow(data: bytes) -> FlowConfig:
    file = imported(data).file
    assert file
    (found,) = file.check().flows.values()
    return found


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_every_file_becomes_a_flow(path: Path) -> None:
    assert flow(path.read_bytes()).topics


@pytest.mark.parametrize(
    "document",
    [CONFIG, {"name": "x", "config": CONFIG}, [{"name": "x", "config": CONFIG}], {"x": {"info": {"config": CONFIG}}}],
    ids=["configuration", "connector", "list", "answer of the REST interface"],
)
@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_of_kafka_connect_is_read_in_each_form(document: object, indent: int | str | None) -> None:
    assert flow(json.dumps(document, indent=indent).encode()).topics == ("orders",)


def test_lines_are_those_of_the_keys() -> None:
    found = lint(read(json.dumps(CONFIG | {"no.such.key": 1}, indent=1).encode(), "x"))
    assert [finding.line for finding in found if finding.kind is Kind.IGNORED] == [len(CONFIG) + 2]


def test_what_is_no_setting_of_a_connector_is_named() -> None:
    other = {"name": "jdbc", "config": {"connector.class": "io.example.JdbcSource", "topics": "x"}}
    mine = {"name": "mm2", "config": CONFIG | {"groups": ["a"], "tasks.max": None}, "tasks": [], "type": "source"}
    named = {one.key: one.meaning for one in imported(json.dumps([mine, other]).encode()).findings}
    assert {"[0].type", "[0].config.groups", "[1]"} <= named.keys()
    answer = {"mm2": {"info": mine, "status": {"connector": {"state": "RUNNING"}}}, "jdbc": {"info": other}}
    named = {one.key: one.meaning for one in imported(json.dumps(answer).encode()).findings}
    assert {"mm2.status", "mm2.info.type", "jdbc"} <= named.keys()


@pytest.mark.parametrize("level", ["", "a->b."])
def test_what_some_releases_exclude_is_excluded(level: str) -> None:
    pairs = {"topics.blacklist": "secret.*, own", "groups.blacklist": "test.*", "config.properties.blacklist": "x.*"}
    lines = "clusters = a, b\na.bootstrap.servers = a:1\nb.bootstrap.servers = b:1\na->b.enabled = true\n"
    dedicated = lines + "".join(f"{level}{key} = {value}\n" for key, value in pairs.items())
    source = {key: value for key, value in pairs.items() if key != "groups.blacklist"}
    checkpoint = CONFIG | {"connector.class": "x.MirrorCheckpointConnector", "groups.blacklist": "test.*"}
    for data in (dedicated.encode(), json.dumps([CONFIG | source, checkpoint]).encode()):
        found = flow(data)
        assert not found.selects("secret-1")
        assert not found.selects("own")
        assert found.selects("orders")
        assert not found.selects("__x")
        assert found.groups.exclude == ("console-consumer-.*", "connect-.*", "__.*", "test.*")
        assert found.configs_exclude[-1] == "x.*"
        assert "min.insync.replicas" in found.configs_exclude
        to_do = [one.key for one in imported(data).findings if one.kind is Kind.TO_DO]
        assert all(any(one.endswith(key) for one in to_do) for key in pairs)
    wrong = dedicated.replace("secret.*", "(?!x)y")
    assert imported(wrong.encode()).file is None


def test_what_no_release_includes_is_included_unless_its_key_is_given() -> None:
    former = {key: value for key, value in CONFIG.items() if key != "topics"} | {"topics.whitelist": "clicks"}
    assert flow(json.dumps(former).encode()).topics == ("clicks",)
    assert flow(json.dumps(former | {"topics": "orders"}).encode()).topics == ("orders",)
    for data in (former, former | {"topics": "orders"}):
        found = imported(json.dumps(data).encode())
        assert [one.key for one in found.findings if one.kind is Kind.TO_DO] == ["topics.whitelist"]


@pytest.mark.parametrize(
    ("policy", "naming"),
    [
        ("com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy", "identity"),
        ("ch.mawileo.kafka.mm2.PrefixlessReplicationPolicy", "identity"),
        ("io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy", "identity"),
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "prefix"),
        ("org.example.CustomMM2ReplicationPolicy", None),
    ],
)
def test_names_of_topics_are_those_of_the_policy(policy: str, naming: str | None) -> None:
    config = CONFIG | {
        "replication.policy.class": policy,
        "replication.policy.separator": "" if naming == "identity" else ".",
    }
    found = imported(json.dumps(config).encode())
    assert (found.file.check().flows["a-b"].naming if found.file else None) == naming


@pytest.mark.parametrize(
    ("protocol", "kind"), [("PLAINTEXT", Kind.NOT_NEEDED), ("SSL", Kind.CHANGED), ("EXTERNAL", Kind.CHANGED)]
)
def test_the_scheme_of_an_address_is_passed_over_as_in_java(protocol: str, kind: Kind) -> None:
    key = "source.cluster.bootstrap.servers"
    config = CONFIG | {key: f"{protocol}://a-1:9092, {protocol.lower()}://[::1]:9093,a-3:1"}
    found = imported(json.dumps(config).encode())
    assert found.file
    assert '"bootstrap.servers" = "a-1:9092,[::1]:9093,a-3:1"' in found.file.text
    assert [one.kind for one in found.findings if "pass over the scheme" in one.meaning] == [kind]


def test_what_javas_login_modules_ignore_is_counted() -> None:
    line = 'PlainLoginModule required username="u" password="4711" user_u="4711" serviceName="kafka";'
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
    found = imported(json.dumps(CONFIG | {f"source.cluster.{key}": value for key, value in login.items()}).encode())
    assert found.file
    assert "4711" not in found.file.text + repr(found)
    assert [one.meaning for one in found.findings if one.key == "source.cluster.sasl.jaas.config"] == [
        "its login module ignores 2 of its options, here as in Java"
    ]


@pytest.mark.parametrize("password", ["hmac", "${file:/x:hmac}"])
def test_a_delegation_token_is_a_login_line_as_any_other(password: str) -> None:
    line = f'ScramLoginModule required username="id" password="{password}" tokenauth="true";'
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line}
    found = imported(json.dumps(CONFIG | {f"source.cluster.{key}": value for key, value in login.items()}).encode())
    assert found.file is not None


def test_the_producer_of_the_records_is_overridden_by_the_connector() -> None:
    found = flow((FOLDER / "connect.json").read_bytes())
    assert found.producer == {"batch.size": 500_000}
    assert found.consumer == {"fetch.max.bytes": 60_000_000}
    assert found.groups.sync
    assert found.groups.include == ("billing",)


def test_secrets_of_json_go_to_the_folder_of_secrets() -> None:
    found = imported((FOLDER / "connect.json").read_bytes())
    file = found.file
    assert file
    assert list(file.secrets) == ["clusters__paris__sasl_jaas_config"]
    assert "json-secret" not in file.text + repr(found)


def test_a_resource_of_strimzi_has_its_cluster_settings_and_secrets() -> None:
    found = imported((FOLDER / "strimzi-v1beta2.yaml").read_bytes())
    file = found.file
    assert file
    assert '"sasl.mechanism" = "SCRAM-SHA-512"' in file.text
    assert '"security.protocol" = "SASL_SSL"' in file.text
    assert 'username="my-user" password="${strimzisecrets:kafka/my-user:password}"' in file.text
    config = file.check().flows["cluster-a-cluster-b"]
    assert config.producer == {"batch.size": 300_000}
    assert config.topics == ("orders|payments",)
    assert {finding.kind for finding in found.findings} & {Kind.IGNORED, Kind.LEFT_OUT} == set()


def test_checkpoints_need_their_connector() -> None:
    assert not flow(json.dumps(CONFIG).encode()).mirrormaker.checkpoints
    assert flow((FOLDER / "strimzi-v1.yaml").read_bytes()).mirrormaker.checkpoints


def test_a_paused_connector_is_named() -> None:
    text = (FOLDER / "strimzi-v1.yaml").read_text()
    found = imported(text.replace("config: {repl", "state: paused\n        config: {repl").encode())
    assert any("paused" in finding.meaning for finding in found.findings)


def _options(data: bytes) -> list[str]:
    found = imported(data).findings
    return [one.action.partition(" over with ")[2] for one in found if "take the flow" in one.action]


def test_unusual_names_of_strimzi_are_options_of_the_takeover() -> None:
    text = (FOLDER / "strimzi-v1.yaml").read_text()
    assert _options(text.encode()) == ["--worker-group mm2"]
    names = "groupId: mm2\n    offsetStorageTopic: mm2-positions\n    configStorageTopic: c\n    statusStorageTopic: s"
    assert _options(text.replace("groupId: mm2", names).encode()) == [
        "--worker-group mm2",
        "--offsets-topic mm2-positions",
        "--status-topic s",
    ]
    names = names.replace("statusStorageTopic: s", "statusStorageTopic: mm2-status")
    usual = names.replace("mm2-positions", "mirrormaker2-cluster-offsets").replace("mm2", "mirrormaker2-cluster", 1)
    usual = usual.replace("mm2-status", "mirrormaker2-cluster-status")
    assert _options(text.replace("groupId: mm2", usual).encode()) == []
    of_group = names.replace("mm2-positions", "mm2-offsets")  # the group follows from the topic
    assert _options(text.replace("groupId: mm2", of_group).encode()) == ["--offsets-topic mm2-offsets"]
    before = (FOLDER / "strimzi-v1beta2.yaml").read_text()
    assert _options(before.encode()) == []
    own = before.replace(
        "config.storage.repl", "group.id: g\n        offset.storage.topic: o\n        config.storage.repl"
    )
    assert _options(own.encode()) == ["--worker-group g", "--offsets-topic o"]


def test_a_topic_of_positions_of_the_connectors_own_is_an_option_of_the_takeover() -> None:
    assert _options(json.dumps(CONFIG | {"offsets.storage.topic": "own"}).encode()) == ["--offsets-topic own"]


DEEP: Final = 100_000
BOMB: Final = "kind: KafkaMirrorMaker2\na0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"connector.class": "x"', "not JSON: line 1"),
        ("{}", "no connector"),
        ("kind: KafkaMirrorMaker2\nspec:\n  mirrors: [", "not YAML: line"),
        ("kind: &a [*a]\n", "contains it"),
        (BOMB, "more values"),
        ("[" * DEEP, "nested too deeply"),
        ("kind: " + "[" * DEEP, "nested too deeply"),
        ("kind: " + "{a: " * DEEP, "nested too deeply"),
        ("kind: !!python/object/apply:os.system [ls]\n", "no connector"),
        ("kind: Pod\n", "no connector"),
        ("kind: \u00ff".encode("iso-8859-1").decode("iso-8859-1"), "no connector"),
        ('{"a": 1' + "0" * 100_000 + "}", "no connector"),
    ],
    ids=range(12),
)
def test_nonsense_is_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text.encode(), "connectors")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("connectors: ")
    assert words in line


def test_unknown_encodings_are_named() -> None:
    with pytest.raises(ConfigError, match="not UTF-8 text, from byte 6 on"):
        read(b"kind: \xff", "connectors")
