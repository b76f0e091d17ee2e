"""What MirrorMaker 2 and a flow make of the same ACLs: both at work between two real clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import AclBinding, AclFilter, AclOperation, Admin, ResourceType
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.process import Process
from tests.alignment.permissions.authorizer import group, topic
from tests.alignment.permissions.guarded import acls, add_topic, create, delete
from tests.benchmarks.mirrormaker import mirrormaker, properties
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(236)]

_WITHIN_S = 150.0
_OFTEN = {"a->b.sync.topic.acls.interval.seconds": "1"}
_PACKAGE = "org.apache.kafka.connect.mirror"
ALLOWED, DENIED = "ALLOW", "DENY"


def entries(cluster: Cluster, name: str) -> set[tuple[str, str, str]]:
    """User, operation and permission of the ACLs of a topic of exactly this name."""
    found = (acl for acl in acls(cluster, name) if acl[:3] == ("TOPIC", "LITERAL", name))
    return {(user.removeprefix("User:"), operation, permission) for _, _, _, user, operation, permission in found}


def become(cluster: Cluster, name: str, expected: set[tuple[str, str, str]]) -> None:
    """Wait until a topic has exactly these ACLs."""
    eventually(lambda: entries(cluster, name) == expected, within_s=_WITHIN_S, what=f"{expected}", every_s=0.2)


class Pair:
    """Two clusters, and ways from one to the other: MirrorMaker 2, and a flow from the same cluster as ``o``."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path) -> None:
        self.clusters, self._folder = (source, target), folder
        self.source = Admin({"bootstrap.servers": source.bootstrap_servers})
        self.target = Admin({"bootstrap.servers": target.bootstrap_servers})

    def close(self) -> None:
        for admin in (self.source, self.target):
            delete(admin, AclFilter())
            admin.close()

    def mirrormaker(self, settings: Mapping[str, str]) -> AbstractContextManager[Process]:
        source, target = (one.bootstrap_servers for one in self.clusters)
        given = properties(source, target, ".*", exactly_once=False, tasks=1)
        return mirrormaker(self._folder, {**given, **_OFTEN, **settings})

    def apply(self, naming: str = "prefix", *arguments: str) -> dict[str, int]:
        """What is not in step after the flow has brought ACLs to the target, by reason."""
        source, target = self.clusters
        file = self._folder / "mirror.toml"
        file.write_text(
            f'[clusters.o]\n"bootstrap.servers" = "{source.bootstrap_servers}"\n'
            f'[clusters.b]\n"bootstrap.servers" = "{target.bootstrap_servers}"\n'
            f'[flows.f]\nsource = "o"\ntarget = "b"\ntopics = [".*"]\nnaming = "{naming}"\nconfigs = "create"\n'
            "[flows.f.acls]\n"
        )
        result = CliRunner().invoke(app, ["apply", "--config", str(file), "--json", *arguments])
        assert result.exit_code in {0, 3}, result.output
        (flow,) = json.loads(result.stdout)["flows"]
        not_in_step: dict[str, int] = flow["acls"]["not_in_step"]
        return not_in_step


@pytest.fixture
def pair(one: Cluster, other: Cluster, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(one, other, tmp_path)
    yield made
    made.close()


def test_each_kind_of_acl(pair: Pair, other: Cluster, unique: Callable[[str], str]) -> None:
    name = unique("orders")
    add_topic(pair.source, name)
    create(pair.source, _given(name))
    create(pair.target, [topic(f"{alias}.{name}", AclOperation.WRITE, principal="User:own") for alias in "ao"])
    with pair.mirrormaker({}):
        _compare(name, pair, other)


def test_an_acl_of_all_topics_under_the_source_s_names(
    pair: Pair, other: Cluster, unique: Callable[[str], str]
) -> None:
    name = unique("orders")
    add_topic(pair.source, name)
    create(pair.source, [topic(name), topic("*", principal="User:every")])
    with pair.mirrormaker({"replication.policy.class": f"{_PACKAGE}.IdentityReplicationPolicy"}):
        every_topic = ("every", "READ", ALLOWED)
        become(other, name, {("alice", "READ", ALLOWED)})
        become(other, "*", {every_topic})  # now this user may read every topic of the target
    delete(pair.target, AclFilter())
    assert pair.apply("identity") == {}
    assert entries(other, name) == set(), "MirrorMaker 2 has created the topic"
    assert pair.apply("identity", "--flow", "f", "--adopt", name) == {}
    become(other, name, {("alice", "READ", ALLOWED), every_topic})
    assert entries(other, "*") == set()


def _given(name: str) -> list[AclBinding]:
    return [
        topic(name),
        topic(name, AclOperation.WRITE),
        topic(name, AclOperation.DELETE, principal="User:dave"),
        topic(name, AclOperation.ALL, principal="User:bob"),
        topic(name, deny=True, principal="User:bob", host="10.1.2.3"),
        topic(name, AclOperation.WRITE, deny=True, principal="User:bob"),
        topic(name[:-2], principal="User:prefixed", prefixed=True),
        topic("*", principal="User:every"),
        group(name),
    ]


def _compare(name: str, pair: Pair, other: Cluster) -> None:
    own = ("own", "WRITE", ALLOWED)
    both = {
        ("alice", "READ", ALLOWED),
        ("bob", "READ", ALLOWED),
        ("bob", "READ", DENIED),
        ("bob", "WRITE", DENIED),
        own,
    }
    theirs = both | {("dave", "DELETE", ALLOWED)}
    become(other, f"a.{name}", theirs)
    assert pair.apply() == {}
    become(other, f"o.{name}", both | {("bob", "DESCRIBE_CONFIGS", ALLOWED)})
    # The prefix and all topics: of nothing, and of a topic with that name; of the copies that they are about.
    assert (entries(other, f"a.{name[:-2]}"), entries(other, "a.*")) == (set(), {("every", "READ", ALLOWED)})
    prefixed = {acl for acl in acls(other, "o.") if acl[1] == "PREFIXED"}
    assert prefixed == {
        ("TOPIC", "PREFIXED", f"o.{name[:-2]}", "User:prefixed", "READ", ALLOWED),
        ("TOPIC", "PREFIXED", "o.", "User:every", "READ", ALLOWED),
    }
    assert not [acl for acl in acls(other) if acl[0] == "GROUP"]

    # Deleted on the source, and on the target.
    delete(pair.source, AclFilter(ResourceType.TOPIC, name, "User:alice", AclOperation.READ))
    gone = [AclFilter(ResourceType.TOPIC, f"{alias}.{name}", "User:bob", AclOperation.WRITE) for alias in "ao"]
    pair.target.delete_acls(gone)  # MirrorMaker 2 creates one of them again at once
    eventually(lambda: not pair.target.describe_acls(gone[1]), what="its end", every_s=0.1)
    create(pair.source, [topic(name, principal="User:late")])
    theirs |= {("late", "READ", ALLOWED)}
    become(other, f"a.{name}", theirs)
    assert pair.apply() == {"removed-on-target": 1}
    bobs = {("bob", "READ", ALLOWED), ("bob", "READ", DENIED), ("bob", "DESCRIBE_CONFIGS", ALLOWED)}
    become(other, f"o.{name}", bobs | {own, ("late", "READ", ALLOWED)})
