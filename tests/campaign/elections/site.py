"""Three brokers, a topic that is copied, and elections of replicas that lack acknowledged records of the copy."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror import client
from mirror.errors import KafkaError
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from tests.campaign.elections.election import CALL_S, UncleanElection
from tests.campaign.measurements.healthy_copy import whole
from tests.polling import eventually

PARTITIONS: Final = 3
FLOW: Final = "elections"
SOURCE, TARGET = "orders", "copy.orders"
PROPERTIES: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "1500",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "1",
}
_WRITERS_PAUSE_S: Final = 0.01


class ElectionSite:
    """The source is on broker 3, which stays; the copy is on the brokers 1 and 2."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Final = cluster
        self.address: Final = cluster.bootstrap_servers
        # Broker 3 answers at any time.
        self.steady: Final = self.address.split(",")[2]
        self.admin: Final = AdminClient({"bootstrap.servers": self.steady})
        self._election: Final = UncleanElection(cluster, TARGET, PARTITIONS, {1, 2}, self.steady)
        self.written: Final[list[list[bytes]]] = [[] for _ in range(PARTITIONS)]

    def create(self) -> None:
        """Create the topics. The copy is available with one replica, and any replica may be elected."""
        lossy = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        topics = [
            NewTopic(SOURCE, PARTITIONS, replica_assignment=[[3]] * PARTITIONS),
            NewTopic(TARGET, PARTITIONS, replica_assignment=[[1, 2]] * PARTITIONS, config=lossy),
            *(
                NewTopic(own, 1, 3, config={"cleanup.policy": "compact", "min.insync.replicas": "1"})
                for own in (topic_of(FLOW), offset_topic_of(FLOW))
            ),
        ]
        for future in self.admin.create_topics(topics).values():
            future.result(CALL_S)

    # --- writing and copying

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write numbered records to all partitions of the source."""
        stopping = threading.Event()

        def write() -> None:
            producer = Producer({"bootstrap.servers": self.steady, "linger.ms": 5, "enable.idempotence": True})
            while not stopping.wait(_WRITERS_PAUSE_S):
                for partition, values in enumerate(self.written):
                    values.append(b"%d-%d" % (partition, len(values)))
                    producer.produce(SOURCE, values[-1], partition=partition)
                producer.poll(0)
            assert producer.flush(CALL_S) == 0

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(2 * CALL_S)

    def copy(self, policy: CopyPolicy) -> list[RangeResult]:
        """Copy everything that the source has now."""
        tps = [client.TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
        ranges = whole(self.steady, tps, FLOW, TARGET)
        target = {"bootstrap.servers": self.address, "delivery.timeout.ms": 20_000, "request.timeout.ms": 5_000}
        return copy_ranges(
            ranges, source_options={"bootstrap.servers": self.steady}, target_options=target, policy=policy
        )

    # --- the election

    def elect_uncleanly(self, alone: int) -> list[int]:
        """Have the follower elected when the leader alone has ``alone`` offsets more; return how many each lost."""
        self._await_copied(alone)
        return self._election.elect(lambda: self._await_copied(alone))

    def _await_copied(self, count: int) -> None:
        before = self._election.high_watermarks()
        eventually(
            lambda: all(end >= old + count for end, old in zip(self._election.high_watermarks(), before, strict=True)),
            within_s=60,
            what="records that are acknowledged",
        )

    # --- verification

    def read_copy(self) -> list[list[bytes]]:
        """Return what a consumer of committed records finds in each partition of the copy."""
        return [self._read(partition) for partition in range(PARTITIONS)]

    def _read(self, partition: int) -> list[bytes]:
        options = {"bootstrap.servers": self.address, "group.id": "elections", "enable.auto.commit": False}
        consumer = Consumer({**options, "isolation.level": "read_committed", "enable.partition.eof": True})
        values: list[bytes] = []
        try:
            consumer.assign([TopicPartition(TARGET, partition, 0)])
            until = time.monotonic() + 60
            while time.monotonic() < until:
                message = consumer.poll(1)
                if message is None:
                    continue
                if message.error() is not None:
                    return values
                values.append(message.value() or b"")
        finally:
            consumer.close()
        msg = f"the copy's partition {partition} was not read to its end"
        raise AssertionError(msg)


def difference(wanted: list[bytes], found: list[bytes]) -> str:
    """Describe in one line what is wrong with ``found``; an empty text where nothing is."""
    if wanted == found:
        return ""
    lost, unknown = set(wanted) - set(found), set(found) - set(wanted)
    doubled = len(found) - len(set(found))
    place = next((n for n, (one, other) in enumerate(zip(wanted, found, strict=False)) if one != other), "the end")
    return (
        f"{len(found)} records, not {len(wanted)}: {len(lost)} lost, {doubled} doubled, {len(unknown)} unknown; they"
        f" differ from place {place} on"
    )


class Copies(threading.Thread):
    """Copies repeatedly, until :attr:`stopping` is set, or a copy has failed."""

    def __init__(self, site: ElectionSite, policy_of: Callable[[], CopyPolicy]) -> None:
        super().__init__(daemon=True)
        self.stopping: Final = threading.Event()
        self.results: Final[list[RangeResult]] = []
        self._site: Final = site
        self._policy_of: Final = policy_of
        self.start()

    @property
    def failed(self) -> bool:
        return any(result.outcome is Outcome.FAILED for result in self.results)

    def run(self) -> None:
        while not (self.stopping.is_set() or self.failed):
            with contextlib.suppress(KafkaError):  # the brokers are unavailable for a moment
                self.results.extend(self._site.copy(self._policy_of()))


def drawn_policy(rng: random.Random, by: str) -> CopyPolicy:
    """Return a policy with a drawn commit interval."""
    return CopyPolicy(exactly_once_by=by, commit_interval_ms=rng.choice([50, 300, 1_000]))
