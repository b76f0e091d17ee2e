"""The permissions on the registries of producer ids that a flow of local records lacks, on real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import AclBinding, AclFilter, AclOperation, AclPermission, Admin, ResourceType
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import add_topic, create, delete, login, one, other

__all__ = ["one", "other"]
pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(240)]

READ, WRITE = AclOperation.READ, AclOperation.WRITE
ANYTHING = [
    AclBinding(kind, "*", "User:mirror", AclOperation.ALL)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]
CLUSTER = AclBinding(ResourceType.CLUSTER, "kafka-cluster", "User:mirror", AclOperation.ALL)


class LocalFlow:
    """A flow of local records whose user may do all that is not denied."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, folder: Path) -> None:
        self.admins = {
            name: Admin({"bootstrap.servers": cluster.bootstrap_servers})
            for name, cluster in (("a", source), ("b", target))
        }
        add_topic(self.admins["a"], topic)
        tables = ""
        for name, cluster in (("a", source), ("b", target)):
            create(self.admins[name], [*ANYTHING, CLUSTER])
            lines = (f'"{key}" = "{value}"' for key, value in login(cluster, "mirror").items())
            tables += "\n".join([f"[clusters.{name}]", *lines, ""])
        self._file = folder / "mirror.toml"
        self._file.write_text(
            f'{tables}[flows.{topic}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\nnaming = "identity"\n'
            'origin = "local"\norigin-from = "earliest"\n'
        )

    def run(self, command: str) -> tuple[int, str]:
        """The exit status, and all that is printed."""
        result = CliRunner().invoke(app, [command, "--config", str(self._file)])
        assert "Traceback" not in result.output
        return result.exit_code, " ".join(result.output.split())

    def deny(self, cluster: str, operation: AclOperation) -> None:
        create(self.admins[cluster], [self._denial(operation)])

    def allow(self, cluster: str, operation: AclOperation) -> None:
        delete(self.admins[cluster], AclFilter(ResourceType.TOPIC, REGISTRY_TOPIC, "User:mirror", operation))

    @staticmethod
    def _denial(operation: AclOperation) -> AclBinding:
        return AclBinding(ResourceType.TOPIC, REGISTRY_TOPIC, "User:mirror", operation, AclPermission.DENY)

    def close(self) -> None:
        for admin in self.admins.values():
            delete(admin, AclFilter())
            admin.close()


@pytest.fixture
def local(one: Cluster, other: Cluster, unique: Callable[[str], str], tmp_path: Path) -> Iterator[LocalFlow]:
    made = LocalFlow(one, other, unique("local"), tmp_path)
    yield made
    made.close()


def test_what_is_missing_on_a_registry_is_named_before_anything_is_copied(local: LocalFlow) -> None:
    """On each side, with the consequence that it has there; with what the line grants, the flow goes on."""
    assert local.run("apply")[0] == 0
    assert REGISTRY_TOPIC in local.admins["a"].list_topics()
    assert local.run("plan")[0] == 0
    for cluster, why in (
        ("a", "nothing says which records were produced there"),
        ("b", "no batch may be sent before its producer is registered"),
    ):
        for operation in (READ, WRITE):
            local.deny(cluster, operation)
            status, text = local.run("plan")
            name = operation.name.capitalize()
            assert status == 1
            assert f"the permission {name} on topic {REGISTRY_TOPIC} of cluster {cluster} is missing: {why}" in text
            assert f"--operation {name} --topic {REGISTRY_TOPIC}" in text
            local.allow(cluster, operation)
    assert local.run("plan")[0] == 0
