"""The Produce requests of a copy by sequences: one carries the batches of many partitions of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from mirror.cluster.types import TopicPartition
from mirror.relay.batches.reencode_decision import MAX_SMALL_BATCH_BYTES
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.wire.api import Api
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import build, values_of
from tests.relay.simulation import Simulation
from tests.relay.stand_ins import install

_FLOW = "flow"
_PARTITIONS, _BATCHES = 24, 3
_BATCHES_OF_A_REQUEST = 5
"""On average, at least."""
_LARGE = b"x" * (MAX_SMALL_BATCH_BYTES + 1)
"""A value that keeps its batch from being merged with the next one."""


class Site:
    """Source topic "t" and target topic "paris.t", whose leaders are spread over two brokers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = FakeCluster(1, cluster_id="paris", seed=1)
        self.target = FakeCluster(2, cluster_id="berlin", seed=2)
        self.source.add_topic("t", _PARTITIONS)
        self.target.add_topic("paris.t", _PARTITIONS)
        for own in (topic_of(_FLOW), offset_topic_of(_FLOW)):
            self.target.add_topic(own)
        self.simulation = Simulation(self.source, self.target)
        install(self.simulation, monkeypatch)

    def write(self) -> None:
        for partition in range(_PARTITIONS):
            for number in range(_BATCHES):
                value = b"%d.%d %s" % (partition, number, _LARGE)
                log = self.source.log("t", partition)
                log.append(build((value,), base_offset=number, timestamp=self.source.clock.unix_ms()))

    def copy(self) -> None:
        ranges = [
            Range(
                flow=_FLOW,
                topic="t",
                target_topic="paris.t",
                partition=partition,
                start=0,
                end=_BATCHES,
                source_cluster_id="paris",
                topic_id=str(self.source.topics["t"].topic_id),
                first=0,
            )
            for partition in range(_PARTITIONS)
        ]
        process = self.simulation.start("copy", ranges, CopyPolicy(exactly_once_by="sequences"))
        self.simulation.run(until=lambda: process.ended)
        assert {one.outcome for one in process.results or ()} == {Outcome.COMPLETE}
        for partition in range(_PARTITIONS):
            copied = [one for one in self.target.log("paris.t", partition).batches() if not one.is_control]
            values = [value.split()[0] for one in copied for value in values_of(one.view)]
            assert values == [b"%d.%d" % (partition, number) for number in range(_BATCHES)]

    def requests(self) -> dict[int, list[Counter[TopicPartition]]]:
        """By broker: how many batches of which partitions of the copy each Produce request has carried."""
        found: dict[int, list[Counter[TopicPartition]]] = {}
        topic_id = self.target.topics["paris.t"].topic_id
        for call in self.target.calls(Api.PRODUCE):
            parts = Counter(
                TopicPartition("paris.t", part.index)
                for topic in call.body.topic_data
                if topic.name == "paris.t" or topic.topic_id == topic_id
                for part in topic.partition_data
            )
            if parts:
                found.setdefault(call.node, []).append(parts)
        return found


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(monkeypatch)
    yield site
    site.simulation.close()


def test_one_request_carries_the_batches_of_many_partitions_of_a_broker(site: Site) -> None:
    site.write()
    site.copy()
    requests = site.requests()
    leaders = Counter(site.target.log("paris.t", partition).leader for partition in range(_PARTITIONS))
    assert set(requests) == set(leaders)
    for node, sent in requests.items():
        batches = sum(one.total() for one in sent)
        assert batches == leaders[node] * _BATCHES
        # They are acquired a few at a time, so that not all of them have something to send at once.
        assert max(len(one) for one in sent) > leaders[node] // 3
        assert len(sent) <= batches // _BATCHES_OF_A_REQUEST, [len(one) for one in sent]
        assert all(set(one.values()) == {1} for one in sent), "brokers take one batch of a partition at a time"
