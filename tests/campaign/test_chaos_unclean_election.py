"""An unclean election of the target that loses acknowledged records, during a copy without Spark."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from tests import jvm
from tests.campaign.chaos.broker_faults import UncleanElection
from tests.campaign.chaos.broker_network import LISTENER, BrokerNetwork, NetworkedCluster
from tests.campaign.chaos.clusters import PROPERTIES
from tests.campaign.chaos.compare import difference
from tests.campaign.chaos.injection import PREFIX, Topics
from tests.campaign.chaos.kafka_side import KafkaSide
from tests.campaign.chaos.load import Load
from tests.campaign.chaos.reader import read
from tests.campaign.chaos.round import LOSSY
from tests.campaign.chaos.schedule import BROKERS, FaultKind, ScheduledFault, Side
from tests.campaign.measurements.healthy_copy import whole
from tests.faults.proxy import Proxy
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(400)]

FAULT = ScheduledFault(FaultKind.UNCLEAN_ELECTION, Side.TARGET, 0, 0, 1, 1)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[KafkaSide]:
    """Three brokers that are source and target."""
    with (
        BrokerNetwork() as network,
        NetworkedCluster(
            network,
            BROKERS,
            directory=tmp_path / "cluster",
            properties=PROPERTIES,
            listeners={LISTENER: "PLAINTEXT"},
            heap=jvm.BROKER,
        ) as cluster,
        Proxy(cluster.bootstrap_servers, keep_bytes=64) as proxy,
    ):
        yield KafkaSide("target", cluster, proxy, None)


class Copies(threading.Thread):
    """Copies everything that the source has, repeatedly, until a copy fails or :attr:`stopping` is set."""

    def __init__(self, side: KafkaSide, topic: str, flow: str, by: str) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.results = list[RangeResult]()
        self._arguments = side, topic, flow, by
        self.start()

    def run(self) -> None:
        side, topic, flow, by = self._arguments
        while not self.stopping.is_set():
            try:
                ranges = whole(side.healthy_address, [TopicPartition(topic, 0)], flow, f"{PREFIX}{topic}")
            except Exception:  # noqa: BLE001, S112 - the brokers are unavailable for a moment
                continue
            self.results += copy_ranges(
                ranges,
                source_options={"bootstrap.servers": side.address},
                target_options={
                    "bootstrap.servers": side.address,
                    "delivery.timeout.ms": 20_000,
                    "request.timeout.ms": 8_000,
                },
                policy=CopyPolicy(commit_interval_ms=300, exactly_once_by=by),
            )
            if self.results[-1].outcome is Outcome.FAILED:
                return


@pytest.mark.parametrize("by", ["transactions", "sequences"])
def test_copy_completes_a_target_that_lost_acknowledged_records(side: KafkaSide, by: str) -> None:
    marker = uuid.uuid4().hex[:8]
    topics = Topics(*(f"{purpose}-{marker}" for purpose in Topics.PARTITIONS))
    flow = f"unclean-{marker}"
    side.create(topics.lossy, 1)
    side.create(f"{PREFIX}{topics.lossy}", 1, assignment=[[1, 2]], config=LOSSY)
    for own in (topic_of(flow), offset_topic_of(flow)):
        side.create(own, 1, config={"cleanup.policy": "compact"})
    with Load(side.address, 1, {topics.lossy: "lz4"}) as load:
        load.write(topics.lossy, 1, 150)
        copies = Copies(side, topics.lossy, flow, by)
        context: Any = SimpleNamespace(clusters=SimpleNamespace(target=side, source=side), topics=topics, log=[])
        eventually(lambda: sum(result.records for result in copies.results), within_s=60, what="a first copy")
        election = UncleanElection(context, FAULT)
        election.begin()
        election.end()
        load.stop()
        began = len(copies.results)

        def is_complete() -> bool:
            later = [one.outcome for one in copies.results[began:]]
            return later.count(Outcome.COMPLETE) > 1 or not copies.is_alive()

        eventually(is_complete, within_s=120, what="complete copies after the load")
        copies.stopping.set()
        copies.join(60)
    assert election.count > 0, context.log
    assert [loss["kind"] for one in copies.results for loss in one.target_losses] == ["truncated"], copies.results[-1]
    source, _ = read(side.address, [(topics.lossy, 0)], 60)
    target, _ = read(side.address, [(f"{PREFIX}{topics.lossy}", 0)], 60)
    assert difference(source[topics.lossy, 0], target[f"{PREFIX}{topics.lossy}", 0]) == ""
