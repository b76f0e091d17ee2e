"""What copies ask of a source, on brokers of each release with an authorizer; confluent-kafka has the same answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as OtherPartition
from confluent_kafka.admin import AclBindingFilter as OtherFilter
from confluent_kafka.admin import AclOperation as OtherOperation
from confluent_kafka.admin import AclPermissionType, ResourcePatternType
from confluent_kafka.admin import ResourceType as OtherType

from mirror.client import (
    EARLIEST,
    LATEST,
    AclBinding,
    AclFilter,
    AclOperation,
    Admin,
    Consumer,
    OffsetAndMetadata,
    ResourceType,
    TopicPartition,
)
from mirror.consumer.fetched import without_aborted
from mirror.observation import Side
from mirror.wire.decode import records_of
from tests.conftest import NewCluster
from tests.copying.group_site import commit, committed_at
from tests.copying.pair import End
from tests.e2e.broker_side import WITHIN_S
from tests.polling import eventually
from tests.releases.releases import VERSIONS, authorizer
from tests.releases.topics import SourceTopics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_USER: Final = "User:somebody"
REPORT_PERMISSIONS: Final = VERSIONS[1:]
"""Those whose brokers say what a client may do (KIP-430, from Apache Kafka 2.3)."""


@pytest.mark.parametrize("version", VERSIONS)
def test_calls_of_a_source_have_confluent_kafka_s_results(
    new_cluster: NewCluster, unique: Callable[[str], str], version: str
) -> None:
    cluster = new_cluster(release=version, properties=authorizer(version))
    topics = SourceTopics(cluster, version, unique("x"))
    topics.create()
    topics.grow()
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        _check_metadata(admin, topics)
        _check_offsets(admin, topics)
        _check_configs(admin, topics)
        _check_groups(admin, topics, unique("g.billing"))
        _check_acls(admin, topics)
        _check_operations(admin, topics.plain, reported=version in REPORT_PERMISSIONS)
    for topic in (topics.plain, topics.transactional, *topics.old.values()):
        for partition in range(topics.partitions[topic]):
            assert _fetched(topics.side, topic, partition) == [
                (offset, one.key, one.value, one.headers, one.time_ms)
                for offset, one in topics.side.seen(topic, partition)
            ]


def _check_metadata(admin: Admin, topics: SourceTopics) -> None:
    described, found = admin.describe_cluster(), topics.side.admin.list_topics(timeout=WITHIN_S)
    assert {(one.node_id, f"{one.host}:{one.port}") for one in described.brokers} == {
        (one.id, f"{one.host}:{one.port}") for one in found.brokers.values()
    }
    assert described.cluster_id == found.cluster_id
    listed = admin.list_topics()
    assert {name: len(topic.partitions) for name, topic in listed.items()} == {
        name: len(topic.partitions) for name, topic in found.topics.items()
    }
    for name, topic in listed.items():
        theirs = found.topics[name].partitions
        assert {one.partition: (one.leader, one.replicas, one.isr) for one in topic.partitions} == {
            number: (one.leader, tuple(one.replicas), tuple(one.isrs)) for number, one in theirs.items()
        }
    (logs,) = admin.describe_log_dirs().values()
    sizes = {tp: log.size_bytes for folder in logs.values() for tp, log in folder.logs.items()}
    assert sizes[TopicPartition(topics.plain, 0)] > 0


def _check_offsets(admin: Admin, topics: SourceTopics) -> None:
    for topic in (topics.plain, topics.transactional):
        tp = TopicPartition(topic, 0)
        first_ms, last_ms = (topics.side.records(topic)[number].time_ms for number in (0, -1))
        for isolation in ("read_committed", "read_uncommitted"):
            options = {"bootstrap.servers": topics.side.address, "group.id": "reader", "isolation.level": isolation}
            consumer = Confluent(options)
            low, high = consumer.get_watermark_offsets(OtherPartition(topic, 0), timeout=WITHIN_S)
            expected = {EARLIEST: low, LATEST: high}
            for time_ms in (first_ms, (first_ms + last_ms) // 2, last_ms, last_ms + 60_000):
                (found,) = consumer.offsets_for_times([OtherPartition(topic, 0, time_ms)], timeout=WITHIN_S)
                expected[time_ms] = found.offset  # -1: there is none
            consumer.close()
            ours = {time: admin.list_offsets({tp: time}, isolation=isolation)[tp].offset for time in expected}
            assert ours == expected
    tp = TopicPartition(topics.plain, 0)
    (end,) = admin.epoch_ends_async({tp: 0}).result().values()
    assert end is not None
    assert (end.leader_epoch, end.end_offset) == (0, topics.side.end(topics.plain))


def _check_configs(admin: Admin, topics: SourceTopics) -> None:
    found = Side("", admin).own_configs(topics.partitions)
    for topic, own in found.items():
        assert own.items() <= topics.side.config(topic).items()
        assert own["retention.ms"] == "-1"
    assert found[topics.compacted]["cleanup.policy"] == "compact"
    assert {
        topic: own.get("message.format.version") for topic, own in found.items() if topic in topics.old.values()
    } == {topic: topics.side.config(topic)["message.format.version"] for topic in topics.old.values()}


def _check_groups(admin: Admin, topics: SourceTopics, group: str) -> None:
    commit(topics.side, group, topics.plain, 17, "here")
    admin.commit_group_offsets(group, {TopicPartition(topics.plain, 1): OffsetAndMetadata(3, None, "there")})
    listed = topics.side.admin.list_consumer_groups().result(WITHIN_S).valid
    assert set(admin.list_groups()) == {one.group_id for one in listed} == {group}
    (described,) = admin.describe_groups([group]).values()
    assert (described.state, described.members) == ("Empty", ())
    # confluent-kafka takes metadata for a text with a zero byte at its end: it writes one, and reads up to one.
    expected = [(17, "here"), (3, "there")]
    for partition, (offset, metadata) in enumerate(expected):
        found_offset, found_metadata = committed_at(topics.side, group, topics.plain, partition)
        assert (found_offset, found_metadata[: len(metadata)]) == (offset, metadata)
    for ours in (admin.group_offsets(group), admin.offsets_of_groups_async([group]).result()[group]):
        found = {tp: (one.offset, one.metadata.rstrip("\0")) for tp, one in ours.items()}
        assert found == {TopicPartition(topics.plain, partition): one for partition, one in enumerate(expected)}


def _check_acls(admin: Admin, topics: SourceTopics) -> None:
    binding = AclBinding(ResourceType.TOPIC, topics.plain, _USER, AclOperation.READ)
    admin.create_acls([binding])
    wanted = AclFilter(ResourceType.TOPIC, topics.plain)
    eventually(lambda: admin.describe_acls(wanted) == (binding,), what="the ACL")
    anyone: Any = None
    of_topic = OtherType.TOPIC, topics.plain, ResourcePatternType.LITERAL, anyone, anyone
    every = OtherFilter(*of_topic, OtherOperation.ANY, AclPermissionType.ANY)
    (theirs,) = topics.side.admin.describe_acls(every).result(WITHIN_S)
    assert (theirs.name, theirs.principal, theirs.operation) == (topics.plain, _USER, OtherOperation.READ)


def _check_operations(admin: Admin, topic: str, *, reported: bool) -> None:
    of_cluster = admin.cluster_operations()
    described = admin.describe_topics([topic], include_authorized_operations=True)[topic].authorized_operations
    of_group = admin.group_operations(["g.billing"]).get("g.billing")
    if reported:
        assert None not in (of_cluster, described, of_group)
        assert (of_cluster or set()) >= {AclOperation.DESCRIBE, AclOperation.CREATE}
        assert (described or set()) >= {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS}
        assert (of_group or set()) >= {AclOperation.READ, AclOperation.DESCRIBE}
    else:
        assert (of_cluster, described, of_group) == (None, None, None)


def _fetched(end: End, topic: str, partition: int) -> list[tuple[Any, ...]]:
    """Return (offset, key, value, headers, time) of all committed records, as the client has them."""
    tp, found = TopicPartition(topic, partition), list[tuple[Any, ...]]()
    start, last = end.ends(topic, partition)
    options = {"bootstrap.servers": end.address, "isolation.level": "read_committed", "fetch.max.wait.ms": 20}
    with Consumer(options) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)

        def at_end() -> bool:
            for fetched in consumer.poll(timeout_ms=200):
                assert fetched.error is None, fetched.error
                for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
                    if not aborted:
                        found.extend(
                            (one.offset, one.key, one.value, one.headers, one.timestamp_ms) for one in records_of(batch)
                        )
            return (consumer.position(tp) or 0) >= last

        eventually(at_end, within_s=WITHIN_S, what=f"the end of {tp}")
    return found
