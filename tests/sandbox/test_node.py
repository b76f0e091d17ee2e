"""The settings and command lines of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import SandboxError
from mirror.sandbox.node import (
    CONTROLLER_ID,
    Node,
    excerpt,
    format_command,
    read_node,
    render,
    run_command,
    settings,
    zookeeper_broker_settings,
    zookeeper_settings,
)
from mirror.sandbox.process import Process


def node_settings(brokers: int, **properties: str) -> dict[str, str]:
    alone = brokers == 1
    ports = {"PLAINTEXT": 20001, "SECURE": 20002} | ({"CONTROLLER": 20003} if alone else {})
    node = Node(1, broker=True, controller=alone, folder=Path("/d"), ports=ports)
    controller = node if alone else Node(100, False, True, Path("/c"), {"CONTROLLER": 20009})
    return settings(
        node, brokers=brokers, controller=controller, listeners={"SECURE": "SASL_PLAINTEXT"}, properties=properties
    )


def test_single_broker_is_its_own_controller() -> None:
    values = node_settings(1)
    assert values["process.roles"] == "broker,controller"
    assert values["controller.quorum.voters"] == "1@127.0.0.1:20003"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,SECURE://127.0.0.1:20002"
    assert "SECURE:SASL_PLAINTEXT" in values["listener.security.protocol.map"]


def test_a_further_listener_is_where_other_hosts_reach_it() -> None:
    ports = {"PLAINTEXT": 20001, "HOSTS": 20002, "CONTROLLER": 20003}
    node = Node(1, broker=True, controller=True, folder=Path("/d"), ports=ports, address="198.18.0.1")
    values = settings(node, brokers=1, controller=node, listeners={"HOSTS": "PLAINTEXT"}, properties={})
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,HOSTS://198.18.0.1:20002"
    assert values["listeners"] == f"{values['advertised.listeners']},CONTROLLER://127.0.0.1:20003"
    assert values["controller.quorum.voters"] == "1@127.0.0.1:20003"


def test_several_brokers_have_a_separate_controller() -> None:
    values = node_settings(3)
    assert values["process.roles"] == "broker"
    assert values["controller.quorum.voters"] == "100@127.0.0.1:20009"


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_have_up_to_three_replicas(brokers: int, replicas: str, in_sync: str) -> None:
    values = node_settings(brokers)
    assert values["offsets.topic.replication.factor"] == values["transaction.state.log.replication.factor"] == replicas
    assert values["transaction.state.log.min.isr"] == in_sync


def test_feature_levels_are_passed_to_the_format_command() -> None:
    node = Node(1, broker=True, controller=True, folder=Path("/d"), ports={})
    plain = format_command(Path("java"), ["-Xmx1g"], "jars", node, "M1", {})
    levels = format_command(
        Path("java"), ["-Xmx1g"], "jars", node, "M1", {"transaction.version": 1, "group.version": 0}
    )
    assert levels == [*plain, "--feature", "transaction.version=1", "--feature", "group.version=0"]


def test_given_properties_override_the_defaults() -> None:
    assert node_settings(1, **{"auto.create.topics.enable": "true"})["auto.create.topics.enable"] == "true"


def test_a_zookeeper_server_takes_the_place_of_the_controller() -> None:
    server = Node(100, broker=False, controller=True, folder=Path("/z"), ports={"CONTROLLER": 20009})
    broker = Node(1, broker=True, controller=False, folder=Path("/d"), ports={"PLAINTEXT": 20001, "SECURE": 20002})
    given = {"brokers": 1, "zookeeper": server, "listeners": {"SECURE": "SSL"}, "properties": {"a": "b"}}
    values = zookeeper_broker_settings(broker, **given)  # type: ignore[arg-type]
    assert (values["broker.id"], values["zookeeper.connect"], values["a"]) == ("1", "127.0.0.1:20009", "b")
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:20001,SECURE://127.0.0.1:20002"
    assert values["offsets.topic.replication.factor"] == "1"
    assert not [key for key in values if "controller" in key or key.startswith("process.")]
    assert zookeeper_settings(server)["clientPort"] == "20009"
    mains = [run_command(Path("java"), ["-Xmx1g"], "jars", node, zookeeper=True)[-2] for node in (server, broker)]
    assert mains == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", "kafka.Kafka"]


def test_properties_are_escaped_as_java_reads_them() -> None:
    assert render({"a": "x=1", "b": "C:\\d\nnext", "c": "gr\u00fcn \U0001f600"}) == (
        "a=x=1\nb=C:\\\\d\\nnext\nc=gr\\u00fcn \\ud83d\\ude00\n"
    )


def test_excerpt_is_the_first_error_and_the_end_without_stack_traces() -> None:
    log = "INFO a\n[..] ERROR the cause (x)\n\tat y.Z\nINFO b\nINFO c\nINFO d\n"
    assert excerpt(log, lines=2) == "[..] ERROR the cause (x)\nINFO c\nINFO d"
    assert excerpt("INFO a\n", lines=2) == "INFO a"
    assert excerpt("") == ""


def test_a_node_is_read_back_from_its_settings(tmp_path: Path) -> None:
    controller = Node(CONTROLLER_ID, broker=False, controller=True, folder=tmp_path / "c", ports={"CONTROLLER": 9093})
    broker = Node(2, broker=True, controller=False, folder=tmp_path / "b", ports={"PLAINTEXT": 9092, "SASL": 9094})
    processes = {2: Process(4711, "then")}
    for node in (controller, broker):
        node.folder.mkdir()
        values = settings(node, brokers=3, controller=controller, listeners={"SASL": "SASL_PLAINTEXT"}, properties={})
        node.settings.write_text(render(values), encoding="ascii")
        found = read_node(node.folder, processes)
        assert (found.node_id, found.broker, found.controller) == (node.node_id, node.broker, node.controller)
        assert (found.ports, found.process) == (node.ports, processes.get(node.node_id))
    broker.settings.write_text("nonsense\n")
    with pytest.raises(SandboxError, match=r"server\.properties cannot be read"):
        read_node(broker.folder, processes)
