"""Missing permissions on real brokers: the line names which one, on what; nothing is copied, nothing half-written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from mirror.client import TopicPartition
from mirror.relay.carriers import transactional_id
from mirror.relay.progress import SHARDS
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

ON_THE_SOURCE = {
    "s-read": AclOperation.READ,
    "s-describe": AclOperation.DESCRIBE,
    "s-configs": AclOperation.DESCRIBE_CONFIGS,
}
ON_THE_TARGET = {
    "t-write": AclOperation.WRITE,
    "t-describe": AclOperation.DESCRIBE,
    "t-create": AclOperation.CREATE,
    "t-alter": AclOperation.ALTER,
}
ON_THE_PROGRESS = {"g-read": AclOperation.READ, "g-describe": AclOperation.DESCRIBE}
ON_THE_ID = {"i-write": AclOperation.WRITE}


def test_a_missing_permission_is_named_and_nothing_is_written(
    site: Site, source: Side, guarded: Side, unique: Callable[[str], str]
) -> None:
    """One session, one flow for each permission. The cluster with ACLs is once the source and else the target."""
    topics = {name: unique(name) for name in (*ON_THE_SOURCE, *ON_THE_TARGET, *ON_THE_PROGRESS, *ON_THE_ID)}
    _prepare(topics, source, guarded)
    flows = {
        name: flow("g", "a", [topic]) if name in ON_THE_SOURCE else flow("a", "g", [topic])
        for name, topic in topics.items()
    }
    clusters = {"a": source.address, "g": guarded.address}
    # Whose topics are not to be seen is refused, with all that would run beside it, before anything starts.
    hidden = {"s-describe": flows.pop("s-describe")}
    site.write(clusters, hidden)
    refused = site.run()
    assert refused.status == 1, refused.err
    site.write(clusters, flows)
    run = site.run()

    assert run.status == 1, run.err
    assert "Traceback" not in run.out + run.err
    lines = [*refused.errors, *run.errors]
    told = {name: line for line in lines for name in topics if line.startswith(f"mirror: flow {name}: ")}
    assert len(told) == len(lines), run.err
    # What only shows at a partition is its result.
    told |= {name: found[0]["error"] for name, flow in site.flows().items() if (found := flow["partitions"])}
    assert told.keys() == topics.keys()
    missing = "the permission {} on the {} is missing; grant it to this client's user"
    for name, parts in {
        "s-read": (f"fetching {topics['s-read']}-0 at offset 0", missing.format("Read", "topic")),
        # A broker does not tell of topics that one may not see.
        "s-describe": (topics["s-describe"], "grant Describe on it"),
        "s-configs": (topics["s-configs"], missing.format("DescribeConfigs", "topic")),
        "t-write": (f"writing to a.{topics['t-write']}-0", missing.format("Write", "topic")),
        "t-describe": (f"a.{topics['t-describe']}", missing.format("Describe", "topic")),
        "t-create": (f"a.{topics['t-create']}", missing.format("Create", "topic")),
        "t-alter": (f"a.{topics['t-alter']}", missing.format("Alter", "topic")),
        "g-read": ("mirror.g-read.", missing.format("Read", "group")),
        "g-describe": ("mirror.g-describe.", missing.format("Describe", "group")),
        "i-write": ("mirror.i-write.", missing.format("Write", "transactional id")),
    }.items():
        assert [part for part in parts if part not in told[name]] == [], told[name]

    results = [result for flow in site.flows().values() for result in flow["partitions"]]
    assert len(results) == 2 * len(["s-read", "t-write", "g-read", "i-write"])
    assert {(each["outcome"], each["start"], each["end"], each["records"]) for each in results} == {("failed", 0, 0, 0)}
    assert f"a.{topics['t-create']}" not in guarded.topics()
    written = {name for name, topic in topics.items() for n in range(2) if guarded.end(f"a.{topic}", n)}
    assert written == set()


def _prepare(topics: dict[str, str], source: Side, guarded: Side) -> None:
    topic_kind, group_kind = ResourceType.TOPIC, ResourceType.GROUP
    for name, topic in topics.items():
        side = guarded if name in ON_THE_SOURCE else source
        side.create(topic, 2)
        for partition in range(2):
            side.fill(topic, [b"1", b"2"], partition)
    for name, operation in ON_THE_SOURCE.items():
        guarded.deny(topic_kind, topics[name], operation)
    for name in ("t-write", "t-alter"):
        guarded.create(f"a.{topics[name]}", 1 if name == "t-alter" else 2)
    for name, operation in ON_THE_TARGET.items():
        guarded.deny(topic_kind, f"a.{topics[name]}", operation)
    # Who may create topics in the cluster needs no permission on the topic.
    guarded.deny(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE)
    for name, operation in ON_THE_PROGRESS.items():
        for shard in range(SHARDS):
            guarded.deny(group_kind, f"mirror.{name}.{shard}", operation)
    for name, operation in ON_THE_ID.items():
        for partition in range(2):
            target_tp = TopicPartition(f"a.{topics[name]}", partition)
            guarded.deny(ResourceType.TRANSACTIONAL_ID, transactional_id(name, target_tp), operation)
