"""Two clusters and a copy between them; both sides are read by confluent-kafka, which shares no code with the copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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
from mirror.relay.progress.progress_topic import topic_of
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
    """A record as confluent-kafka shows it; ``kind`` is who set its time (TIMESTAMP_CREATE_TIME, ...)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    kind: int
    time_ms: int


class Payload(NamedTuple):
    """What is behind a batch's header (``data``), and what the header says about how to read it."""

    codec: int
    records: int
    data: bytes


class End(Side):
    """One cluster."""

    def create_at(self, topic: str, replicas: Sequence[int], **config: object) -> None:
        """One partition, at these brokers, the leader first; ``config`` with underscores for dots."""
        own = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = ConfluentTopic(topic, 1, config={"retention.ms": "-1", **own}, replica_assignment=[list(replicas)])
        self.admin.create_topics([new])[topic].result(WITHIN_S)
        eventually(lambda: self.partitions(topic) == 1, what=f"topic {topic}")

    def logs(self, topic: str, partitions: int) -> list[list[tuple[int, Seen]]]:
        """(offset, record) of all that is committed, for each partition."""
        options = {
            "bootstrap.servers": self.address,
            "group.id": "judge",
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
                assert time.monotonic() < until, f"{topic}: the end of partitions {left} does not come"
                messages: list[Any] = consumer.consume(_MOST, timeout=0.05)
                for message in messages:
                    error = message.error()
                    if error is not None and error.code() == _END:
                        left.discard(message.partition())
                        continue
                    assert error is None, error
                    found[message.partition()].append(_shown(message))
            return found
        finally:
            consumer.close()

    def seen(self, topic: str, partition: int = 0) -> list[tuple[int, Seen]]:
        """(offset, record) of all that is committed."""
        return self.logs(topic, partition + 1)[partition]

    def records(self, topic: str, partition: int = 0) -> list[Seen]:
        """All that is committed, in order."""
        return [record for _, record in self.seen(topic, partition)]

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The log's first offset and its last stable one."""
        with Admin({"bootstrap.servers": self.address}) as admin:
            tp = TopicPartition(topic, partition)
            first = admin.list_offsets({tp: EARLIEST})[tp].offset
            return first, admin.list_offsets({tp: LATEST}, isolation="read_committed")[tp].offset

    def batches(self, topic: str, partition: int = 0) -> list[Batch]:
        """All batches with committed records, by our consumer: confluent-kafka does not show any."""
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
        """What is behind the header of each of :meth:`batches`."""
        return [payload_of(batch) for batch in self.batches(topic, partition)]

    def configure(self, topic: str, **config: object) -> None:
        """Change a topic's configuration, with underscores for dots; it holds at the brokers afterwards."""
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
        """The log begins at offset ``before`` afterwards."""
        where = ConfluentPartition(topic, partition, before)
        self.admin.delete_records([where])[where].result(WITHIN_S)

    def leader(self, topic: str) -> int:
        """Of partition 0, as the cluster says; -1 where there is none."""
        return int(self._told(topic).leader)

    def in_sync(self, topic: str) -> set[int]:
        """The replicas of partition 0 that are in sync."""
        return set(self._told(topic).isrs)

    def _told(self, topic: str) -> Any:
        # By a new client each time: it asks the brokers that it was given, not one that it learned of and that is dead.
        admin = AdminClient({"bootstrap.servers": self.address})
        return admin.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions[0]

    def earliest(self, topic: str, partition: int = 0) -> int:
        """The log's first offset."""
        return self.ends(topic, partition)[0]

    def await_stable(self, topic: str, partitions: int = 1) -> None:
        """Nothing is open: a coordinator answers a commit before its markers are in all logs."""

        def stable() -> bool:
            return all(self.ends(topic, partition)[1] == self.end(topic, partition) for partition in range(partitions))

        eventually(stable, within_s=WITHIN_S, what=f"no transaction in {topic} is open")


class TwoClusters:
    """``name`` gives topics names that nobody else has."""

    flow: Final = "equality"

    def __init__(self, source: Cluster, target: Cluster, name: Callable[[str], str]) -> None:
        self.source: Final = End(source.bootstrap_servers)
        self.target: Final = End(target.bootstrap_servers)
        self._name: Final = name
        self._progress_topic = False
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
        """A topic on both sides, of one name; its configurations with underscores for dots."""
        topic = self._name("t")
        self.source.create(topic, partitions, **(both or {}), **(source or {}))
        self.target_topic(topic, partitions, **(both or {}), **(target or {}))
        return topic

    def target_topic(self, topic: str, partitions: int = 1, **config: object) -> None:
        """A topic on the target, and there must be one for the flow's notes."""
        self.target.create(topic, partitions, **config)
        if not self._progress_topic and topic_of(self.flow) not in self.target.topics():
            self.target.create(topic_of(self.flow), cleanup_policy="compact")
        self._progress_topic = True

    def ranges(self, topic: str, *, start: int | None = None, end: int | None = None) -> list[Range]:
        """A plan as the planner would make it: from the log's first offset to its last stable one."""
        with Admin({"bootstrap.servers": self.source.address}) as admin:
            about = admin.describe_topics([topic])[topic]
            tps = [TopicPartition(topic, number) for number in range(len(about.partitions))]
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
                topic_id=str(about.topic_id),
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
        """``policy`` is a CopyPolicy's; ``reading`` and ``writing`` are dotted keys."""
        return copy_ranges(
            self.ranges(topic) if isinstance(topic, str) else topic,
            source_options={"bootstrap.servers": self.source.address, **(reading or {})},
            target_options={"bootstrap.servers": self.target.address, **(writing or {})},
            policy=CopyPolicy(**policy),
        )

    def complete(self, topic: str | Sequence[Range], **options: Any) -> list[RangeResult]:
        """:meth:`copy`, and all of it."""
        results = self.copy(topic, **options)
        for result in results:
            assert result.outcome is Outcome.COMPLETE, result
        return results

    def equal(self, topic: str, partitions: int = 1) -> None:
        """Both sides have the same committed records, in order."""
        for partition, (theirs, ours) in enumerate(self.both(topic, partitions)):
            same(ours, theirs, f"partition {partition}")

    def both(self, topic: str, partitions: int = 1) -> list[tuple[list[Seen], list[Seen]]]:
        """The source's and the target's records of each partition."""
        logs = (side.logs(topic, partitions) for side in (self.source, self.target))
        return [([one for _, one in theirs], [one for _, one in ours]) for theirs, ours in zip(*logs, strict=True)]


def payload_of(batch: Batch) -> Payload:
    """Copied out of it."""
    return Payload(batch.attributes & CODEC_MASK, batch.count, bytes(batch.view[HEADER_BYTES:]))


def same(found: Sequence[Seen], expected: Sequence[Seen], what: str) -> None:
    """Says where two lists part, which may be long and of large records."""
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one == other, f"{what}, record {number}: {str(one)[:400]} instead of {str(other)[:400]}"
    assert len(found) == len(expected), what


def _shown(message: Any) -> tuple[int, Seen]:
    kind, time_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:  # it shows 0 for the oldest format, which has no times, and -1 for a time of -1
        kind, time_ms = TIMESTAMP_CREATE_TIME, -1
    return message.offset(), Seen(message.key(), message.value(), tuple(message.headers() or ()), kind, time_ms)
