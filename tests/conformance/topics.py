"""Topics for the tests, made and filled by another client than ours."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic

from mirror.client import Consumer, TopicPartition


class Topics:
    """At the brokers of ``servers``."""

    def __init__(self, servers: str, unique: Callable[[str], str]) -> None:
        self.servers = servers
        self.unique = unique
        self._admin = AdminClient({"bootstrap.servers": servers})

    def create(
        self,
        partitions: int = 1,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> list[TopicPartition]:
        """A new topic's partitions; ``assignment`` names the replicas of each, the leader first."""
        return self.create_named(self.unique("orders"), partitions, assignment=assignment, config=config)

    def create_named(
        self,
        name: str,
        partitions: int = 1,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> list[TopicPartition]:
        """The same under a name that was chosen before."""
        where: dict[str, Any] = {"replication_factor": 1}
        if assignment is not None:
            partitions, where = len(assignment), {"replica_assignment": [list(replicas) for replicas in assignment]}
        topic = ConfluentTopic(name, partitions, config=dict(config or {}), **where)
        self._admin.create_topics([topic])[name].result(timeout=60)
        self._await_leaders(name, partitions)
        return [TopicPartition(name, partition) for partition in range(partitions)]

    def fill(self, tp: TopicPartition, count: int, *, first: int = 0, **options: object) -> None:
        """Write the records b"<first>", b"<first + 1>", ... ``options`` are librdkafka's, with _ for a dot."""
        failures: list[object] = []
        keys = {name.replace("_", "."): value for name, value in options.items()}
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0, "delivery.timeout.ms": 60_000, **keys})
        for number in range(first, first + count):
            producer.produce(
                tp.topic,
                str(number).encode(),
                partition=tp.partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(65) == 0
        assert failures == []

    def leader(self, tp: TopicPartition) -> int:
        """As the cluster says; -1 where there is none."""
        return int(self._metadata_of(tp).leader)

    def in_sync(self, tp: TopicPartition) -> list[int]:
        """The replicas in sync."""
        return sorted(self._metadata_of(tp).isrs)

    def _metadata_of(self, tp: TopicPartition) -> Any:
        # A new client each time: it asks the brokers it was given, and none that it learned of and that stands still.
        admin = AdminClient({"bootstrap.servers": self.servers})
        return admin.list_topics(tp.topic, timeout=30).topics[tp.topic].partitions[tp.partition]

    def move_leader(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        """Make the first of ``replicas`` (the present ones, in another order) the leader, without a failure."""
        with warnings.catch_warnings():  # it reads its own files by a function that Python is giving up
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            admin.alter_partition_reassignments({tp: list(replicas)})
        finally:
            admin.close()
        elected = self._admin.elect_leaders(ElectionType.PREFERRED, [ConfluentPartition(tp.topic, tp.partition)])
        elected.result(timeout=60)

    def _await_leaders(self, name: str, count: int) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(KafkaException):
                result = self._admin.list_topics(name, timeout=30).topics[name]
                if len(result.partitions) == count and all(p.leader >= 0 for p in result.partitions.values()):
                    return
            time.sleep(0.02)
        raise AssertionError(f"{name} has no leaders after 60 s")


def read(consumer: Consumer, count: int, *, within_s: float = 60.0, step_ms: int = 500) -> list[tuple[int, bytes]]:
    """(offset, value) of the next ``count`` records, or of as many as came in time."""
    found: list[tuple[int, bytes]] = []
    until = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < until:
        for fetched in consumer.poll(timeout_ms=step_ms):
            found += [(record.offset, bytes(record.value or b"")) for record in fetched.records()]
    return found
