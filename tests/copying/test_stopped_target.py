"""One of two target brokers is stopped before a flow's first run: the partitions of the other one are copied."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from confluent_kafka.admin import NewTopic

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.measurements.healthy_copy import whole
from tests.campaign.measurements.sick_partitions import coordinator_of
from tests.e2e.broker_side import Side
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(240)]

GOOD: Final = 1
STOPPED: Final = 2
COORDINATORS: Final = 48
LED_BY: Final = (GOOD, GOOD, GOOD, STOPPED, STOPPED)
UNCOORDINATED: Final = 2
"""The partition whose leader is alive, and whose transaction coordinator is stopped."""
RECORDS: Final = 40
PROPERTIES: Final = {
    "broker.session.timeout.ms": "120000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    # The records are older than a week: brokers delete such half a minute after they have started.
    "log.retention.ms": "-1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": str(COORDINATORS),
    "transaction.state.log.min.isr": "1",
}
"""During its long session, the cluster takes a stopped broker for alive, and elects no other leader."""


class Flow:
    """A source topic on the good broker and an empty target topic; the stopped broker leads the progress topic."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Final = cluster
        self.good: Final = cluster.bootstrap_servers.split(",")[GOOD - 1]
        self.side: Final = Side(self.good)
        self._create("__consumer_offsets", [GOOD] * 6)
        self._create("__transaction_state", [*[GOOD] * (COORDINATORS - 1), STOPPED])
        self.topic, self.target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("t", "copy"))
        self._create(self.topic, [GOOD] * len(LED_BY))
        self._create(self.target, LED_BY)
        self.name: Final = self._name()
        for own in (topic_of(self.name), offset_topic_of(self.name)):
            self._create(own, [STOPPED])
        for partition in range(len(LED_BY)):
            self.side.fill(self.topic, self.values(partition), partition=partition)

    def _create(self, name: str, leaders: Sequence[int]) -> None:
        topic = NewTopic(name, len(leaders), replica_assignment=[[leader] for leader in leaders])
        self.side.admin.create_topics([topic])[name].result(timeout=20)

    def _name(self) -> str:
        """Find a flow name with which the stopped broker coordinates the transactions of UNCOORDINATED only."""
        for number in range(1_000):
            name = f"first-{number}"
            ids = [transactional_id(name, TopicPartition(self.target, partition)) for partition in range(len(LED_BY))]
            on_stopped = {
                partition for partition, own_id in enumerate(ids) if coordinator_of(own_id) == COORDINATORS - 1
            }
            if on_stopped == {UNCOORDINATED}:
                return name
        raise AssertionError("no name has such coordinators")

    @staticmethod
    def values(partition: int) -> list[bytes]:
        return [b"%d of %d" % (number, partition) for number in range(RECORDS)]

    def copy(self, *, exactly_once: bool) -> list[RangeResult]:
        return copy_ranges(
            self._ranges(),
            source_options={"bootstrap.servers": self.good},
            target_options={
                "bootstrap.servers": self.good,
                "delivery.timeout.ms": 6_000,
                "request.timeout.ms": 2_000,
            },
            policy=CopyPolicy(exactly_once=exactly_once),
        )

    def _ranges(self) -> list[Range]:
        parts = [TopicPartition(self.topic, partition) for partition in range(len(LED_BY))]
        return list(whole(self.good, parts, self.name, self.target))

    def await_copied(self, partition: int) -> None:
        """Wait for the commit marker: a coordinator answers before it is in the log."""
        wanted: list[bytes | None] = [*self.values(partition)]
        eventually(lambda: self.side.read(self.target, partition) == wanted, what=f"all of partition {partition}")


@pytest.fixture
def flow() -> Iterator[Flow]:
    with Cluster(2, properties=PROPERTIES, heap=jvm.BROKER) as cluster:
        yield Flow(cluster)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_stopped_broker_expires_only_partitions_it_leads_or_coordinates(flow: Flow, exactly_once: bool) -> None:
    flow.cluster.pause(STOPPED)
    try:
        results = flow.copy(exactly_once=exactly_once)
        sick = {3, 4, UNCOORDINATED} if exactly_once else {3, 4}
        for partition, result in enumerate(results):
            if partition not in sick:
                assert (result.outcome, result.records, result.expiries) == (Outcome.COMPLETE, RECORDS, []), result
                flow.await_copied(partition)
                continue
            assert (result.outcome, result.records) == (Outcome.EXPIRED, 0), result
            causes = {(expiry["phase"], expiry["cause"]) for expiry in result.expiries}
            assert causes == {("fencing", "coordinator") if partition == UNCOORDINATED else ("metadata", "no answer")}
    finally:
        flow.cluster.resume(STOPPED)
    results = flow.copy(exactly_once=exactly_once)
    assert [result.outcome for result in results] == [Outcome.COMPLETE] * len(LED_BY), results
    assert sum(result.records for result in results) == RECORDS * len(sick)
    for partition in range(len(LED_BY)):
        flow.await_copied(partition)
