"""Two clusters and copies between them; confluent-kafka, which shares no code with the copy, reads both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin import NewTopic as ConfluentTopic

from mirror.client import EARLIEST, LATEST, Admin, Consumer, TopicPartition
from mirror.consumer.fetched import without_aborted
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from mirror.wire.records import CODEC_MASK, HEADER_BYTES, Batch
from tests.e2e.broker_side import WITHIN_S, Side
from tests.polling import eventually

MAX_BYTES: Final = 12 * 1024 * 1024
"""``max.message.bytes`` of topics that take records of 10 MB."""
_END: Final = KafkaError._PARTITION_EOF
_MOST: Final = 10_000


class Seen(NamedTuple):
    """A record as confluent-kafka returns it; ``kind`` is its timestamp type (TIMESTAMP_CREATE_TIME, ...)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    kind: int
    time_ms: int


class Payload(NamedTuple):
    """The bytes behind a batch's header (``data``), and the header's fields that are needed to read them."""

    codec: int
    records: int
    data: bytes


class End(Side):
    """One of the two clusters."""

    def create_at(self, topic: str, replicas: Sequence[int], partitions: int = 1, **config: object) -> None:
        """Create partitions on these brokers, the leader first; ``config`` has underscores for dots."""
        own = {key.replace("_", "."): str(value) for key, value in config.items()}
        assignment = [list(replicas)] * partitions
        new = ConfluentTopic(topic, partitions, config={"retention.ms": "-1", **own}, replica_assignment=assignment)
        self.admin.create_topics([new])[topic].result(WITHIN_S)
        eventually(lambda: self.partitions(topic) == partitions, what=f"topic {topic}")

    def logs(self, topic: str, partitions: int) -> list[list[tuple[int, Seen]]]:
        """Return (offset, record) of all committed records of each partition."""
        options = {
            "bootstrap.servers": self.address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
        }
        found: list[list[tuple[int, Seen]]] = [[] for _ in range(partitions)]
        left = set(range(partitions))
        consumer = Confluent(options)
        try:
            consumer.assign([ConfluentPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
            until = time.monotonic() + WITHIN_S
            while left:
                assert time.monotonic() < until, f"{topic}: partitions {left} were not read to their end"
                messages: list[Any] = consumer.consume(_MOST, timeout=0.05)
                for message in messages:
                    error = message.error()
                    if error is not None and error.code() == _END:
                        left.discard(message.partition())
                        continue
                    assert error is None, error
                    found[message.partition()].append(_seen(message))
            return found
        finally:
            consumer.close()

    def seen(self, topic: str, partition: int = 0) -> list[tuple[int, Seen]]:
        """Return (offset, record) of all committed records."""
        return self.logs(topic, partition + 1)[partition]

    def records(self, topic: str, partition: int = 0) -> list[Seen]:
        """Return all committed records, in order."""
        return [record for _, record in self.seen(topic, partition)]

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return the log start offset and the last stable offset."""
        with Admin({"bootstrap.servers": self.address}) as admin:
            tp = TopicPartition(topic, partition)
            first = admin.list_offsets({tp: EARLIEST})[tp].offset
            return first, admin.list_offsets({tp: LATEST}, isolation="read_committed")[tp].offset

    def batches(self, topic: str, partition: int = 0) -> list[Batch]:
        """Return all batches with committed records, read with mirror.client: confluent-kafka has none."""
        tp = TopicPartition(topic, partition)
        start, end = self.ends(topic, partition)
        found = list[Batch]()
        options = {"bootstrap.servers": self.address, "isolation.level": "read_committed", "auto.offset.reset": "none"}
        with Consumer({**options, "fetch.max.wait.ms": 20}) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, start)

            def at_end() -> bool:
                for fetched in consumer.poll(timeout_ms=200):
                    assert fetched.error is None, fetched.error
                    for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
                        if isinstance(batch, Batch) and not (aborted or batch.is_control or not batch.count):
                            batch.verify()
                            found.append(Batch(memoryview(bytearray(batch.view))))
                return (consumer.position(tp) or 0) >= end

            eventually(at_end, within_s=WITHIN_S, what=f"the end of {tp}")
        return found

    def payloads(self, topic: str, partition: int = 0) -> list[Payload]:
        """Return the payloads of all :meth:`batches`."""
        return [payload_of(batch) for batch in self.batches(topic, partition)]

    def configure(self, topic: str, **config: object) -> None:
        """Change a topic's configuration, with underscores for dots, and wait until the brokers have it."""
        wanted = {key.replace("_", "."): str(value) for key, value in config.items()}
        change = ConfigResource(
            ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in wanted.items()
            ],
        )
        self.admin.incremental_alter_configs([change])[change].result(WITHIN_S)
        eventually(lambda: wanted.items() <= self.config(topic).items(), what=f"{wanted} of {topic}")

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before offset ``before``."""
        where = ConfluentPartition(topic, partition, before)
        self.admin.delete_records([where])[where].result(WITHIN_S)

    def leader(self, topic: str) -> int:
        """Return the leader of partition 0, -1 if there is none."""
        return int(self._describe(topic).leader)

    def in_sync(self, topic: str) -> set[int]:
        """Return the in-sync replicas of partition 0."""
        return set(self._describe(topic).isrs)

    def _describe(self, topic: str) -> Any:
        # A new client each time queries its bootstrap servers, not a broker that it has discovered and that is dead.
        admin = AdminClient({"bootstrap.servers": self.address})
        return admin.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions[0]

    def earliest(self, topic: str, partition: int = 0) -> int:
        """Return the log start offset."""
        return self.ends(topic, partition)[0]

    def await_stable(self, topic: str, partitions: int = 1) -> None:
        """Wait until no transaction is open: a coordinator answers a commit before its markers are in all logs."""
        self.await_markers(TopicPartition(topic, partition) for partition in range(partitions))

    def await_markers(self, tps: Iterable[TopicPartition]) -> None:
        """:meth:`await_stable` of the partitions ``tps``."""
        latest = dict.fromkeys(tps, LATEST)
        with Admin({"bootstrap.servers": self.address}) as admin:

            def stable() -> bool:
                last, stable = (
                    admin.list_offsets(latest, isolation=isolation)
                    for isolation in ("read_uncommitted", "read_committed")
                )
                return all(stable[tp].offset == last[tp].offset for tp in latest)

            eventually(stable, within_s=WITHIN_S, what=f"no transaction in {', '.join(map(str, latest))} is open")


class TwoClusters:
    """Copies between a source and a target cluster; ``name`` makes unique topic names."""

    def __init__(self, source: Cluster, target: Cluster, name: Callable[[str], str], flow: str = "equality") -> None:
        self.flow: Final = flow
        self.source: Final = End(source.bootstrap_servers)
        self.target: Final = End(target.bootstrap_servers)
        self._name: Final = name
        self._flow_topics = False
        with Admin({"bootstrap.servers": self.source.address}) as admin:
            self.cluster_id: Final = str(admin.describe_cluster().cluster_id)

    def topics(
        self,
        partitions: int = 1,
        *,
        source: Mapping[str, object] | None = None,
        target: Mapping[str, object] | None = None,
        both: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic of one name on both clusters; the configurations have underscores for dots."""
        topic = self._name("t")
        self.source.create(topic, partitions, **(both or {}), **(source or {}))
        self.target_topic(topic, partitions, **(both or {}), **(target or {}))
        return topic

    def target_topic(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Create a topic on the target, and the flow's own topics if they do not exist."""
        self.target.create(topic, partitions, **config)
        self.own_topics()

    def own_topics(self) -> None:
        """Create the flow's own topics on the target if they do not exist."""
        if not self._flow_topics:
            for own in {topic_of(self.flow), offset_topic_of(self.flow)} - self.target.topics():
                self.target.create(own, cleanup_policy="compact")
        self._flow_topics = True

    def ranges(self, topic: str, *, start: int | None = None, end: int | None = None) -> list[Range]:
        """Plan as the planner does: from the log start offset to the last stable offset."""
        with Admin({"bootstrap.servers": self.source.address}) as admin:
            description = admin.describe_topics([topic])[topic]
            tps = [TopicPartition(topic, number) for number in range(len(description.partitions))]
            first = admin.list_offsets(dict.fromkeys(tps, EARLIEST))
            last = admin.list_offsets(dict.fromkeys(tps, LATEST), isolation="read_committed")
        return [
            Range(
                flow=self.flow,
                topic=topic,
                target_topic=topic,
                partition=tp.partition,
                start=first[tp].offset if start is None else start,
                end=last[tp].offset if end is None else end,
                source_cluster_id=self.cluster_id,
                topic_id=str(description.topic_id or ""),
                source_epoch=last[tp].leader_epoch,
            )
            for tp in tps
        ]

    def copy(
        self,
        topic: str | Sequence[Range],
        *,
        reading: Mapping[str, object] | None = None,
        writing: Mapping[str, object] | None = None,
        **policy: Any,
    ) -> list[RangeResult]:
        """Copy with a CopyPolicy of ``policy``; ``reading`` and ``writing`` are dotted keys of the clients.

        What is complete can be read by ``read_committed`` at once: this waits for the markers of its transactions.
        """
        results = copy_ranges(
            self.ranges(topic) if isinstance(topic, str) else topic,
            source_options={"bootstrap.servers": self.source.address, **(reading or {})},
            target_options={"bootstrap.servers": self.target.address, **(writing or {})},
            policy=CopyPolicy(**policy),
        )
        complete = [result for result in results if result.outcome is Outcome.COMPLETE]
        self.target.await_markers(TopicPartition(done.target_topic, done.partition) for done in complete)
        return results

    def complete(self, topic: str | Sequence[Range], **options: Any) -> list[RangeResult]:
        """:meth:`copy`, which must be complete."""
        results = self.copy(topic, **options)
        for result in results:
            assert result.outcome is Outcome.COMPLETE, result
        return results

    def equal(self, topic: str, partitions: int = 1) -> None:
        """Assert that both clusters have the same committed records, in order."""
        for partition, (theirs, ours) in enumerate(self.both(topic, partitions)):
            same(ours, theirs, f"partition {partition}")

    def both(self, topic: str, partitions: int = 1) -> list[tuple[list[Seen], list[Seen]]]:
        """Return the source's and the target's records of each partition."""
        logs = (side.logs(topic, partitions) for side in (self.source, self.target))
        return [
            ([record for _, record in theirs], [record for _, record in ours])
            for theirs, ours in zip(*logs, strict=True)
        ]


def payload_of(batch: Batch) -> Payload:
    """Copy the payload out of ``batch``."""
    return Payload(batch.attributes & CODEC_MASK, batch.count, bytes(batch.view[HEADER_BYTES:]))


def same(found: Sequence[Seen], expected: Sequence[Seen], subject: str) -> None:
    """Assert that two lists are equal; report only the first difference, since they may be large."""
    for number, (record, wanted) in enumerate(zip(found, expected, strict=False)):
        assert record == wanted, f"{subject}, record {number}: {str(record)[:400]} instead of {str(wanted)[:400]}"
    assert len(found) == len(expected), subject


def _seen(message: Any) -> tuple[int, Seen]:
    kind, time_ms = message.timestamp()
    if (
        kind == TIMESTAMP_NOT_AVAILABLE
    ):  # it returns 0 for the oldest format, which has no timestamps, and -1 for a timestamp of -1
        kind, time_ms = TIMESTAMP_CREATE_TIME, -1
    return message.offset(), Seen(message.key(), message.value(), tuple(message.headers() or ()), kind, time_ms)
