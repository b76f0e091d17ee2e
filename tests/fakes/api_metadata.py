"""Metadata, DescribeCluster and FindCoordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.acls import AclOperation, ResourceType
from mirror.wire.messages.base import OPERATIONS_NOT_TOLD
from mirror.wire.messages.metadata import (
    Coordinator,
    DescribeClusterBroker,
    DescribeClusterResponse,
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    QuorumReplica,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster, FakeTopic

WITH_TOPIC_IDS, _SEVERAL_KEYS = 10, 4


def describe_cluster(cluster: FakeCluster, call: ServerCall) -> DescribeClusterResponse:
    """The living brokers, and the operations on the cluster; without Describe there are none."""
    brokers = tuple(DescribeClusterBroker(b.node, b.host, b.port) for b in cluster.brokers.values() if b.up)
    bits = cluster.admin.bits(ResourceType.CLUSTER, "")
    code = call.action.code("cluster")
    may = bits if bits >> AclOperation.DESCRIBE & 1 else 0
    asked = call.body.include_cluster_authorized_operations
    return DescribeClusterResponse(
        code,
        "refused" if code else None,
        cluster.cluster_id,
        brokers,
        cluster.controller,
        may if asked else OPERATIONS_NOT_TOLD,
    )


def describe_quorum(cluster: FakeCluster, call: ServerCall) -> DescribeQuorumResponse:
    """The controller leads, and says what its clock shows."""
    code = call.action.code("quorum")
    leader = QuorumReplica(cluster.controller, 9, -1, cluster.controller_ms())
    part = DescribedQuorumPartition(0, 0, cluster.controller, 1, 9, (QuorumReplica(77, 9, 5, 5), leader))
    return DescribeQuorumResponse(code, () if code else (DescribedQuorumTopic("__cluster_metadata", (part,)),))


def metadata(cluster: FakeCluster, call: ServerCall) -> MetadataResponse:
    """The living brokers and the topics asked for."""
    request: MetadataRequest = call.body
    brokers = tuple(MetadataBroker(b.node, b.host, b.port) for b in cluster.brokers.values() if b.up)
    names = list(cluster.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
    topics = tuple(_topic(cluster, call, name) for name in names)
    if request.topics is None:  # those are left out that the client may not describe
        topics = tuple(one for one in topics if one.error_code != errors.TOPIC_AUTHORIZATION_FAILED)
    if request.include_topic_authorized_operations:
        for result in topics:
            if not result.error_code:
                result.topic_authorized_operations = cluster.admin.bits(ResourceType.TOPIC, result.name or "")
    asked = request.include_cluster_authorized_operations
    bits = cluster.admin.bits(ResourceType.CLUSTER, "") if asked else OPERATIONS_NOT_TOLD
    return MetadataResponse(brokers, cluster.cluster_id, cluster.controller, topics, 0, bits)


def _topic(cluster: FakeCluster, call: ServerCall, name: str) -> MetadataTopic:
    if code := call.action.code(name):
        return MetadataTopic(code, name)
    if (frozen := cluster.lagging.get(call.node)) is not None:
        return frozen.get(name) or MetadataTopic(errors.UNKNOWN_TOPIC_OR_PARTITION, name)
    return topic_as_it_is(cluster, name)


def topic_as_it_is(cluster: FakeCluster, name: str) -> MetadataTopic:
    """As a broker knows it that does not lag."""
    topic = cluster.topics.get(name)
    if topic is None:
        return MetadataTopic(errors.UNKNOWN_TOPIC_OR_PARTITION, name)
    parts = tuple(_partition(cluster, topic, p) for p in range(len(topic.partitions)))
    return MetadataTopic(0, name, topic.topic_id, name.startswith("__"), parts)


def _partition(cluster: FakeCluster, topic: FakeTopic, partition: int) -> MetadataPartition:
    log = topic.partitions[partition]
    alive = log.leader in cluster.brokers and cluster.brokers[log.leader].up
    leader = log.leader if alive else -1
    replicas = tuple(cluster.brokers)[: topic.replicas]
    code = 0 if alive else errors.LEADER_NOT_AVAILABLE
    return MetadataPartition(code, partition, leader, log.leader_epoch, replicas, replicas)


def find_coordinator(cluster: FakeCluster, call: ServerCall) -> FindCoordinatorResponse:
    """Several keys at once, from version 4 on (KIP-699)."""
    request: FindCoordinatorRequest = call.body
    if call.version < _SEVERAL_KEYS:
        one = _coordinator(cluster, call, request.key)
        return FindCoordinatorResponse((), 0, one.error_code, one.error_message, one.node_id, one.host, one.port)
    return FindCoordinatorResponse(tuple(_coordinator(cluster, call, key) for key in request.coordinator_keys))


def _coordinator(cluster: FakeCluster, call: ServerCall, key: str) -> Coordinator:
    node = cluster.coordinator(key)
    broker = cluster.brokers[node]
    code = call.action.code(key) or (0 if broker.up else errors.COORDINATOR_NOT_AVAILABLE)
    if code:
        return Coordinator(key, -1, "", -1, code, "not now")
    return Coordinator(key, node, broker.host, broker.port, 0)
