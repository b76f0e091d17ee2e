"""Calls about topics: describe, create, delete, give more partitions (``KafkaAdminClient``)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mirror.cluster.acls import operations_of
from mirror.cluster.calls import Call, ClusterView, Failures, check
from mirror.cluster.keyed_call import ControllerCall, KeyedCall
from mirror.cluster.offset_calls import LeadersCall
from mirror.cluster.types import NewTopic, PartitionDescription, TopicDescription, TopicPartition, is_topic_name
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.error_codes import TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION
from mirror.wire.messages.admin import (
    CreatableConfig,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from mirror.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataTopic

_ALL: Final = "*"


def _description(told: MetadataTopic) -> TopicDescription:
    partitions = (
        PartitionDescription(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in told.partitions
    )
    ordered = tuple(sorted(partitions, key=lambda p: p.partition))
    operations = operations_of(told.topic_authorized_operations)
    return TopicDescription(told.name or "", told.topic_id, told.is_internal, ordered, operations)


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
        """A missing topic is an answer too; one that is being created or elected is retried.

        No topic has a name that is not legal: it would reach terminals and files.
        """
        failures: dict[str, KafkaError] = {}
        for told in response.topics:
            name = told.name or ""
            if told.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            error = check(told.error_code, f"topic {name!r}", needs="Describe")
            if error is not None:
                failures[name if name in keys else _ALL] = error
            elif name in keys or (_ALL in keys and is_topic_name(name)):
                self._found[name] = _description(told)
        return failures

    def result(self) -> dict[str, TopicDescription]:
        """By name."""
        return self._found


class DescribeEachTopic(KeyedCall[str, TopicDescription]):
    """Topics by name; those that do not exist are left out, those that may not be seen fail alone.

    ``operations``: also what this client may do with each (KIP-430).
    """

    api = Api.METADATA
    needs = "Describe"

    def __init__(self, names: Collection[str], deadline_ms: int, timeout_ms: int, *, operations: bool = False) -> None:
        super().__init__("describing topics", names, deadline_ms, timeout_ms)
        self._operations = operations

    def about(self, key: str) -> str:
        """For errors."""
        return f"describing topic {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """All the keys in one request."""
        del view, timeout_ms
        topics = tuple(MetadataRequestTopic(name) for name in sorted(keys))
        return MetadataRequest(topics, include_topic_authorized_operations=self._operations)

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Per topic."""
        for told in response.topics:
            if told.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self.absent(told.name or "")
            else:
                self.take(told.name or "", told.error_code, _description(told))
        return self.open(keys)


class TopicIds(LeadersCall[uuid.UUID | None]):
    """The id that each partition's leader knows for its topic; left out where it knows no topic of that name."""

    api = Api.METADATA
    needs = "Describe"

    def __init__(self, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("asking for topic ids", tps, deadline_ms, timeout_ms)

    def about(self, key: TopicPartition) -> str:
        """For errors."""
        return f"asking for the topic id of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Each topic once."""
        del view, timeout_ms
        return MetadataRequest(tuple(MetadataRequestTopic(name) for name in sorted({tp.topic for tp in keys})))

    def accept(self, keys: Collection[TopicPartition], response: MetadataResponse) -> Failures:
        """Per topic, for all of its partitions that were asked for."""
        for topic in response.topics:
            for tp in [tp for tp in keys if tp.topic == topic.name]:
                if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                    self.absent(tp)
                else:
                    self.take(tp, topic.error_code, topic.topic_id)
        return self.open(keys)


class CreateTopics(ControllerCall[str, uuid.UUID | None]):
    """Topics to create, each with its id; a topic that is already there is an error (code 36).

    ``validate_only``: the brokers only say whether they would.
    """

    api = Api.CREATE_TOPICS
    needs = "Create"

    def __init__(
        self, topics: Sequence[NewTopic], deadline_ms: int, timeout_ms: int, *, validate_only: bool = False
    ) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self._validate_only = validate_only
        super().__init__(f"creating topics {sorted(self._topics)}", self._topics, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"creating topic {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> CreateTopicsRequest:
        """All that are not there yet."""
        del view
        creatable = (self._creatable(self._topics[name]) for name in sorted(keys))
        return CreateTopicsRequest(tuple(creatable), timeout_ms, self._validate_only)

    @staticmethod
    def _creatable(topic: NewTopic) -> CreatableTopic:
        configs = tuple(CreatableConfig(name, value) for name, value in sorted(topic.configs.items()))
        return CreatableTopic(topic.name, topic.partitions, topic.replication_factor, (), configs)

    def accept(self, keys: Collection[str], response: CreateTopicsResponse) -> Failures:
        """Per topic. A topic that is there after an attempt without an answer may be another's, with other settings."""
        for told in response.topics:
            message = told.error_message
            if told.error_code == TOPIC_ALREADY_EXISTS and told.name in self.uncertain:
                message = "it is there; an earlier attempt of this call got no answer, and may have created it"
            self.take(told.name, told.error_code, told.topic_id, message)
        return self.open(keys)


class CreatePartitions(ControllerCall[str, None]):
    """Topics to give more partitions, as topic -> new total; ``validate_only`` as in :class:`CreateTopics`."""

    api = Api.CREATE_PARTITIONS
    needs = "Alter"
    final = frozenset({UNKNOWN_TOPIC_OR_PARTITION})

    def __init__(
        self, totals: Mapping[str, int], deadline_ms: int, timeout_ms: int, *, validate_only: bool = False
    ) -> None:
        super().__init__(f"adding partitions to {sorted(totals)}", totals.keys(), deadline_ms, timeout_ms)
        self._totals = dict(totals)
        self._validate_only = validate_only

    def about(self, key: str) -> str:
        """For errors."""
        return f"adding partitions to {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> CreatePartitionsRequest:
        """All that have not grown yet."""
        del view
        topics = tuple(CreatePartitionsTopic(name, self._totals[name]) for name in sorted(keys))
        return CreatePartitionsRequest(topics, timeout_ms, self._validate_only)

    def accept(self, keys: Collection[str], response: CreatePartitionsResponse) -> Failures:
        """Per topic."""
        for told in response.results:
            self.take(told.name, told.error_code, None, told.error_message)
        return self.open(keys)


class DeleteTopics(ControllerCall[str, None]):
    """Topics to delete, by name; one that is not there is an error (code 3)."""

    api = Api.DELETE_TOPICS
    needs = "Delete"
    final = frozenset({UNKNOWN_TOPIC_OR_PARTITION})
    gone = UNKNOWN_TOPIC_OR_PARTITION

    def __init__(self, names: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"deleting topics {sorted(names)}", names, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"deleting topic {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DeleteTopicsRequest:
        """All that are still there."""
        del view
        return DeleteTopicsRequest(tuple(DeleteTopicState(name) for name in sorted(keys)), timeout_ms)

    def accept(self, keys: Collection[str], response: DeleteTopicsResponse) -> Failures:
        """Per topic."""
        for told in response.responses:
            self.take(told.name or "", told.error_code, None, told.error_message)
        return self.open(keys)
