"""What whoever administers the source cannot make a flow do to its target, on real brokers, by the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.client import NewTopic, OffsetAndMetadata, Producer, TopicPartition
from mirror.observation import Side
from mirror.sandbox.cluster import Cluster as OwnCluster
from tests import jvm
from tests.alignment.test_on_brokers import Flow
from tests.polling import eventually
from tests.topic_creation import create_topics

if TYPE_CHECKING:
    from mirror.client import Admin
    from mirror.sandbox.cluster import Cluster

_OFFSETS = "__consumer_offsets"
_TWO_DAYS_MS = str(2 * 24 * 60 * 60 * 1000)


@pytest.fixture
def hostile_source() -> Iterator[Cluster]:
    """A cluster with more partitions of committed offsets than the target has."""
    with OwnCluster(properties={"offsets.topic.num.partitions": "8"}, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture
def flow(
    source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Flow]:
    made = Flow(source_cluster, target_cluster, unique("orders"), unique("f"), tmp_path)
    yield made
    made.close()


def partitions(admin: Admin, topic: str) -> int:
    return len(admin.describe_topics([topic])[topic].partitions)


def commit(admin: Admin, topic: str) -> None:
    """Have the cluster make its topic of committed offsets."""
    admin.commit_group_offsets("any", {TopicPartition(topic, 0): OffsetAndMetadata(1)})
    eventually(lambda: _OFFSETS in admin.describe_topics([_OFFSETS]), what=_OFFSETS)


def test_topics_of_brokers_and_of_the_target_s_own_stay_as_they_are(
    hostile_source: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    payroll = unique("payroll")
    flow = Flow(hostile_source, target_cluster, payroll, unique("f"), tmp_path)
    text = flow.file.read_text().replace(f'["{payroll}"]', f'["{payroll}", "__.*"]')
    flow.file.write_text(text + 'topics-exclude = []\nnaming = "identity"\n')
    create_topics(flow.target, [NewTopic(payroll, 1)])
    with Producer({"bootstrap.servers": target_cluster.bootstrap_servers}) as producer:
        producer.send(payroll, 0, value=b"own").result()
    create_topics(flow.source, [NewTopic(payroll, 3, configs={"retention.ms": _TWO_DAYS_MS})])
    for admin in (flow.source, flow.target):
        commit(admin, payroll)
    before = partitions(flow.target, _OFFSETS)
    assert partitions(flow.source, _OFFSETS) == 8 > before
    for _ in range(2):
        status, found = flow.ask("apply")
        assert (status, found["configs"]["changed"]) == (3, 0)
        assert found["obstacles"].keys() == {payroll}
        assert f"target topic {payroll} holds records" in found["obstacles"][payroll]
        flow.on_source(retention_bytes="1")
    assert (partitions(flow.target, _OFFSETS), partitions(flow.target, payroll)) == (before, 1)
    assert Side("", flow.target).own_configs([payroll])[payroll] == {}
    flow.close()


def test_a_copy_is_not_emptied_by_its_source_or_by_one_of_its_name(flow: Flow) -> None:
    create_topics(flow.source, [NewTopic(flow.topic, 1)])
    assert flow.run("apply") == (0, {})
    flow.on_source(retention_ms="1")
    for _ in range(2):
        assert flow.run("apply") == (3, {"retention.ms": "over-limit"})
    flow.source.delete_topics([flow.topic])
    eventually(lambda: flow.topic not in flow.source.describe_topics([flow.topic]), what="the deletion")
    create_topics(flow.source, [NewTopic(flow.topic, 1, configs={"retention.ms": "1"})])
    for _ in range(2):
        assert flow.run("apply", "--max-deletions", "5") == (3, {"retention.ms": "source-recreated"})
    copy = f"a.{flow.topic}"
    assert Side("", flow.target).own_configs([copy])[copy] == {}
