"""A flow with one sick partition: two brokers to copy to, of which one leads nothing but it, and is taken down."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from confluent_kafka.admin import NewTopic

from mirror.relay.progress.flow_topic import inventory_topic_of, offset_topic_of, status_topic_of, topic_of
from mirror.sandbox.cluster import Cluster
from tests.e2e.broker_side import WITHIN_S, Side
from tests.polling import eventually

PARTITIONS: Final = 4
SICK: Final = PARTITIONS - 1
"""The partition whose leader goes away."""
_GOOD, _DOWN = 1, 2
_COORDINATORS: Final = 6
"""As many as the sandbox's brokers count with."""
_DAY_MS: Final = 86_400_000


class SickFlow:
    """``topic`` of ``source``, to be copied by the flow ``name`` to ``cluster``, which has two brokers.

    There it is called ``target_topic``.
    """

    def __init__(self, source: Side, topic: str, cluster: Cluster, target_topic: str, *, name: str) -> None:
        self.source: Final = source
        self.topic: Final = topic
        self.cluster: Final = cluster
        self.address: Final = cluster.bootstrap_servers
        """The good broker first."""
        self.target: Final = Side(self.address.partition(",")[0])
        self.target_topic: Final = target_topic
        source.create(topic, PARTITIONS, retention_ms=_DAY_MS)
        # Before the brokers make them, anywhere.
        for coordinators in ("__consumer_offsets", "__transaction_state"):
            self._create(coordinators, [_GOOD] * _COORDINATORS, **{"cleanup.policy": "compact"})
        for own in (topic_of(name), offset_topic_of(name), status_topic_of(name), inventory_topic_of(name)):
            self._create(own, [_GOOD], **{"cleanup.policy": "compact"})
        self._create(self.target_topic, [_GOOD] * SICK + [_DOWN], **{"retention.ms": str(_DAY_MS)})

    def _create(self, name: str, leaders: list[int], **config: str) -> None:
        topic = NewTopic(name, len(leaders), replica_assignment=[[leader] for leader in leaders], config=config)
        self.target.admin.create_topics([topic])[name].result(WITHIN_S)

    def add_topic(self) -> None:
        """Create another topic of the source, whose name begins with that of the first one, and a target for it."""
        self.source.create(f"{self.topic}-more")
        self._create(f"{self.target_topic}-more", [_GOOD])

    def fill(self, count: int, size: int = 200) -> None:
        """So many records into each partition, of now; the first one also has transactions, of which one is aborted."""
        for partition in range(PARTITIONS):
            values = (b"%d" % number + b"x" * size for number in range(count))
            self.source.fill(self.topic, values, partition, first_ms=int(time.time() * 1000) - count)
        producer = self.source.producer(transactional_id=f"writer-{self.topic}")
        producer.init_transactions(WITHIN_S)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce(self.topic, b"in a transaction", partition=0)
            producer.flush(WITHIN_S)  # A transaction without records on the broker cannot be aborted.
            end(WITHIN_S)

    def copied(self, partition: int) -> int:
        """How far the target's log of it reaches."""
        return self.target.end(self.target_topic, partition)

    def begun(self) -> bool:
        """Whether the target has anything of the sick partition: cheaply, for who waits beside a copy."""
        logs = Path(self.cluster.directory).glob(f"*/data/{self.target_topic}-{SICK}/*.log")
        return any(log.stat().st_size for log in logs)

    def harm(self) -> None:
        """Take the sick partition's broker down in an orderly way, so that it has no leader at once."""
        os.kill(self.cluster.pids[_DOWN], signal.SIGTERM)
        eventually(lambda: _DOWN not in self.cluster.pids, within_s=60, what="the end of broker 2")

    def heal(self) -> None:
        """It is back."""
        self.cluster.restart(_DOWN)
