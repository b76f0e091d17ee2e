"""Calls about topics: describe, create, delete, give more partitions (``KafkaAdminClient``)."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mirror.cluster.acls import operations_of
from mirror.cluster.calls.keyed_call import BrokersCall, ControllerCall, KeyedCall
from mirror.cluster.calls.offset_calls import LeadersCall
from mirror.cluster.calls.routed_calls import Call, ClusterView, Failures, check
from mirror.cluster.types import (
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicPartition,
    is_topic_name,
)
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.error_codes import (
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    broker_error,
)
from mirror.wire.frames import Buffer
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
_CORRELATION_ID_BYTES: Final = 4


def _description(entry: MetadataTopic) -> TopicDescription:
    partitions = (
        PartitionDescription(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in entry.partitions
    )
    ordered = tuple(sorted(partitions, key=lambda p: p.partition))
    operations = operations_of(entry.topic_authorized_operations)
    return TopicDescription(entry.name or "", entry.topic_id, entry.is_internal, ordered, operations)


class DescribeTopics(Call[dict[str, TopicDescription], str]):
    """Describe topics by name, or all; those that do not exist are left out."""

    api = Api.METADATA

    def __init__(self, names: Collection[str] | None, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing topics", (_ALL,) if names is None else names, deadline_ms, timeout_ms)
        self._found: dict[str, TopicDescription] = {}

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request all keys at once."""
        del view, timeout_ms
        return MetadataRequest(None if _ALL in keys else tuple(MetadataRequestTopic(name) for name in keys))

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """A missing topic is an answer too; one that is being created or elected is retried.

        No topic has a name that is not legal: it would reach terminals and files.
        """
        failures: dict[str, KafkaError] = {}
        for entry in response.topics:
            name = entry.name or ""
            if entry.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            error = check(entry.error_code, f"topic {name!r}", needs="Describe")
            if error is not None:
                failures[name if name in keys else _ALL] = error
            elif name in keys or (_ALL in keys and is_topic_name(name)):
                self._found[name] = _description(entry)
        return failures

    def result(self) -> dict[str, TopicDescription]:
        """Return the descriptions by topic name."""
        return self._found


class ListChangedTopics(Call[TopicListing, str]):
    """Describe all topics, unless the response is a known one: decoding it takes more than a hundred times as long."""

    api = Api.METADATA
    recognizes = True

    def __init__(self, known: Collection[bytes], deadline_ms: int, timeout_ms: int) -> None:
        """``known`` are digests of earlier responses."""
        self._described: Final = DescribeTopics(None, deadline_ms, timeout_ms)
        super().__init__(self._described.what, (_ALL,), deadline_ms, timeout_ms)
        self._known: Final = known
        self._digest = b""

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request all topics."""
        return self._described.request(keys, view, timeout_ms)

    def recognize(self, response: Buffer) -> MetadataResponse | None:
        """Compare all that follows the correlation id."""
        digest = hashlib.blake2b(memoryview(response)[_CORRELATION_ID_BYTES:], digest_size=16)
        self._digest = digest.digest()
        return MetadataResponse(()) if self._digest in self._known else None

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Describe the topics of a response that is not known."""
        return {} if self._digest in self._known else self._described.accept(keys, response)

    def result(self) -> TopicListing:
        """Return the digest, and unless it is known, the descriptions by topic name."""
        return TopicListing(self._digest, None if self._digest in self._known else self._described.result())


class DescribeEachTopic(KeyedCall[str, TopicDescription]):
    """Topics by name; those that do not exist are left out, those that may not be seen fail alone.

    ``operations``: also what this client may do with each (KIP-430).
    """

    api = Api.METADATA
    needs = "Describe"

    def __init__(self, names: Collection[str], deadline_ms: int, timeout_ms: int, *, operations: bool = False) -> None:
        super().__init__("describing topics", names, deadline_ms, timeout_ms)
        self._operations = operations

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing topic {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request all keys at once."""
        del view, timeout_ms
        topics = tuple(MetadataRequestTopic(name) for name in sorted(keys))
        return MetadataRequest(topics, include_topic_authorized_operations=self._operations)

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Set the result of each topic."""
        for entry in response.topics:
            if entry.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self.set_absent(entry.name or "")
            else:
                self.set_result(entry.name or "", entry.error_code, _description(entry))
        return self.unresolved(keys)


class TopicsOfBrokers(BrokersCall[dict[str, TopicDescription | KafkaError]]):
    """Topics by name as each of several brokers knows them; those that a broker does not know are left out.

    What a broker says about a topic other than that is its error.
    """

    api = Api.METADATA
    needs = "Describe"

    def __init__(self, names: Collection[str], nodes: Collection[int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing topics", nodes, deadline_ms, timeout_ms)
        self._names = tuple(sorted(names))

    def describe(self, key: int) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"asking broker {key} for topics"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request all topics."""
        del keys, view, timeout_ms
        return MetadataRequest(tuple(MetadataRequestTopic(name) for name in self._names))

    def accept(self, keys: Collection[int], response: MetadataResponse) -> Failures:
        """Set the result of one broker. An answer that leaves a topic out is none."""
        found: dict[str, TopicDescription | KafkaError] = {}
        answered = set()
        for entry in response.topics:
            name = entry.name or ""
            answered.add(name)
            if entry.error_code != UNKNOWN_TOPIC_OR_PARTITION:
                error = broker_error(entry.error_code, f"topic {name!r}", needs=self.needs)
                found[name] = error if entry.error_code else _description(entry)
        if answered.issuperset(self._names):
            for node in keys:
                self.set_result(node, 0, found)
        return self.unresolved(keys)


class TopicIds(LeadersCall[uuid.UUID | None]):
    """Get the topic id that each partition's leader has; left out where it has no topic of that name."""

    api = Api.METADATA
    needs = "Describe"

    def __init__(self, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("asking for topic ids", tps, deadline_ms, timeout_ms)

    def describe(self, key: TopicPartition) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"asking for the topic id of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request each topic once."""
        del view, timeout_ms
        return MetadataRequest(tuple(MetadataRequestTopic(name) for name in sorted({tp.topic for tp in keys})))

    def accept(self, keys: Collection[TopicPartition], response: MetadataResponse) -> Failures:
        """Set the result of each requested partition of a topic."""
        for topic in response.topics:
            for tp in [tp for tp in keys if tp.topic == topic.name]:
                if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                    self.set_absent(tp)
                else:
                    self.set_result(tp, topic.error_code, topic.topic_id)
        return self.unresolved(keys)


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
        self.changes = not validate_only
        super().__init__(f"creating topics {sorted(self._topics)}", self._topics, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"creating topic {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> CreateTopicsRequest:
        """Request those that are not created yet."""
        del view
        creatable = (self._creatable(self._topics[name]) for name in sorted(keys))
        return CreateTopicsRequest(tuple(creatable), timeout_ms, self._validate_only)

    @staticmethod
    def _creatable(topic: NewTopic) -> CreatableTopic:
        configs = tuple(CreatableConfig(name, value) for name, value in sorted(topic.configs.items()))
        return CreatableTopic(topic.name, topic.partitions, topic.replication_factor, (), configs)

    def accept(self, keys: Collection[str], response: CreateTopicsResponse) -> Failures:
        """Set the result of each topic.

        One that exists after an attempt without a response may have been created elsewhere.
        """
        for entry in response.topics:
            message = entry.error_message
            if entry.error_code == TOPIC_ALREADY_EXISTS and entry.name in self.maybe_done:
                message = "it is there; an earlier attempt of this call got no answer, and may have created it"
            self.set_result(entry.name, entry.error_code, entry.topic_id, message)
        return self.unresolved(keys)


class CreatePartitions(ControllerCall[str, None]):
    """Add partitions, by topic -> new total; ``validate_only`` as in :class:`CreateTopics`."""

    api = Api.CREATE_PARTITIONS
    needs = "Alter"
    final_codes = frozenset({UNKNOWN_TOPIC_OR_PARTITION})

    def __init__(
        self, totals: Mapping[str, int], deadline_ms: int, timeout_ms: int, *, validate_only: bool = False
    ) -> None:
        super().__init__(f"adding partitions to {sorted(totals)}", totals.keys(), deadline_ms, timeout_ms)
        self._totals = dict(totals)
        self._validate_only = validate_only
        self.changes = not validate_only

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"adding partitions to {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> CreatePartitionsRequest:
        """Request those that are not changed yet."""
        del view
        topics = tuple(CreatePartitionsTopic(name, self._totals[name]) for name in sorted(keys))
        return CreatePartitionsRequest(topics, timeout_ms, self._validate_only)

    def accept(self, keys: Collection[str], response: CreatePartitionsResponse) -> Failures:
        """Set the result of each topic."""
        for entry in response.results:
            self.set_result(entry.name, entry.error_code, None, entry.error_message)
        return self.unresolved(keys)


class DeleteTopics(ControllerCall[str, None]):
    """Delete topics by name; one that does not exist is an error (code 3)."""

    api = Api.DELETE_TOPICS
    needs = "Delete"
    final_codes = frozenset({UNKNOWN_TOPIC_OR_PARTITION})
    missing_code = UNKNOWN_TOPIC_OR_PARTITION

    def __init__(self, names: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"deleting topics {sorted(names)}", names, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"deleting topic {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DeleteTopicsRequest:
        """Request those that are not deleted yet."""
        del view
        return DeleteTopicsRequest(tuple(DeleteTopicState(name) for name in sorted(keys)), timeout_ms)

    def accept(self, keys: Collection[str], response: DeleteTopicsResponse) -> Failures:
        """Set the result of each topic."""
        for entry in response.responses:
            self.set_result(entry.name or "", entry.error_code, None, entry.error_message)
        return self.unresolved(keys)


class DeleteTopicsById(ControllerCall[uuid.UUID, None]):
    """Delete topics by id, whatever their names are now; one that does not exist is an error (code 100)."""

    api = Api.DELETE_TOPICS
    needs = "Delete"
    final_codes = frozenset({UNKNOWN_TOPIC_ID})
    missing_code = UNKNOWN_TOPIC_ID

    def __init__(self, ids: Collection[uuid.UUID], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("deleting topics", ids, deadline_ms, timeout_ms)

    def describe(self, key: uuid.UUID) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"deleting the topic with id {key}"

    def body(self, keys: Collection[uuid.UUID], view: ClusterView, timeout_ms: int) -> DeleteTopicsRequest:
        """Request those that are not deleted yet."""
        del view
        return DeleteTopicsRequest(tuple(DeleteTopicState(None, key) for key in sorted(keys)), timeout_ms)

    def accept(self, keys: Collection[uuid.UUID], response: DeleteTopicsResponse) -> Failures:
        """Set the result of each topic."""
        for entry in response.responses:
            if entry.topic_id is not None:
                self.set_result(entry.topic_id, entry.error_code, None, entry.error_message)
        return self.unresolved(keys)
