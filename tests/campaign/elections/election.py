"""Elects a replica of a topic that lacks acknowledged records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.errors import KafkaError
from mirror.sandbox.cluster import Cluster
from tests.polling import eventually

CALL_S: Final = 10
_METADATA_S: Final = 3
_ATTEMPTS: Final = 10


class UncleanElection:
    """For a topic whose partitions are all on two brokers of a cluster, and led by one of them."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, replicas: set[int], steady: str) -> None:
        """``steady`` is the address of a broker that is none of ``replicas``: it answers at any time."""
        self._cluster: Final = cluster
        self._topic: Final = topic
        self._partitions: Final = partitions
        self._replicas: Final = replicas
        self._steady: Final = steady

    def elect(self, append: Callable[[], object]) -> list[int]:
        """Have the follower elected, which lacks what ``append`` appends; return how many offsets each partition lost.

        The leader is killed, and started again at the end.
        """
        eventually(lambda: self._in_sync() == self._replicas and self._leader(), within_s=60, what="both in sync")
        leader = self._leader()
        (follower,) = self._replicas - {leader}
        self._cluster.pause(follower)
        try:
            eventually(lambda: self._in_sync() == {leader}, within_s=60, what="an ISR of the leader alone")
            append()
            acknowledged = self.high_watermarks()
            self._cluster.kill(leader)
        finally:
            self._cluster.resume(follower)
        eventually(lambda: self._elected(follower), within_s=60, what="an unclean election")
        lost = [max(0, end - begins) for end, begins in zip(acknowledged, self._beginnings(follower), strict=True)]
        self._cluster.restart(leader)
        return lost

    def high_watermarks(self) -> list[int]:
        """Return the end of what is acknowledged, of each partition."""
        consumer = Consumer({"bootstrap.servers": self._steady, "group.id": "elections"})
        try:
            return [self._high_watermark(consumer, number) for number in range(self._partitions)]
        finally:
            consumer.close()

    def _high_watermark(self, consumer: Consumer, partition: int) -> int:
        place = TopicPartition(self._topic, partition)
        _, end = _asked_again(lambda: consumer.get_watermark_offsets(place, timeout=_METADATA_S))
        return int(end)

    def _leader(self) -> int:
        """Return the broker that leads all partitions; 0 if there is none."""
        found = {partition.leader for partition in self._described()}
        return found.pop() if len(found) == 1 else 0

    def _in_sync(self) -> set[int]:
        """Return the brokers that are in sync in at least one partition."""
        return {broker for partition in self._described() for broker in partition.isrs}

    def _described(self) -> list[Any]:
        # A client of its own, which knows no other broker yet: it would go on asking one that is stopped.
        admin = AdminClient({"bootstrap.servers": self._steady})
        metadata = _asked_again(lambda: admin.list_topics(self._topic, timeout=_METADATA_S))
        return list(metadata.topics[self._topic].partitions.values())

    def _elected(self, follower: int) -> bool:
        if self._leader() == follower:
            return True
        places = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        admin = AdminClient({"bootstrap.servers": self._steady})
        with contextlib.suppress(KafkaException, TimeoutError):  # the follower may not have registered yet
            admin.elect_leaders(ElectionType.UNCLEAN, places).result(CALL_S)
        return False

    def _beginnings(self, broker: int) -> list[int]:
        """Return where the last leader epoch begins in the logs of ``broker``."""
        data = self._cluster.directory / f"broker-{broker}" / "data"

        def epochs(partition: int) -> list[str]:
            checkpoint = data / f"{self._topic}-{partition}" / "leader-epoch-checkpoint"
            return checkpoint.read_text(encoding="ascii").splitlines()[2:]

        def newest(partition: int) -> int:
            eventually(lambda: epochs(partition), what="an epoch of the new leader")
            return int(epochs(partition)[-1].split()[1])

        return [newest(partition) for partition in range(self._partitions)]


def _asked_again(call: Callable[[], Any]) -> Any:
    """Repeat ``call``: the client may ask the broker that is stopped."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(KafkaException, KafkaError):
            return call()
    return call()
