"""Three brokers, topics of which some partitions have nothing to do with broker 3, and what befalls broker 3."""

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

HURT: Final = 3
SESSION_MS: Final = 6_000
"""How long the cluster takes broker 3 for alive: longer than ack.timeout.ms, so that its slowness is felt, too."""
LED: Final = ((3, 1), (3, 2), (1, 3), (2, 3), (1, 2), (2, 1))
"""Replicas by partition, the leader first: broker 3 leads, follows, and has no part in the last two."""
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
class Harm:
    """One kind of fault. ``begin`` and ``end`` do it to a stage; ``proxied``: clients must come by the proxy."""

    begin: Callable[[Stage], None]
    end: Callable[[Stage], None]
    proxied: bool = False
    assignment: tuple[tuple[int, ...], ...] = LED


class Stage:
    """A running cluster and the proxy before it."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster: Final = cluster
        self.proxy: Final = proxy
        self.servers: Final = cluster.bootstrap_servers
        self._topics = Topics(self.servers, lambda name: f"{name}-{uuid.uuid4().hex[:8]}")

    def create(self, assignment: tuple[tuple[int, ...], ...], min_in_sync: int) -> list[TopicPartition]:
        """A new topic's partitions."""
        return self._topics.create(assignment=assignment, config={"min.insync.replicas": str(min_in_sync)})

    def delete(self, topics: set[str]) -> None:
        """Free their room on the disk."""
        admin = self._admin()
        for future in admin.delete_topics(list(topics)).values():
            future.result(timeout=60)

    def _admin(self) -> AdminClient:
        # A new client each time: it asks the brokers it was given, and none that it learned of and that stands still.
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def make_whole(self) -> None:
        """Wait until every replica is in sync, and give back their partitions to those who led them at first."""
        eventually(self._in_sync, within_s=90, what="all replicas in sync")
        eventually(self._led_as_at_first, within_s=60, what="the first leaders back")

    def _led_as_at_first(self) -> bool:
        moved = [tp for tp, told in self._told().items() if told.leader != told.replicas[0]]
        if moved:
            # Whoever has just left the replicas in sync again is not elected, and asked once more.
            wanted = [ConfluentPartition(*tp) for tp in moved]
            admin = self._admin()  # lives until the answer is there
            admin.elect_leaders(ElectionType.PREFERRED, wanted).result(timeout=60)
        return not moved

    def _in_sync(self) -> bool:
        try:
            return all(sorted(told.isrs) == sorted(told.replicas) for told in self._told().values())
        except KafkaException:
            return False

    def _told(self) -> dict[tuple[str, int], Any]:
        topics = self._admin().list_topics(timeout=30).topics
        return {(name, number): part for name, topic in topics.items() for number, part in topic.partitions.items()}


@contextlib.contextmanager
def stage(features: Mapping[str, int]) -> Iterator[Stage]:
    """Everything started, and stopped in any case."""
    with (
        Cluster(3, properties=PROPERTIES, features=features) as cluster,
        Proxy(cluster.bootstrap_servers, keep_bytes=0) as proxy,
    ):
        yield Stage(cluster, proxy)


def _produces(action: Action, on: On = On.REQUEST, after: int = _MIDDLE) -> Callable[[Stage], None]:
    """Every Produce of broker 3, or its answer, is broken off in this way."""
    return lambda on_stage: on_stage.proxy.fault(Fault(action=action, api=Api.PRODUCE, broker=HURT, on=on, after=after))


def _broker(act: Callable[[Cluster, int], None]) -> Callable[[Stage], None]:
    return lambda on_stage: act(on_stage.cluster, HURT)


def _heal(on_stage: Stage) -> None:
    on_stage.proxy.heal()


HARMS: Final[Mapping[str, Harm]] = {
    "kill -9 the leader": Harm(_broker(Cluster.kill), _broker(Cluster.restart)),
    "stop the leader": Harm(_broker(Cluster.pause), _broker(Cluster.resume)),
    "stop a follower": Harm(_broker(Cluster.pause), _broker(Cluster.resume), assignment=FOLLOWED),
    "cut off in the middle of a request": Harm(_produces(Action.CUT), _heal, proxied=True),
    "cut off in the middle of an answer": Harm(_produces(Action.CUT, On.ANSWER, after=6), _heal, proxied=True),
    "silent in the middle of a request": Harm(_produces(Action.SILENCE), _heal, proxied=True),
}
"""What is done to broker 3."""

NONE: Final = Harm(lambda _: None, lambda _: None)
NONE_PROXIED: Final = Harm(lambda _: None, lambda _: None, proxied=True)
