"""Both sides of a flow compared and brought in step on real brokers, by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, ConfigChange, ConfigOperation, ConfigResource, NewTopic
from mirror.observation import Side
from tests.polling import eventually
from tests.topic_creation import await_topics, create_topics

if TYPE_CHECKING:
    from mirror.sandbox.cluster import Cluster


class Flow:
    """A topic of its own on the source, and a flow that copies it."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, name: str, folder: Path) -> None:
        self.topic, self.name = topic, name
        self.source = Admin({"bootstrap.servers": source.bootstrap_servers})
        self.target = Admin({"bootstrap.servers": target.bootstrap_servers})
        self.file = folder / "mirror.toml"
        self.file.write_text(
            f'[clusters.a]\n"bootstrap.servers" = "{source.bootstrap_servers}"\n'
            f'[clusters.b]\n"bootstrap.servers" = "{target.bootstrap_servers}"\n'
            f'[flows.{name}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\n'
        )

    def close(self) -> None:
        self.source.close()
        self.target.close()

    def on_source(self, **configs: str | None) -> None:
        self._alter(self.source, self.topic, configs)

    def on_target(self, **configs: str | None) -> None:
        self._alter(self.target, f"a.{self.topic}", configs)

    def _alter(self, admin: Admin, topic: str, configs: Mapping[str, str | None]) -> None:
        admin.incremental_alter_configs(
            {
                ConfigResource.topic(topic): [
                    ConfigChange(key.replace("_", "."), value, ConfigOperation.SET if value else ConfigOperation.DELETE)
                    for key, value in configs.items()
                ]
            }
        )
        expected = {key.replace("_", "."): value for key, value in configs.items()}

        def is_shown() -> bool:
            shown = Side("", admin).own_configs([topic])[topic]
            return all(shown.get(key) == value for key, value in expected.items())

        eventually(is_shown, what=f"{expected} of {topic}")

    def await_target(self, expected: dict[str, str]) -> None:
        """Wait until the broker shows exactly these configurations: the controller answers before it applies them."""
        copy = f"a.{self.topic}"
        await_topics(self.target, [copy])
        eventually(lambda: Side("", self.target).own_configs([copy])[copy] == expected, what=f"{expected} of {copy}")

    def run(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and what is not in step: key -> reason, None if it was, or is to be, changed."""
        status, flow = self.ask(command, *arguments)
        return status, {one["key"]: one["reason"] for one in flow["configs"]["differences"]}

    def ask(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and the flow's JSON."""
        result = CliRunner().invoke(app, [command, "--config", str(self.file), "--json", *arguments])
        assert result.exit_code in {0, 3}, result.output
        (flow,) = json.loads(result.stdout)["flows"]
        return result.exit_code, flow


@pytest.fixture
def flow(
    source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Flow]:
    made = Flow(source_cluster, target_cluster, unique("orders"), unique("f"), tmp_path)
    yield made
    made.close()


def test_both_sides_are_brought_in_step(flow: Flow) -> None:
    """What a topic is created with, a change, a reset, an override of the target, and excluded keys."""
    configs = {"retention.ms": "1000000", "min.insync.replicas": "1", "message.timestamp.type": "LogAppendTime"}
    create_topics(flow.source, [NewTopic(flow.topic, 2, configs=configs)])
    assert flow.run("drift")[0] == 3
    assert flow.run("apply") == (0, {})
    flow.await_target({"retention.ms": "1000000"})
    assert flow.run("drift") == (0, {})

    flow.on_source(retention_ms="2000000", cleanup_policy="compact,delete")
    flow.on_target(segment_ms="600000")
    expected = {"retention.ms": None, "cleanup.policy": "over-limit", "segment.ms": "only-on-target"}
    assert flow.run("drift") == (3, expected)
    assert flow.run("apply", "--max-deletions", "1")[0] == 0, "a compaction deletes records"
    both = {"retention.ms": "2000000", "cleanup.policy": "compact,delete"}
    flow.await_target({**both, "segment.ms": "600000"})

    flow.on_source(retention_ms=None, cleanup_policy=None)
    assert flow.run("apply")[0] == 0
    flow.await_target({"segment.ms": "600000"})

    flow.on_target(retention_ms="7")
    flow.on_source(retention_ms="8")
    assert flow.run("apply") == (3, {"retention.ms": "changed-on-target", "segment.ms": "only-on-target"})
    assert flow.run("apply", "--adopt")[0] == 0
    flow.await_target({"retention.ms": "8"})


def test_what_the_target_refuses_is_reported_and_the_rest_applied(flow: Flow) -> None:
    create_topics(flow.source, [NewTopic(flow.topic, 1)])
    assert flow.run("apply")[0] == 0
    with flow.file.open("a") as file:
        file.write(f'[flows.{flow.name}.configs-overrides]\n"no.such.key" = 1\n"retention.ms" = 5000\n')
    assert flow.run("apply") == (3, {"no.such.key": "refused", "retention.ms": None})
    flow.await_target({"retention.ms": "5000"})


def test_what_differed_before_is_adopted_by_hand_only(flow: Flow) -> None:
    create_topics(flow.source, [NewTopic(flow.topic, 1, configs={"retention.ms": "6000"})])
    create_topics(flow.target, [NewTopic(f"a.{flow.topic}", 1, configs={"retention.ms": "5000"})])
    assert flow.run("apply") == (3, {"retention.ms": "not-owned"})
    adopted = flow.run("apply", "--flow", flow.name, "--adopt", f"a.{flow.topic}")
    assert adopted == (3, {"retention.ms": "differed-before"})
    flow.await_target({"retention.ms": "5000"})
    assert flow.run("apply", "--adopt")[0] == 0
    flow.await_target({"retention.ms": "6000"})
