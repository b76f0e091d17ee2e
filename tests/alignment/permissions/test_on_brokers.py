"""ACLs brought in step by the command line, on real brokers that obey them; confluent-kafka looks at them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import AclFilter, AclOperation, Admin
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.authorizer import group, topic
from tests.alignment.permissions.guarded import add_topic, create, delete, shows
from tests.alignment.permissions.kept_groups import keep_positions

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(240)]

WRITE = AclOperation.WRITE


class Flow:
    """A flow between two clusters, and topics of its own."""

    def __init__(self, source: Cluster, target: Cluster, prefix: str, folder: Path) -> None:
        self.prefix, self.file = prefix, folder / "mirror.toml"
        self.clusters = source, target
        self.source = Admin({"bootstrap.servers": source.bootstrap_servers})
        self.target = Admin({"bootstrap.servers": target.bootstrap_servers})
        self.write("[flows.f.acls]")

    def close(self) -> None:
        for admin in (self.source, self.target):
            delete(admin, AclFilter())
            admin.close()

    def write(self, table: str) -> None:
        tables = [
            f'[clusters.{name}]\n"bootstrap.servers" = "{cluster.bootstrap_servers}"\n'
            for name, cluster in zip("ab", self.clusters, strict=True)
        ]
        self.file.write_text(
            f'{"".join(tables)}[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["{self.prefix}.*"]\n'
            f'configs = "create"\n{table}\n'
        )

    def run(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and what is said about ACLs."""
        result = CliRunner().invoke(app, [command, "--config", str(self.file), "--json", *arguments])
        assert result.exit_code in {0, 3}, result.output
        (flow,) = json.loads(result.stdout)["flows"]
        return result.exit_code, {**flow["acls"], "warnings": result.stderr}


@pytest.fixture
def flow(one: Cluster, other: Cluster, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Flow]:
    made = Flow(one, other, unique("x"), tmp_path)
    yield made
    made.close()


def test_groups_and_names_that_stay(flow: Flow, other: Cluster) -> None:
    add_topic(flow.source, f"{flow.prefix}-t")
    add_topic(flow.target, f"{flow.prefix}-own")
    create(
        flow.source,
        [topic(flow.prefix, prefixed=True), topic(f"{flow.prefix}-t", WRITE), group(f"{flow.prefix}-g"), group("*")],
    )
    flow.write('naming = "identity"\n[flows.f.groups]\n[flows.f.acls]\ngroups = true\nwrite = true')
    add_topic(flow.target, group_topic_of("f"))
    keep_positions(other.bootstrap_servers, "f", f"{flow.prefix}-t", f"{flow.prefix}-g")
    assert flow.run("apply")[0] == 0
    read = ("TOPIC", "LITERAL", f"{flow.prefix}-t", "User:alice", "READ", "ALLOW")
    write = ("TOPIC", "LITERAL", f"{flow.prefix}-t", "User:alice", "WRITE", "ALLOW")
    shows(other, {read, write, ("GROUP", "LITERAL", f"{flow.prefix}-g", "User:alice", "READ", "ALLOW")})
    flow.write('naming = "identity"\n[flows.f.acls]')
    assert flow.run("apply")[0] == 0
    shows(other, {read})


@pytest.mark.cluster
def test_a_cluster_without_an_authorizer_is_said_once(
    one: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    made = Flow(one, target_cluster, unique("x"), tmp_path)
    add_topic(made.source, f"{made.prefix}-t")
    status, found = made.run("apply")
    assert (status, found["off"]) == (0, "cluster b has no authorizer, so no ACLs are brought in step")
    made.source.close()
    made.target.close()
