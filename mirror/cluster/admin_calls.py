"""The calls behind ``Admin``: topics, configurations, offsets (``KafkaAdminClient``)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mirror.cluster.calls import ANY, Call, ClusterView, Failures, GroupCall, LeaderCall, check, left_out
from mirror.cluster.topics import (
    Broker,
    ClusterDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.messages.admin import (
    ConfigResource,
    CreatableConfig,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from mirror.wire.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mirror.wire.messages.groups import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from mirror.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from mirror.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from mirror.wire.verdicts import UNKNOWN_TOPIC_OR_PARTITION

_TOPIC_RESOURCE: Final = 2
_SET_ON_TOPIC: Final = 1
_ALL: Final = "*"


def by_topic(tps: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Partitions grouped by topic, both in order."""
    groups: dict[str, list[int]] = {}
    for tp in sorted(tps):
        groups.setdefault(tp.topic, []).append(tp.partition)
    return groups


class DescribeTopics(Call[dict[str, TopicDescription], str]):
    """Topics by name, or all; those that do not exist are left out of the answer."""

    api = Api.METADATA

    def __init__(self, names: Collection[str] | None, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing topics", (_ALL,) if names is None else names, deadline_ms, timeout_ms)
        self._found: dict[str, TopicDescription] = {}

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """All the keys in one request."""
        del view, timeout_ms
        return MetadataRequest(None if _ALL in keys else tuple(MetadataRequestTopic(name) for name in keys))

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """A missing topic is an answer too; one that is being created or elected is retried."""
        del keys
        failures: dict[str, KafkaError] = {}
        for told in response.topics:
            name = told.name or ""
            if told.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            error = check(told.error_code, f"topic {name!r}", needs="Describe")
            if error is not None:
                failures[name] = error
                continue
            partitions = (
                PartitionDescription(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
                for p in told.partitions
            )
            ordered = tuple(sorted(partitions, key=lambda p: p.partition))
            self._found[name] = TopicDescription(name, told.topic_id, told.is_internal, ordered)
        return failures

    def result(self) -> dict[str, TopicDescription]:
        """By name."""
        return self._found


class DescribeCluster(Call[ClusterDescription, str]):
    """The cluster's identity and brokers."""

    api = Api.METADATA

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing the cluster", (_ALL,), deadline_ms, timeout_ms)
        self._found: ClusterDescription | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """No topics: only the brokers are wanted."""
        del keys, view, timeout_ms
        return MetadataRequest(())

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Always an answer."""
        del keys
        brokers = tuple(Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers)
        self._found = ClusterDescription(response.cluster_id or "", response.controller_id, brokers)
        return {}

    def result(self) -> ClusterDescription:
        """What was told."""
        assert self._found is not None  # noqa: S101 - result() follows accept()
        return self._found


class ControllerCall(Call[None, str]):
    """A call that changes topics; any broker passes it on to the controller (KIP-590), the one named is asked first."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[str]]:
        """To the controller where one is known."""
        return {view.metadata.controller if view.metadata.controller is not None else ANY: set(self.pending)}

    def result(self) -> None:
        """Nothing to tell but success."""


class CreateTopics(ControllerCall):
    """Topics to create; a topic that is already there is an error (code 36)."""

    api = Api.CREATE_TOPICS

    def __init__(self, topics: Sequence[NewTopic], deadline_ms: int, timeout_ms: int) -> None:
        self._topics = {topic.name: topic for topic in topics}
        super().__init__(f"creating topics {sorted(self._topics)}", self._topics, deadline_ms, timeout_ms)

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> CreateTopicsRequest:
        """All that are not there yet."""
        del view
        creatable = (self._creatable(self._topics[name]) for name in sorted(keys))
        return CreateTopicsRequest(tuple(creatable), min(timeout_ms, 2**31 - 1))

    @staticmethod
    def _creatable(topic: NewTopic) -> CreatableTopic:
        configs = tuple(CreatableConfig(name, value) for name, value in sorted(topic.configs.items()))
        return CreatableTopic(topic.name, topic.partitions, topic.replication_factor, (), configs)

    def accept(self, keys: Collection[str], response: CreateTopicsResponse) -> Failures:
        """Per topic."""
        del keys
        told = (
            (t.name, check(t.error_code, f"creating topic {t.name!r}", t.error_message, needs="Create"))
            for t in response.topics
        )
        return {name: error for name, error in told if error is not None}


class CreatePartitions(ControllerCall):
    """Topics to give more partitions, as topic -> new total."""

    api = Api.CREATE_PARTITIONS

    def __init__(self, totals: Mapping[str, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"adding partitions to {sorted(totals)}", totals.keys(), deadline_ms, timeout_ms)
        self._totals = dict(totals)

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> CreatePartitionsRequest:
        """All that have not grown yet."""
        del view
        topics = tuple(CreatePartitionsTopic(name, self._totals[name]) for name in sorted(keys))
        return CreatePartitionsRequest(topics, min(timeout_ms, 2**31 - 1))

    def accept(self, keys: Collection[str], response: CreatePartitionsResponse) -> Failures:
        """Per topic."""
        del keys
        told = (
            (t.name, check(t.error_code, f"adding partitions to {t.name!r}", t.error_message, needs="Alter"))
            for t in response.results
        )
        return {name: error for name, error in told if error is not None}


class DescribeTopicConfigs(Call[dict[str, dict[str, str]], str]):
    """What was set on the topics themselves; broker defaults are left out."""

    api = Api.DESCRIBE_CONFIGS

    def __init__(self, names: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing topic configurations", names, deadline_ms, timeout_ms)
        self._found: dict[str, dict[str, str]] = {}

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeConfigsRequest:
        """All keys of every topic; those set on it are told apart by their source."""
        del view, timeout_ms
        return DescribeConfigsRequest(tuple(ConfigResource(_TOPIC_RESOURCE, name) for name in sorted(keys)))

    def accept(self, keys: Collection[str], response: DescribeConfigsResponse) -> Failures:
        """Per topic."""
        del keys
        failures: dict[str, KafkaError] = {}
        for told in response.results:
            about = f"describing the configuration of topic {told.resource_name!r}"
            error = check(told.error_code, about, told.error_message, needs="DescribeConfigs")
            if error is not None:
                failures[told.resource_name] = error
                continue
            own = {c.name: c.value for c in told.configs if c.config_source == _SET_ON_TOPIC and c.value is not None}
            self._found[told.resource_name] = own
        return failures

    def result(self) -> dict[str, dict[str, str]]:
        """By topic."""
        return self._found


class ListOffsets(LeaderCall[dict[TopicPartition, OffsetResult]]):
    """Offsets by time; EARLIEST and LATEST are times too."""

    api = Api.LIST_OFFSETS

    def __init__(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool, deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("listing offsets", times.keys(), deadline_ms, timeout_ms)
        self._times = dict(times)
        self._read_committed = read_committed
        self._found: dict[TopicPartition, OffsetResult] = {}

    def request(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> ListOffsetsRequest:
        """With the leader epoch we know, so that a stale leader says so (KIP-320)."""
        topics = []
        for topic, partitions in by_topic(keys).items():
            asked = [self._partition(TopicPartition(topic, p), view) for p in partitions]
            topics.append(ListOffsetsTopic(topic, tuple(asked)))
        return ListOffsetsRequest(int(self._read_committed), tuple(topics), min(timeout_ms, 2**31 - 1))

    def _partition(self, tp: TopicPartition, view: ClusterView) -> ListOffsetsPartition:
        leader = view.metadata.leader(tp)
        return ListOffsetsPartition(tp.partition, self._times[tp], leader.epoch if leader else -1)

    def accept(self, keys: Collection[TopicPartition], response: ListOffsetsResponse) -> Failures:
        """Per partition."""
        failures: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for told in topic.partitions:
                tp = TopicPartition(topic.name, told.partition_index)
                error = check(told.error_code, f"listing offsets of {tp}", needs="Describe")
                if error is not None:
                    failures[tp] = error
                else:
                    self._found[tp] = OffsetResult(told.offset, told.timestamp, told.leader_epoch)
        return failures | left_out(keys, self._found, failures)

    def result(self) -> dict[TopicPartition, OffsetResult]:
        """By partition."""
        return self._found


class GroupOffsets(GroupCall[dict[TopicPartition, OffsetAndMetadata]]):
    """What a group has committed; waits out pending transactions (require stable, KIP-447)."""

    api = Api.OFFSET_FETCH

    def __init__(self, group: str, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"reading offsets of group {group!r}", group, deadline_ms, timeout_ms)
        self._tps = tuple(tps)
        self._found: dict[TopicPartition, OffsetAndMetadata] = {}

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetFetchRequest:
        """All partitions in one."""
        del keys, view, timeout_ms
        topics = tuple(OffsetFetchTopic(topic, tuple(parts)) for topic, parts in by_topic(self._tps).items())
        return OffsetFetchRequest((OffsetFetchGroup(self.group, topics),))

    def accept(self, keys: Collection[str], response: OffsetFetchResponse) -> Failures:
        """One group; a partition with a pending transaction makes all of it wait."""
        del keys
        for group in response.groups:
            error = check(group.error_code, self.what, needs="Describe")
            for topic in group.topics:
                for told in topic.partitions:
                    tp = TopicPartition(topic.name, told.partition_index)
                    error = error or check(told.error_code, f"{self.what}, {tp}", needs="Describe")
                    if told.committed_offset >= 0:
                        epoch = told.committed_leader_epoch if told.committed_leader_epoch >= 0 else None
                        self._found[tp] = OffsetAndMetadata(told.committed_offset, epoch, told.metadata or "")
            if error is not None:
                self._found.clear()
                return {self.group: error}
        return {}

    def result(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """By partition; absent where nothing is committed."""
        return self._found


class CommitGroupOffsets(GroupCall[None]):
    """Offsets to commit for a group without members."""

    api = Api.OFFSET_COMMIT

    def __init__(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"committing offsets of group {group!r}", group, deadline_ms, timeout_ms)
        self._offsets = dict(offsets)

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetCommitRequest:
        """All partitions in one."""
        del keys, view, timeout_ms
        topics = tuple(
            OffsetCommitTopic(topic, tuple(self._partition(TopicPartition(topic, p)) for p in parts))
            for topic, parts in by_topic(self._offsets.keys()).items()
        )
        return OffsetCommitRequest(self.group, topics)

    def _partition(self, tp: TopicPartition) -> OffsetCommitPartition:
        offset = self._offsets[tp]
        epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
        return OffsetCommitPartition(tp.partition, offset.offset, epoch, offset.metadata)

    def accept(self, keys: Collection[str], response: OffsetCommitResponse) -> Failures:
        """All or nothing: committing the same again is harmless."""
        del keys
        for topic in response.topics:
            for told in topic.partitions:
                about = f"{self.what}, {topic.name}-{told.partition_index}"
                error = check(told.error_code, about, needs="Read")
                if error is not None:
                    return {self.group: error}
        return {}

    def result(self) -> None:
        """Nothing to tell but success."""


class ClientInstanceId(Call[uuid.UUID, str]):
    """The id under which a broker keeps this client's telemetry (KIP-714); UnsupportedVersion where it keeps none."""

    api = Api.GET_TELEMETRY_SUBSCRIPTIONS

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("getting the client instance id", (_ALL,), deadline_ms, timeout_ms)
        self._found: uuid.UUID | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> GetTelemetrySubscriptionsRequest:
        """A null id asks for a new one."""
        del keys, view, timeout_ms
        return GetTelemetrySubscriptionsRequest()

    def accept(self, keys: Collection[str], response: GetTelemetrySubscriptionsResponse) -> Failures:
        """One id."""
        error = check(response.error_code, self.what)
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = response.client_instance_id
        return {}

    def result(self) -> uuid.UUID:
        """The id."""
        assert self._found is not None  # noqa: S101 - result() follows accept()
        return self._found
