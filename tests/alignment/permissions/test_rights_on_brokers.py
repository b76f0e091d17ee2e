"""Users that log in, on brokers that obey ACLs: the flow's own, and those whose rights are brought to the target."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import AclBinding, AclFilter, AclOperation, AclPermission, Admin, NewTopic, PatternType, ResourceType
from mirror.observation import Side
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.authorizer import group, topic
from tests.alignment.permissions.guarded import create, delete, login
from tests.polling import eventually
from tests.topic_creation import await_topics, create_topics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(236)]

READ, WRITE = AclOperation.READ, AclOperation.WRITE
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP = "readers"
MOST_STEPS = 12
_GRANT = re.compile(
    r"of cluster (\w+) (?:is|are) missing: .*kafka-acls --add --allow-principal User:\.\.\. (.*)$", re.MULTILINE
)
_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_CLUSTER = ResourceType.CLUSTER, "kafka-cluster"


class Flow:
    """A flow whose user is "mirror", and two topics that it copies."""

    def __init__(self, source: Cluster, target: Cluster, name: str, folder: Path) -> None:
        self.clusters = {"a": source, "b": target}
        self.admins = {key: Admin({"bootstrap.servers": one.bootstrap_servers}) for key, one in self.clusters.items()}
        self.name, self.file = name, folder / "mirror.toml"
        tables = ""
        for key, cluster in self.clusters.items():
            lines = (f'"{option}" = "{value}"' for option, value in login(cluster, "mirror").items())
            tables += "\n".join([f"[clusters.{key}]", *lines, ""])
        self.file.write_text(
            f'{tables}[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["{name}.*"]\n'
            'on-topic-deleted = "delete"\n[flows.f.acls]\n'
        )
        create_topics(
            self.admins["a"], [NewTopic(name, 1, configs={"retention.ms": "1000000"}), NewTopic(f"{name}-u", 1)]
        )

    def close(self) -> None:
        for admin in self.admins.values():
            delete(admin, AclFilter())
            admin.close()

    def run(self, command: str) -> tuple[int, str]:
        """The exit status, and all that is printed."""
        result = CliRunner().invoke(app, [command, "--config", str(self.file)])
        assert "Traceback" not in result.output
        return result.exit_code, result.output

    def grant(self, cluster: str, words: str) -> list[AclBinding]:
        """Do what a line of the program says, with its own command."""
        operations, resources, pattern = [], [], PatternType.LITERAL
        given = iter(shlex.split(words))
        for word in given:
            if word == "--operation":
                operations.append(AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", next(given)).upper()])
            elif word == "--cluster":
                resources.append(_CLUSTER)
            elif word == "--resource-pattern-type":
                assert next(given) == "prefixed"
                pattern = PatternType.PREFIXED
            else:
                resources.append((_KINDS[word], next(given)))
        allow = AclPermission.ALLOW
        bindings = [
            AclBinding(kind, name, "User:mirror", operation, allow, pattern)
            for kind, name in resources
            for operation in operations
        ]
        create(self.admins[cluster], bindings)
        return bindings


@pytest.fixture
def flow(one: Cluster, other: Cluster, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Flow]:
    made = Flow(one, other, unique("rights"), tmp_path)
    yield made
    made.close()


def first_that_lacks(flow: Flow) -> tuple[str, set[tuple[str, str]]]:
    """What is printed by the first of these commands that names missing permissions; else by the last one."""
    for command in ("plan", "apply", "drift"):
        status, text = flow.run(command)
        if lines := set(_GRANT.findall(text)):
            return text, lines
        assert status != 1, text
    status, text = flow.run("drift")
    assert status == 0, text
    return text, set()


def test_each_missing_permission_is_named_with_the_command_that_grants_it(flow: Flow) -> None:
    """A user who begins with none does what the lines say, until the two sides are in step; then loses some again."""
    create(flow.admins["a"], [topic(flow.name)])
    status, text = flow.run("plan")
    assert status == 1
    assert "grant Describe on it: a topic without that permission is not listed" in text
    create(flow.admins["a"], [topic(flow.name, AclOperation.DESCRIBE, principal="User:mirror", prefixed=True)])
    granted: list[tuple[str, AclBinding]] = []
    text, lines = first_that_lacks(flow)
    for _ in range(MOST_STEPS):
        if not lines:
            break
        new = {(cluster, acl) for cluster, words in lines for acl in flow.grant(cluster, words)} - set(granted)
        assert new, f"what was granted is still missing: {text}"
        granted += new
        text, lines = first_that_lacks(flow)
    assert not lines
    copy = f"a.{flow.name}"
    assert Side("", flow.admins["b"]).own_configs([copy])[copy] == {"retention.ms": "1000000"}
    assert topic(copy) in flow.admins["b"].describe_acls(AclFilter(ResourceType.TOPIC, copy))

    on_source, on_target = (ResourceType.TOPIC, flow.name), (ResourceType.TOPIC, copy)
    for key, (kind, name), operation, parts in (
        ("a", on_source, READ, ("Read on topic", "of cluster a")),
        ("a", _CLUSTER, AclOperation.DESCRIBE, ("Describe on the ACLs of cluster a", "ACLs are not brought in step")),
        ("b", _CLUSTER, AclOperation.ALTER, ("Alter on the ACLs of cluster b", "ACLs are not brought in step")),
        ("b", on_target, AclOperation.ALTER_CONFIGS, ("AlterConfigs on topic", "of cluster b")),
        ("b", on_target, AclOperation.DELETE, ("Delete on topic", "of cluster b")),
    ):
        own = AclBinding(kind, name, "User:mirror", operation)
        assert (key, own) in granted
        delete(flow.admins[key], AclFilter(kind, name, "User:mirror", operation))
        for command in ("plan", "apply"):
            _, text = flow.run(command)
            assert [part for part in parts if part not in text] == [], text
        create(flow.admins[key], [own])


def reads(cluster: Cluster, user: str, topic: str) -> bool:
    """Whether ``user`` may read the first record of ``topic``."""
    consumer = Consumer({**login(cluster, user), "group.id": GROUP, "enable.auto.commit": False, "log_level": 0})
    try:
        if consumer.list_topics(topic, timeout=60).topics[topic].error is not None:
            return False
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bool] = []

        def answered() -> bool:
            if (message := consumer.poll(1.0)) is not None:
                error = message.error()
                if error is None or error.code() == REFUSED:
                    found.append(error is None)
            return bool(found)

        eventually(answered, within_s=60, what=f"{topic} for {user}")
        return found[0]
    finally:
        consumer.close()


def writes(cluster: Cluster, user: str, topic: str) -> bool:
    """Whether ``user`` may write to ``topic``."""
    producer, codes = Producer({**login(cluster, user), "log_level": 0}), list[int]()
    producer.produce(
        topic, b"of a user", partition=0, on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    assert producer.flush(60) == 0
    (code,) = codes
    assert code in {0, REFUSED}
    return code == 0


def test_users_may_read_the_copies_of_what_they_may_read_and_nothing_else(flow: Flow) -> None:
    """Literal, prefixed and denied; rights to write are not copied; no right comes to the target's own topics."""
    source, target, name = flow.clusters["a"], flow.clusters["b"], flow.name
    everything = AclOperation.ALL
    for admin in flow.admins.values():
        mirror = [AclBinding(kind, "*", "User:mirror", everything) for kind in _KINDS.values()]
        on_cluster = AclBinding(_CLUSTER[0], _CLUSTER[1], "User:mirror", everything)
        create(admin, [*mirror, on_cluster, group(GROUP, principal="User:*")])
    given = [
        topic(name),
        topic(name, WRITE),
        topic(name, principal="User:carol", prefixed=True),
        topic(name, principal="User:carol", deny=True),
    ]
    create(flow.admins["a"], given)
    create_topics(flow.admins["b"], [NewTopic(name, 1)])  # the target's own, of the source topic's name
    assert flow.run("apply")[0] == 0
    copies = [f"a.{name}", f"a.{name}-u"]
    await_topics(flow.admins["b"], copies)
    for cluster, topics in ((source, [name, f"{name}-u"]), (target, [name, *copies])):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for each in topics:
            producer.produce(each, b"a record", partition=0)
        assert producer.flush(60) == 0

    eventually(lambda: reads(target, "alice", copies[0]), within_s=60, what="the right", every_s=0.2)
    may = {("alice", name), ("carol", f"{name}-u")}
    for user in ("alice", "bob", "carol"):
        for each in (name, f"{name}-u"):
            assert reads(source, user, each) is ((user, each) in may)
            assert reads(target, user, f"a.{each}") is ((user, each) in may)
        assert not reads(target, user, name)
    assert writes(source, "alice", name)
    assert not writes(target, "alice", copies[0])

    delete(flow.admins["a"], AclFilter(ResourceType.TOPIC, name, "User:alice", READ))
    assert flow.run("apply")[0] == 0
    eventually(lambda: not reads(target, "alice", copies[0]), what="the end of the right", every_s=0.2)
