"""Three brokers, topics of which some partitions have no replica at broker 3, and the faults of broker 3."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from mirror.client import TopicPartition
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.conformance.topics import Topics
from tests.faults.proxy import Action, Fault, On, Proxy
from tests.polling import eventually

FAULTY_BROKER: Final = 3
SESSION_MS: Final = 6_000
"""How long the cluster believes that broker 3 is alive: longer than ack.timeout.ms, which therefore expires first."""
LED: Final = ((3, 1), (3, 2), (1, 3), (2, 3), (1, 2), (2, 1))
"""Replicas by partition, the leader first: broker 3 leads, follows, and has no replica of the last two."""
FOLLOWED: Final = ((1, 3), (2, 3), (1, 3), (2, 3), (1, 2), (2, 1))
_MIDDLE: Final = 5_000
"""Bytes: somewhere in the records of a Produce."""

PROPERTIES: Final = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "log.segment.bytes": str(256 << 20),
}


@dataclass(frozen=True, slots=True)
class BrokerFault:
    """One kind of fault of broker 3. ``proxied``: clients must connect through the proxy."""

    begin: Callable[[SoakCluster], None]
    end: Callable[[SoakCluster], None]
    proxied: bool = False
    assignment: tuple[tuple[int, ...], ...] = LED


class SoakCluster:
    """A running cluster and the proxy in front of it."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster: Final = cluster
        self.proxy: Final = proxy
        self.servers: Final = cluster.bootstrap_servers
        self._topics = Topics(self.servers, lambda name: f"{name}-{uuid.uuid4().hex[:8]}")

    def create(self, assignment: tuple[tuple[int, ...], ...], min_in_sync: int) -> list[TopicPartition]:
        """Create a topic and return its partitions."""
        return self._topics.create(assignment=assignment, config={"min.insync.replicas": str(min_in_sync)})

    def delete(self, topics: set[str]) -> None:
        """Delete topics, to free their disk space."""
        admin = self._admin()
        for future in admin.delete_topics(list(topics)).values():
            future.result(timeout=60)

    def _admin(self) -> AdminClient:
        # A new client for each call uses the addresses that it was given, and not those of a stopped broker.
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def recover(self) -> None:
        """Wait until every replica is in sync, and elect the preferred leaders."""
        eventually(self._in_sync, within_s=90, what="all replicas in sync")
        eventually(self._preferred_leaders_elected, within_s=60, what="the preferred leaders")

    def _preferred_leaders_elected(self) -> bool:
        moved = [tp for tp, found in self._partitions().items() if found.leader != found.replicas[0]]
        if moved:
            # A replica that has just left the ISR again is not elected; the next poll repeats the request.
            wanted = [ConfluentPartition(*tp) for tp in moved]
            admin = self._admin()  # It must exist until the call is answered.
            admin.elect_leaders(ElectionType.PREFERRED, wanted).result(timeout=60)
        return not moved

    def _in_sync(self) -> bool:
        try:
            return all(sorted(found.isrs) == sorted(found.replicas) for found in self._partitions().values())
        except KafkaException:
            return False

    def _partitions(self) -> dict[tuple[str, int], Any]:
        topics = self._admin().list_topics(timeout=30).topics
        return {(name, number): part for name, topic in topics.items() for number, part in topic.partitions.items()}


@contextlib.contextmanager
def soak_cluster(features: Mapping[str, int]) -> Iterator[SoakCluster]:
    """Start the cluster and its proxy, and stop them in any case."""
    with (
        Cluster(3, properties=PROPERTIES, features=features) as cluster,
        Proxy(cluster.bootstrap_servers, keep_bytes=0) as proxy,
    ):
        yield SoakCluster(cluster, proxy)


def _produces(action: Action, on: On = On.REQUEST, after: int = _MIDDLE) -> Callable[[SoakCluster], None]:
    """Interrupt every Produce of broker 3, or its answer, by ``action``."""
    return lambda cluster: cluster.proxy.fault(
        Fault(action=action, api=Api.PRODUCE, broker=FAULTY_BROKER, on=on, after=after)
    )


def _broker(act: Callable[[Cluster, int], None]) -> Callable[[SoakCluster], None]:
    return lambda cluster: act(cluster.cluster, FAULTY_BROKER)


def _heal(cluster: SoakCluster) -> None:
    cluster.proxy.heal()


FAULTS: Final[Mapping[str, BrokerFault]] = {
    "kill -9 the leader": BrokerFault(_broker(Cluster.kill), _broker(Cluster.restart)),
    "stop the leader": BrokerFault(_broker(Cluster.pause), _broker(Cluster.resume)),
    "stop a follower": BrokerFault(_broker(Cluster.pause), _broker(Cluster.resume), assignment=FOLLOWED),
    "cut off in the middle of a request": BrokerFault(_produces(Action.CUT), _heal, proxied=True),
    "cut off in the middle of an answer": BrokerFault(_produces(Action.CUT, On.ANSWER, after=6), _heal, proxied=True),
    "silent in the middle of a request": BrokerFault(_produces(Action.SILENCE), _heal, proxied=True),
}
"""All faults of broker 3."""

NO_FAULT: Final = BrokerFault(lambda _: None, lambda _: None)
NO_FAULT_PROXIED: Final = BrokerFault(lambda _: None, lambda _: None, proxied=True)
