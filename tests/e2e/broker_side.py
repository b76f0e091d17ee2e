"""The brokers' side of a test, by confluent-kafka, which shares no code with what is tested."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import mirror.client
from mirror.relay.progress.committed import group_of, lazy_group_of
from tests.polling import eventually

WITHIN_S: Final = 60.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS: Final = 1_760_000_000_000
"""Timestamps begin here: fixed and past, so that a copied one differs from one made by the copy."""
_NOT_THERE_YET: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
"""What a broker says of a topic that the controller has just created."""


class Side:
    """One cluster, as a test fills, changes and reads it."""

    def __init__(self, address: str) -> None:
        self.address: Final = address
        self.admin: Final = AdminClient({"bootstrap.servers": address})

    def create(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Create a topic that keeps its (old) records; ``config`` with underscores for dots."""
        own = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1", **own})
        self.admin.create_topics([new])[topic].result(WITHIN_S)
        eventually(lambda: self.partitions(topic) == partitions, what=f"topic {topic}")

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WITHIN_S)
        eventually(lambda: self.partitions(topic) == partitions, what=f"{partitions} partitions of {topic}")

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WITHIN_S)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=WITHIN_S).topics)

    def partitions(self, topic: str) -> int:
        found = self.admin.list_topics(timeout=WITHIN_S).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def config(self, topic: str) -> dict[str, str | None]:
        """A topic's configuration, defaults included."""
        (answer,) = self.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        return {entry.name: entry.value for entry in answer.result(WITHIN_S).values()}

    def producer(self, **options: object) -> Producer:
        given = {key.replace("_", "."): value for key, value in options.items()}
        # Without idempotence the first records of a new topic may be retried behind later ones.
        return Producer({"bootstrap.servers": self.address, "linger.ms": 20, "enable.idempotence": True, **given})

    def fill(
        self, topic: str, values: Iterable[bytes], partition: int = 0, *, first_ms: int = FIRST_MS, **options: object
    ) -> None:
        """Produce ``values`` into one partition, in order, with keys and times (a millisecond apart)."""
        producer, failures = self.producer(**options), list[str]()
        note = failed_into(failures)
        for number, value in enumerate(values):
            key, time = b"k%d" % (number % 7), first_ms + number
            while True:
                try:
                    producer.produce(topic, value, key, partition, timestamp=time, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(WITHIN_S) == 0
        assert not failures, failures[0]

    def read(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """All values of a partition at read_committed, in order; waits for the end of open transactions.

        A coordinator answers a commit before its markers are in all logs, and this consumer's own end is the last
        stable offset.
        """
        low, high = self._ends(topic, partition, "read_uncommitted")
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, partition, low)])
            values, position = list[bytes | None](), low
            until_s = time.monotonic() + WITHIN_S
            while position < high:
                assert time.monotonic() < until_s, f"{topic}-{partition} is at {position} instead of {high}"
                messages = consumer.consume(5000, timeout=0.2)
                for message in messages:
                    assert message.error() is None, message.error()
                    values.append(message.value())
                position = max(position, consumer.position([TopicPartition(topic, partition)])[0].offset)
            return values
        finally:
            consumer.close()

    def end(self, topic: str, partition: int = 0) -> int:
        """The last stable offset; 0 while the partition is not there."""
        if self.partitions(topic) <= partition:
            return 0
        ends: list[int] = []

        def knows() -> bool:
            try:
                ends.append(self._ends(topic, partition, "read_committed")[1])
            except KafkaException as error:
                if error.args[0].code() not in _NOT_THERE_YET:
                    raise
            return bool(ends)

        eventually(knows, what="an answer of the leader")
        return ends[0]

    def _ends(self, topic: str, partition: int, isolation: str) -> tuple[int, int]:
        """The log start offset, and the last stable offset or the high watermark."""
        consumer = self._consumer(isolation=isolation)
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WITHIN_S)
            return int(low), int(high)
        finally:
            consumer.close()

    def _consumer(self, group: str | None = None, isolation: str = "read_committed") -> Consumer:
        options = {"group.id": group or f"test-{uuid.uuid4().hex}", "enable.auto.commit": False, "check.crcs": True}
        return Consumer({"bootstrap.servers": self.address, "isolation.level": isolation, **options})

    def progress(self, flow: str, topic: str, partition: int = 0) -> int:
        """The flow's progress that is kept here for the target's partition; 0 where there is none."""
        tp = mirror.client.TopicPartition(topic, partition)
        return max(self._committed(group(flow, tp), tp) for group in (group_of, lazy_group_of))

    def _committed(self, group: str, tp: mirror.client.TopicPartition) -> int:
        consumer = self._consumer(group)
        try:
            # Not list_consumer_group_offsets: that one crashes where the cluster has no coordinators yet.
            found = list[int]()

            def asked() -> bool:
                try:
                    found.extend(each.offset for each in consumer.committed([TopicPartition(*tp)], WITHIN_S))
                except KafkaException as error:
                    # The coordinators of a new cluster are still coming up.
                    if error.args[0].code() not in {
                        KafkaError.NOT_COORDINATOR,
                        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                    }:
                        raise
                return bool(found)

            eventually(asked, within_s=WITHIN_S, what="a coordinator")
            return max(0, found[0])
        finally:
            consumer.close()

    def acl(self, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> None:
        """Add an ACL for everyone without a login."""
        pattern = ResourcePatternType.LITERAL
        binding = AclBinding(kind, name, pattern, "User:ANONYMOUS", "*", operation, permission)
        self.admin.create_acls([binding])[binding].result(WITHIN_S)

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Allow all of ``name`` but one operation: an ACL alone would forbid all others."""
        self.acl(kind, name, AclOperation.ALL, AclPermissionType.ALLOW)
        self.acl(kind, name, operation, AclPermissionType.DENY)


def failed_into(failures: list[str]) -> Callable[[Any, Any], None]:
    """A delivery callback that notes failures."""

    def note(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    return note
