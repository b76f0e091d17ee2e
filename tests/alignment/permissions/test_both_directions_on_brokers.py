"""ACLs of two clusters whose flows go both ways, on real brokers: both sides get the same, and nothing echoes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import AclBinding, AclFilter, AclOperation, Admin, ResourceType
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.authorizer import group, topic
from tests.alignment.permissions.guarded import Acl, acls, add_topic, create, delete
from tests.alignment.permissions.kept_groups import keep_positions
from tests.topic_creation import await_topics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(240)]

READ, WRITE = AclOperation.READ, AclOperation.WRITE
IDENTITY = 'naming = "identity"\norigin = "local"\norigin-from = "earliest"'


class BothFlows:
    """A flow in each direction between two clusters, by the command line."""

    def __init__(self, one: Cluster, other: Cluster, prefix: str, folder: Path) -> None:
        self.clusters, self.prefix, self._file = (one, other), prefix, folder / "mirror.toml"
        self.one, self.other = (Admin({"bootstrap.servers": each.bootstrap_servers}) for each in self.clusters)

    def close(self) -> None:
        for admin in (self.one, self.other):
            delete(admin, AclFilter())
            admin.close()

    def write(self, naming: str, pattern: str, acls_table: str) -> None:
        """Write the file; each flow has the same keys."""
        tables = [
            f'[clusters.{name}]\n"bootstrap.servers" = "{cluster.bootstrap_servers}"\n'
            for name, cluster in zip("ab", self.clusters, strict=True)
        ]
        for source, target in ("ab", "ba"):
            name = f"flows.{self.prefix}-{source}{target}"
            tables.append(
                f'[{name}]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{pattern}"]\n'
                f'configs = "create"\n{naming}\n[{name}.groups]\n[{name}.acls]\n{acls_table}\n'
            )
        self._file.write_text("".join(tables))

    def apply(self) -> int:
        """How many ACLs both flows have created and deleted."""
        flows = self._run("apply")
        return sum(flow["acls"]["created"] + flow["acls"]["deleted"] for flow in flows)

    def adopt(self, way: str, topic: str) -> None:
        """Make a topic that a user has created on the target of a flow the flow's, as its first progress does."""
        name = f"{self.prefix}-{way}"
        result = CliRunner().invoke(app, ["apply", "--config", str(self._file), "--flow", name, "--adopt", topic])
        assert result.exit_code in {0, 3}, result.output

    def keep_positions(self, topic: str, group_name: str) -> None:
        """Both flows have committed positions of a group."""
        for way, admin, cluster in zip(("ba", "ab"), (self.one, self.other), self.clusters, strict=True):
            flow = f"{self.prefix}-{way}"
            add_topic(admin, group_topic_of(flow))
            keep_positions(cluster.bootstrap_servers, flow, topic, group_name)

    def settle(self) -> None:
        """Apply until nothing is changed, which takes one more round than a change has to go."""
        changed = [self.apply() for _ in range(3)]
        assert changed[-1] == 0, changed
        assert all(flow["acls"]["in_step"] for flow in self._run("drift"))

    def _run(self, command: str) -> list[dict[str, dict[str, int]]]:
        result = CliRunner().invoke(app, [command, "--config", str(self._file), "--json"])
        assert result.exit_code in {0, 3}, result.output
        found: list[dict[str, dict[str, int]]] = json.loads(result.stdout)["flows"]
        return found

    def found(self) -> tuple[set[Acl], set[Acl]]:
        """The ACLs of both clusters about resources of this test."""
        one, other = ({acl for acl in acls(cluster) if self.prefix in acl[2]} for cluster in self.clusters)
        return one, other


@pytest.fixture
def both(one: Cluster, other: Cluster, unique: Callable[[str], str], tmp_path: Path) -> Iterator[BothFlows]:
    made = BothFlows(one, other, unique("way"), tmp_path)
    yield made
    made.close()


def _row(acl: AclBinding) -> Acl:
    return (
        acl.resource_type.name,
        acl.pattern.name,
        acl.name,
        acl.principal,
        acl.operation.name,
        acl.permission.name,
    )


def test_under_the_same_names_both_sides_get_the_same_and_deletions_reach_both(both: BothFlows) -> None:
    """Principals, rights to read and to write, denials and groups of either side."""
    name, group_name = f"{both.prefix}-t", f"{both.prefix}-g"
    add_topic(both.one, name)
    both.write(IDENTITY, f"{both.prefix}.*", "groups = true\nwrite = true")
    of_one = [topic(name), topic(name, WRITE, principal="User:bob"), group(group_name)]
    of_other = [topic(name, principal="User:carol"), topic(name, deny=True, principal="User:bob", host="10.1.2.3")]
    create(both.one, of_one)
    create(both.other, of_other)
    both.keep_positions(name, group_name)
    both.settle()
    assert {_row(acl) for acl in of_other}.isdisjoint(both.found()[0]), "nothing shows that the topic is the flow's"
    both.adopt("ba", name)
    both.settle()
    everything = {_row(acl) for acl in (*of_one, *of_other)}
    assert both.found() == (everything, everything)

    gone = [AclFilter(ResourceType.TOPIC, name, "User:bob", WRITE)]
    delete(both.one, *gone)
    delete(both.other, AclFilter(ResourceType.TOPIC, name, "User:carol", READ))
    both.settle()
    left = everything - {_row(of_one[1]), _row(of_other[0])}
    assert both.found() == (left, left)


def test_with_prefixes_no_acl_comes_back_to_where_it_was_created(both: BothFlows) -> None:
    name = f"{both.prefix}-t"
    for admin in (both.one, both.other):
        add_topic(admin, name)
    both.write('naming = "prefix"', f".*{both.prefix}.*", "")
    create(both.one, [topic(name), topic(f"{both.prefix}", principal="User:carol", prefixed=True)])
    create(both.other, [topic(name, principal="User:bob")])
    both.settle()
    await_topics(both.other, [f"a.{name}"])
    await_topics(both.one, [f"b.{name}"])
    alice, bob = _row(topic(name)), _row(topic(name, principal="User:bob"))
    carol = _row(topic(both.prefix, principal="User:carol", prefixed=True))
    on_one, on_other = both.found()
    assert on_one == {alice, carol, _row(topic(f"b.{name}", principal="User:bob"))}
    assert on_other == {bob, _row(topic(f"a.{name}")), _row(topic(f"a.{name}", principal="User:carol"))}
