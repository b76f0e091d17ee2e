"""Healthy partitions with three sick ones among them, on three brokers that are source and target at once.

Broker 1 has all that must be well: the source, the healthy targets, the coordinators of groups and of nearly all
transactions. Broker 2 is taken down, so that its partition has no leader; broker 3 is stopped (SIGSTOP), so that it
accepts and never answers. Nothing is replicated. For as long as its session the cluster takes a stopped broker for
alive, and lets one that was taken down not come back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka.admin import NewTopic as ConfluentTopic

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import HEAP, Cluster
from tests.campaign.measurements.healthy_copy import whole
from tests.conformance.topics import Topics
from tests.e2e.broker_side import Side
from tests.polling import eventually

HEALTHY: Final = 20
LEADERLESS: Final = 20
SILENT: Final = 21
UNCOORDINATED: Final = 22
"""Its transaction coordinator is at the stopped broker; its leader is healthy."""
SICK: Final = (LEADERLESS, SILENT, UNCOORDINATED)
GOOD_BROKER: Final = 1
DOWN_BROKER: Final = 2
STOPPED_BROKER: Final = 3

_COORDINATORS: Final = 48
"""Of transactions. Ids that differ in their last digit go to neighbouring ones, so that few would not keep them apart.
"""
_ON_STOPPED: Final = _COORDINATORS - 1
_GROUP_COORDINATORS: Final = 6
_PROPERTIES: Final = {
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": str(_COORDINATORS),
    "transaction.state.log.min.isr": "1",
    "log.segment.bytes": str(64 << 20),
}
_VALUE: Final = 10_000


class SickPartitions:
    """A running cluster with a source partition for each healthy and each sick target."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Final = cluster
        self.good: Final = cluster.bootstrap_servers.split(",")[GOOD_BROKER - 1]
        self.side: Final = Side(self.good)
        self._topics: Final = Topics(self.good, lambda name: f"{name}-{uuid.uuid4().hex[:8]}")
        self._make_coordinators()
        self.source: Final = self._topics.create(assignment=[[GOOD_BROKER]] * (HEALTHY + len(SICK)))

    def _make_coordinators(self) -> None:
        """Create the coordinators' topics before the brokers do, at any place."""
        self._create("__consumer_offsets", [[GOOD_BROKER]] * _GROUP_COORDINATORS)
        self._create("__transaction_state", [[GOOD_BROKER]] * _ON_STOPPED + [[STOPPED_BROKER]])

    def _create(self, name: str, brokers: list[list[int]]) -> None:
        topic = ConfluentTopic(name, len(brokers), replica_assignment=brokers, config={"cleanup.policy": "compact"})
        self.side.admin.create_topics([topic])[name].result(timeout=20)

    def fill(self, healthy_bytes: int, sick_records: int) -> None:
        """The source: ``healthy_bytes`` over the healthy partitions, in batches of about 60 KB."""
        failures: list[str] = []
        producer = self.side.producer(batch_size=64_000, queue_buffering_max_messages=20_000)
        padding = os.urandom(_VALUE)
        counts = [healthy_bytes // HEALTHY // _VALUE] * HEALTHY + [sick_records] * len(SICK)
        for number in range(max(counts)):
            for tp, count in zip(self.source, counts, strict=True):
                if number >= count:
                    continue
                value = b"%d of %d:" % (number, tp.partition) + padding
                while True:
                    try:
                        producer.produce(
                            tp.topic,
                            value,
                            partition=tp.partition,
                            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
                        )
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures, failures[0]

    def target(self) -> list[Range]:
        """Create a target topic for a new flow, and return the ranges of the healthy, then of the sick partitions."""
        leaders = [[GOOD_BROKER]] * HEALTHY + [[DOWN_BROKER], [STOPPED_BROKER], [GOOD_BROKER]]
        topic = self._topics.create(assignment=leaders)[0].topic
        flow = _flow_for(topic)
        for own in (topic_of(flow), offset_topic_of(flow)):
            self._create(own, [[GOOD_BROKER]])
        return whole(self.good, self.source, flow, topic)

    def copy(
        self, ranges: Sequence[Range], policy: CopyPolicy, target: str | None = None, **options: object
    ) -> list[RangeResult]:
        """With ``options`` of the producer, dots as underscores, by the address ``target``."""
        own = {key.replace("_", "."): value for key, value in options.items()}
        return copy_ranges(
            ranges,
            source_options={"bootstrap.servers": self.good},
            target_options={"bootstrap.servers": target or self.good, **own},
            policy=policy,
        )

    # --- faults

    def inject(self) -> None:
        """Shut broker 2 down, so that its partitions have no leader immediately, and stop broker 3."""
        os.kill(self.cluster.pids[DOWN_BROKER], signal.SIGTERM)
        eventually(lambda: DOWN_BROKER not in self.cluster.pids, within_s=60, what="the end of broker 2")
        self.cluster.pause(STOPPED_BROKER)

    def heal(self) -> None:
        """Wait until both brokers are back and answer."""
        with contextlib.suppress(Exception):
            self.cluster.resume(STOPPED_BROKER)
        if DOWN_BROKER not in self.cluster.pids:
            self.cluster.restart(DOWN_BROKER)

    # --- contents

    def read(self, topic: str, partition: int) -> list[bytes]:
        """Return the beginnings of a partition's values (its records' numbers), at read_committed."""
        return [(value or b"").partition(b":")[0] for value in self.side.read(topic, partition)]

    def missing(self, one: Range, *, exactly_once: bool) -> list[str]:
        """Describe what is wrong with a copy, by an independent client; at least once, duplicates are allowed."""
        wanted = self.read(one.topic, one.partition)
        found = self.read(one.target_topic, one.partition)
        if not exactly_once:
            found = list(dict.fromkeys(found))
        return [] if found == wanted else [f"{one.target_topic}-{one.partition}: {len(found)} of {len(wanted)} records"]


def _flow_for(topic: str) -> str:
    """A flow's name by which only the transactions of UNCOORDINATED are coordinated by the stopped broker."""
    name = uuid.uuid4().hex[:4]
    for number in range(1_000):
        flow = f"sick-{name}-{number}"
        on_stopped = {
            partition
            for partition in range(HEALTHY + len(SICK))
            if coordinator_of(transactional_id(flow, TopicPartition(topic, partition))) == _ON_STOPPED
        }
        if on_stopped == {UNCOORDINATED}:
            return flow
    raise AssertionError(f"no flow's name keeps the coordinators of {topic} apart")


def coordinator_of(text: str) -> int:
    """The partition of __transaction_state (or __consumer_offsets): Java's hashCode of the id or group."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return abs(signed) % _COORDINATORS


@contextlib.contextmanager
def sick_partitions(session_s: int, heap: tuple[str, ...] = HEAP) -> Iterator[SickPartitions]:
    """Start everything and stop it in any case. The faults may last ``session_s`` seconds."""
    properties = {**_PROPERTIES, "broker.session.timeout.ms": str(session_s * 1000)}
    with Cluster(3, properties=properties, heap=heap) as cluster:
        yield SickPartitions(cluster)
