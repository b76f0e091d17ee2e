"""Missing permissions on real brokers: the line names which one, on what; nothing is copied, nothing half-written."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from mirror.client import TopicPartition
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import SHARDS
from tests.e2e.broker_side import WITHIN_S, Side, failed_into
from tests.e2e.site import WARNING, Run, Site, flow

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

ON_THE_SOURCE = {
    "s-read": AclOperation.READ,
    "s-describe": AclOperation.DESCRIBE,
    "s-configs": AclOperation.DESCRIBE_CONFIGS,
    "s-some": AclOperation.READ,
}
ON_THE_TARGET = {
    "t-write": AclOperation.WRITE,
    "t-describe": AclOperation.DESCRIBE,
    "t-create": AclOperation.CREATE,
    "t-alter": AclOperation.ALTER,
    "t-some": AclOperation.WRITE,
}
ON_THE_PROGRESS = {"g-read": AclOperation.READ, "g-describe": AclOperation.DESCRIBE}
ON_THE_ID = {"i-write": AclOperation.WRITE, "i-describe": AclOperation.DESCRIBE}
NOT_BEFOREHAND = {"t-create", "i-write"}
"""Brokers do not report these until they are used."""
UNSEEN = {"s-describe"}
"""A broker does not list topics that one may not describe. As the flows make a cycle, this one waits for a topic."""
IN_PART = {"s-some", "t-some"}
"""Flows with a second topic, of which nothing is missing."""


def test_a_missing_permission_is_named_and_nothing_is_written(
    site: Site, source: Side, guarded: Side, unique: Callable[[str], str]
) -> None:
    """One flow for each permission. The cluster with ACLs is once the source and else the target."""
    topics = {name: unique(name) for name in (*ON_THE_SOURCE, *ON_THE_TARGET, *ON_THE_PROGRESS, *ON_THE_ID)}
    others = {name: unique(f"{name}-other") for name in IN_PART}
    _prepare(topics, others, source, guarded)
    flows = {
        name: flow(*(("g", "a") if name in ON_THE_SOURCE else ("a", "g")), [topic, *others.get(name, "").split()])
        for name, topic in topics.items()
    }
    clusters = {"a": source.address, "g": guarded.address}
    _are_refused_before_anything_starts(site, clusters, topics, flows)
    _find_out_as_they_run(site, clusters, topics, others, flows)

    assert f"a.{topics['t-create']}" not in guarded.topics()
    # Records, not offsets: the fence of an attempt leaves a marker in the log.
    targets = {
        f"g.{topic}" if name in ON_THE_SOURCE else f"a.{topic}": source if name in ON_THE_SOURCE else guarded
        for name, topic in topics.items()
    }
    written = [copy for copy, side in targets.items() for n in range(side.partitions(copy)) if side.read(copy, n)]
    assert written == []
    assert source.read(f"g.{others['s-some']}") == guarded.read(f"a.{others['t-some']}") == [b"1", b"2"]


def _are_refused_before_anything_starts(
    site: Site, clusters: dict[str, str], topics: dict[str, str], flows: dict[str, str]
) -> None:
    """What would keep a flow from running, of all flows in one list; without Spark."""
    site.write(clusters, {name: text for name, text in flows.items() if name not in NOT_BEFOREHAND | UNSEEN | IN_PART})
    plan = [sys.executable, "-m", "mirror.cli", "plan", "--config", str(site.config)]
    before, refused = site.finish(site.launch(plan)), site.run()
    assert (before.status, refused.status) == (1, 1), refused.err
    result = _by_flow(refused)
    assert result.keys() == topics.keys() - NOT_BEFOREHAND - UNSEEN - IN_PART
    count = r"none of the \d+ topics"  # brokers make internal ones meanwhile
    assert [re.sub(count, "", line) for line in before.errors] == [re.sub(count, "", line) for line in refused.errors]
    of_a, of_g = "of cluster a is missing", "of cluster g is missing"
    for name, parts in {
        "s-read": (f"the permission Read on topic {topics['s-read']} {of_g}", "nothing can be copied"),
        "s-configs": (f"the permission DescribeConfigs on topic {topics['s-configs']} {of_g}",),
        "t-write": (f"the permission Write on topic a.{topics['t-write']} {of_g}", "nothing can be copied"),
        "t-describe": (f"the permission Describe on topic a.{topics['t-describe']} {of_g}",),
        "t-alter": (f"the permission Alter on topic a.{topics['t-alter']} {of_g}", "--operation Alter --topic a."),
        "g-read": (f"the permission Read on groups with the prefix mirror.g-read. {of_g}",),
        "g-describe": (f"the permission Describe on groups with the prefix mirror.g-describe. {of_g}",),
        "i-describe": (f"the permission Describe on transactional ids with the prefix mirror.i-describe. {of_g}",),
    }.items():
        assert [part for part in parts if part not in result[name]] == [], result[name]
    assert of_a not in refused.err, "nothing is missing there"
    assert site.flows().keys() == result.keys()


def _find_out_as_they_run(
    site: Site, clusters: dict[str, str], topics: dict[str, str], others: dict[str, str], flows: dict[str, str]
) -> None:
    site.write(clusters, {name: flows[name] for name in sorted(NOT_BEFOREHAND | UNSEEN | IN_PART)})
    run = site.run()
    assert run.status == 3, run.err
    assert _by_flow(run) == {}
    missing = "the permission {} on the {} is missing; grant it to this client's user"
    warned = [line.removeprefix(WARNING) for line in run.err.splitlines() if line.startswith(WARNING)]
    for start in (
        "flow s-describe: cluster g has no topic that it copies yet, or this client's user lacks Describe on it",
        f"flow s-some: the permission Read on topic {topics['s-some']} of cluster g is missing",
        f"flow t-some: the permission Write on topic a.{topics['t-some']} of cluster g is missing",
    ):
        assert [line for line in warned if line.startswith(start)], run.err
    results = {
        (name, each["topic"]): each for name in (*IN_PART, *NOT_BEFOREHAND) for each in site.partitions(name).values()
    }
    failed = {
        ("t-create", topics["t-create"]): (f"a.{topics['t-create']} ", missing.format("Create", "topic")),
        ("s-some", topics["s-some"]): (f"fetching {topics['s-some']}-", missing.format("Read", "topic")),
        ("t-some", topics["t-some"]): (f" a.{topics['t-some']}-", missing.format("Write", "topic")),
        ("i-write", topics["i-write"]): ("mirror.i-write.", missing.format("Write", "transactional id")),
    }
    copied = set(others.items())
    assert results.keys() == failed.keys() | copied
    for key, parts in failed.items():
        each = results[key]
        assert [part for part in parts if part not in each["error"]] == [], each["error"]
        assert (each["outcome"], each["start"], each["end"], each["records"]) == ("failed", 0, 0, 0)
    assert {(results[key]["outcome"], results[key]["records"]) for key in copied} == {("complete", 2)}


def _by_flow(run: Run) -> dict[str, str]:
    """The only line of each flow that has one."""
    assert "Traceback" not in run.out + run.err
    lines = [line.removeprefix("mirror: flow ").split(": ", 1) for line in run.errors]
    result = dict[str, str](lines)
    assert len(result) == len(lines), run.err
    return result


def _prepare(topics: dict[str, str], others: dict[str, str], source: Side, guarded: Side) -> None:
    topic_kind, group_kind = ResourceType.TOPIC, ResourceType.GROUP
    everything = [*topics.items(), *others.items()]
    _fill(guarded, [topic for name, topic in everything if name in ON_THE_SOURCE])
    _fill(source, [topic for name, topic in everything if name not in ON_THE_SOURCE])
    for name, operation in ON_THE_SOURCE.items():
        guarded.deny(topic_kind, topics[name], operation)
    for name in ("t-write", "t-alter", "t-some"):
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


def _fill(side: Side, topics: list[str]) -> None:
    """Two partitions each, all by one producer: to begin one costs more than what it has to send here."""
    producer, failures = side.producer(), list[str]()
    for topic in topics:
        side.create(topic, 2)
        for partition in range(2):
            for value in (b"1", b"2"):
                producer.produce(topic, value, partition=partition, on_delivery=failed_into(failures))
    assert producer.flush(WITHIN_S) == 0
    assert not failures, failures[0]
