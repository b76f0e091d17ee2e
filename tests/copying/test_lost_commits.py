"""An unclean election removes the last commits from the target's ``__consumer_offsets``: nothing is doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from mirror.relay.model.way import Way
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.elections.election import UncleanElection
from tests.campaign.elections.site import PROPERTIES
from tests.copying.pair import TwoClusters
from tests.copying.site import name

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(400)]

OFFSETS: Final = "__consumer_offsets"


@pytest.fixture
def three_brokers() -> Iterator[Cluster]:
    with Cluster(3, properties=PROPERTIES, heap=jvm.BROKER) as cluster:
        yield cluster


class Copies:
    """A flow and a topic for each way. The copies are on broker 3, and what groups commit on the brokers 1 and 2."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self.pairs: Final = {
            way: TwoClusters(source, target, name, name(way)) for way in (Way.TRANSACTIONS, Way.SEQUENCES)
        }
        self.target: Final = self.pairs[Way.SEQUENCES].target
        partitions = int(PROPERTIES["offsets.topic.num.partitions"])
        lossy = {"min_insync_replicas": 1, "unclean_leader_election_enable": "true", "cleanup_policy": "compact"}
        self.target.create_at(OFFSETS, [1, 2], partitions, **lossy)
        self.election: Final = UncleanElection(
            target, OFFSETS, partitions, {1, 2}, target.bootstrap_servers.split(",")[2]
        )
        self.topics: Final = {way: name("t") for way in self.pairs}
        self.written: Final[list[bytes]] = []
        for way, pair in self.pairs.items():
            pair.source.create(self.topics[way])
            self.target.create_at(self.topics[way], [3], min_insync_replicas=1)
            for own in (topic_of(pair.flow), offset_topic_of(pair.flow)):
                self.target.create_at(own, [3], cleanup_policy="compact", min_insync_replicas=1)

    def copy(self, records: int) -> None:
        """Write as many records to each topic, and copy them."""
        values = [b"%d" % (len(self.written) + number) for number in range(records)]
        self.written.extend(values)
        for way, pair in self.pairs.items():
            pair.source.fill(self.topics[way], values, first_ms=int(time.time() * 1000))
            (result,) = pair.complete(self.topics[way], exactly_once_by=way)
            assert result.way == way

    def copied(self, way: Way) -> list[bytes | None]:
        return [record.value for record in self.target.records(self.topics[way])]


def test_records_whose_commits_were_lost_are_not_copied_again(source_cluster: Cluster, three_brokers: Cluster) -> None:
    copies = Copies(source_cluster, three_brokers)
    copies.copy(records=3)

    def copy_with_the_leader_alone() -> None:
        copies.copy(records=5)
        copies.copy(records=2)

    lost = copies.election.elect(copy_with_the_leader_alone)
    assert sum(lost) > 0
    copies.copy(records=4)
    for way in copies.pairs:
        assert copies.copied(way) == copies.written, way
