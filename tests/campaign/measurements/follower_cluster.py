"""A source, and three brokers as the target. The third one leads nothing and follows the sick partitions.

Healthy and sick partitions share their leaders, brokers 1 and 2; the sick ones alone have a third replica, at broker 3,
which is stopped (SIGSTOP). It stays among the replicas in sync for ``replica.lag.time.max.ms``, or up to half as much
again; its session lasts longer, so that nothing else takes it out of them.

Coordinators keep their own logs, and write markers into those of the partitions. Which of that has to do with broker 3
is chosen by a flow's name: from it follow the transactional ids and groups, and from these their coordinators.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import uuid
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import group_of
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import HEAP, Cluster
from tests.campaign.measurements.healthy_copy import Pair, whole
from tests.campaign.measurements.sick_partitions import coordinator_of
from tests.e2e.broker_side import Side
from tests.polling import eventually

HEALTHY: Final = 8
SICK: Final = 2
STOPPED: Final = 3
WELL: Final = ((1, 2), (2, 1))
"""Replicas; the first is the leader."""
FOLLOWED: Final = ((1, 2, STOPPED), (2, 1, STOPPED))

_COUNT: Final = 48
"""Partitions of both coordinators' topics; :func:`coordinator_of` counts with as many."""
_LED_BY_1, _LED_BY_2, _TRANSACTIONS_FOLLOWED = range(30), range(30, 34), range(34, _COUNT)
_GROUPS_WELL, _GROUPS_FOLLOWED = range(24), range(24, _COUNT)


class Coordinators(enum.StrEnum):
    """How the coordinators of a flow depend on the sick partitions and on the stopped broker."""

    APART = "apart"
    """Those of the sick partitions' transactions are at another broker; none has a replica at the stopped one."""
    SHARED = "shared"
    """One broker coordinates all transactions; none has a replica at the stopped one."""
    FOLLOWED = "followed"
    """All their own logs have a replica at the stopped broker."""


_PLACES: Final = {
    # Of the transactions of the healthy, of the sick, and of all groups.
    Coordinators.APART: (_LED_BY_1, _LED_BY_2, _GROUPS_WELL),
    Coordinators.SHARED: (_LED_BY_1, _LED_BY_1, _GROUPS_WELL),
    Coordinators.FOLLOWED: (_TRANSACTIONS_FOLLOWED, _TRANSACTIONS_FOLLOWED, _GROUPS_FOLLOWED),
}


class FollowerCluster:
    """The running target ``cluster``, and a source of ``HEALTHY + SICK`` partitions at ``source_address``."""

    def __init__(self, cluster: Cluster, source_address: str) -> None:
        self.cluster: Final = cluster
        self.servers: Final = ",".join(cluster.bootstrap_servers.split(",")[: STOPPED - 1])
        self.side: Final = Side(self.servers)
        self._source: Final = Pair(source_address)
        self.source: Final = self._source.source(HEALTHY + SICK)
        self._stopped = False
        led_by_2 = [WELL[number in _LED_BY_2] for number in range(_TRANSACTIONS_FOLLOWED.start)]
        self._create("__transaction_state", [*led_by_2, *(FOLLOWED[0] for _ in _TRANSACTIONS_FOLLOWED)], compact=True)
        groups = [WELL[0] for _ in _GROUPS_WELL] + [FOLLOWED[0] for _ in _GROUPS_FOLLOWED]
        self._create("__consumer_offsets", groups, compact=True)

    def _create(
        self, name: str, assignment: Sequence[Sequence[int]], *, min_in_sync: int = 2, compact: bool = False
    ) -> None:
        config = {"min.insync.replicas": str(min_in_sync), **({"cleanup.policy": "compact"} if compact else {})}
        # A topic is made with as many replicas for each partition; those that are to have more get them afterwards.
        first = [list(replicas[:2]) for replicas in assignment]
        topic = ConfluentTopic(name, len(first), replica_assignment=first, config={"retention.ms": "-1", **config})
        self.side.admin.create_topics([topic])[name].result(timeout=20)
        wanted = {number: list(replicas) for number, replicas in enumerate(assignment)}
        more = {TopicPartition(name, number): each for number, each in wanted.items() if each != first[number]}
        if more:
            self._reassign(more)
        eventually(lambda: self._stand(name, wanted), within_s=60, what=f"all replicas of {name}")

    def _reassign(self, replicas: dict[TopicPartition, list[int]]) -> None:
        with warnings.catch_warnings():  # It reads its own files by a deprecated function of Python.
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            admin.alter_partition_reassignments(replicas)
        finally:
            admin.close()

    def _stand(self, name: str, wanted: dict[int, list[int]]) -> bool:
        """Return whether all partitions have the wanted leaders and replicas, by one broker's metadata."""
        found = self._partitions(name)
        return wanted == {
            number: one.replicas
            for number, one in found.items()
            if one.leader == one.replicas[0] and sorted(one.isrs) == sorted(one.replicas)
        }

    def _partitions(self, name: str) -> dict[int, Any]:
        # A new client for each call uses the addresses that it was given, and not those of a stopped broker.
        topics = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(name, timeout=10).topics
        return dict(topics[name].partitions)

    def fill(self, healthy_bytes: int, sick_bytes: int) -> None:
        """Fill the source with these amounts, spread over the healthy and the sick partitions."""
        self._source.fill(self.source[:HEALTHY], healthy_bytes // HEALTHY, batch_size=64_000)
        self._source.fill(self.source[HEALTHY:], sick_bytes // SICK, batch_size=64_000)

    def target(self, coordinators: Coordinators, min_in_sync: int) -> list[Range]:
        """Create a target topic for a new flow, and return the ranges of the healthy, then of the sick partitions."""
        topic = f"copy-{uuid.uuid4().hex[:8]}"
        places = [WELL[number % 2] for number in range(HEALTHY)] + [FOLLOWED[number % 2] for number in range(SICK)]
        # Brokers limit min.insync.replicas to the number of replicas.
        self._create(topic, places, min_in_sync=min_in_sync)
        flow = _flow_for(topic, coordinators)
        notes = FOLLOWED if coordinators is Coordinators.FOLLOWED else WELL
        for own in (topic_of(flow), offset_topic_of(flow)):
            self._create(own, notes[:1], compact=True)
        return whole(self._source.side.address, self.source, flow, topic)

    def copy(self, ranges: Sequence[Range], policy: CopyPolicy, **options: object) -> list[RangeResult]:
        """Copy with ``options`` of the producer, with underscores for dots."""
        own = {key.replace("_", "."): value for key, value in options.items()}
        return copy_ranges(
            ranges,
            source_options={"bootstrap.servers": self._source.side.address},
            target_options={"bootstrap.servers": self.servers, **own},
            policy=policy,
        )

    # --- faults

    def stop_follower(self) -> None:
        """Stop broker 3 until :meth:`heal`."""
        self._stopped = True
        self.cluster.pause(STOPPED)

    def heal(self, *topics: str) -> None:
        """Resume broker 3 and wait until it is in sync for ``topics`` and for the coordinators' topics."""
        if self._stopped:
            self.cluster.resume(STOPPED)
            self._stopped = False
        for name in (*topics, "__transaction_state", "__consumer_offsets"):
            eventually(lambda name=name: self._in_sync(name), within_s=60, what=f"{name} in sync")  # type: ignore[misc]

    def _in_sync(self, name: str) -> bool:
        return all(sorted(one.isrs) == sorted(one.replicas) for one in self._partitions(name).values())

    def in_sync(self, topic: str) -> set[int]:
        """Return the brokers that are in the ISR of all sick partitions."""
        found = self._partitions(topic)
        return set.intersection(*(set(found[HEALTHY + number].isrs) for number in range(SICK)))

    # --- contents

    def missing(self, one: Range, *, exactly_once: bool) -> list[str]:
        """Describe what is wrong with a copy, by an independent client; at least once, duplicates are allowed."""
        wanted = _numbers(self._source.side, one.topic, one.partition)
        found = _numbers(self.side, one.target_topic, one.partition)
        if not exactly_once:
            found = list(dict.fromkeys(found))
        return [] if found == wanted else [f"{one.target_topic}-{one.partition}: {len(found)} of {len(wanted)} records"]


def _numbers(side: Side, topic: str, partition: int) -> list[bytes]:
    """Return the beginnings of a partition's values (its records' numbers), at read_committed."""
    return [(value or b"").partition(b":")[0] for value in side.read(topic, partition)]


def _flow_for(topic: str, coordinators: Coordinators) -> str:
    """Return a name for a flow whose coordinators are at the wanted brokers."""
    of_healthy, of_sick, of_groups = _PLACES[coordinators]
    tps = [TopicPartition(topic, partition) for partition in range(HEALTHY + SICK)]
    name = uuid.uuid4().hex[:4]
    for number in itertools.count():
        flow = f"follower-{name}-{number}"
        places = [coordinator_of(transactional_id(flow, tp)) for tp in tps]
        if (
            all(place in of_healthy for place in places[:HEALTHY])
            and all(place in of_sick for place in places[HEALTHY:])
            and all(coordinator_of(group_of(flow, tp)) in of_groups for tp in tps)
        ):
            return flow
        assert number < 100_000, f"no flow's name puts the coordinators of {topic} {coordinators}"
    raise AssertionError


@contextlib.contextmanager
def follower_cluster(
    lag_s: float, session_s: float, source_address: str, heap: tuple[str, ...] = HEAP
) -> Iterator[FollowerCluster]:
    """Start the target, and stop it in any case. A stopped broker leaves the ISR after ``lag_s``.

    Its session expires after ``session_s``.
    """
    properties = {
        "replica.lag.time.max.ms": str(int(lag_s * 1000)),
        "broker.session.timeout.ms": str(int(session_s * 1000)),
        "broker.heartbeat.interval.ms": "500",
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": str(_COUNT),
        "transaction.state.log.num.partitions": str(_COUNT),
        "log.segment.bytes": str(64 << 20),
    }
    with Cluster(3, properties=properties, heap=heap) as cluster:
        yield FollowerCluster(cluster, source_address)
