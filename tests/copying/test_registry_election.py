"""Somebody elects a replica of a registry that lacks producer ids: the flow that reads it stops, nothing comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from mirror.errors import FlowError
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.origin.registry import prepare_registries
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.elections.election import UncleanElection
from tests.campaign.elections.site import PROPERTIES
from tests.campaign.kills.attempt import AttemptOrder
from tests.campaign.kills.attempt_process import AttemptProcess
from tests.copying.pair import TwoClusters
from tests.copying.site import name

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(400)]

LOST: Final = r"origin-unknown: mirror-producers\.internal of the source has lost records"
POLICY: Final[dict[str, Any]] = {"only_local": True, "registers_producers": True}


@pytest.fixture
def three_brokers() -> Iterator[Cluster]:
    with Cluster(3, properties=PROPERTIES, heap=jvm.BROKER) as cluster:
        yield cluster


class Site:
    """Flows in both directions. The registry of ``a`` is on the brokers 1 and 2, all else of it on broker 3."""

    def __init__(self, a: Cluster, b: Cluster) -> None:
        self.there: Final = TwoClusters(a, b, name, name("a-b"))
        self.back: Final = TwoClusters(b, a, name, name("b-a"))
        self.topic: Final = name("t")
        self.a: Final = self.there.source
        self.b: Final = self.there.target
        steady = a.bootstrap_servers.split(",")[2]
        self.election: Final = UncleanElection(a, REGISTRY_TOPIC, 1, {1, 2}, steady)
        self.a.create_at(REGISTRY_TOPIC, [1, 2], cleanup_policy="compact", min_insync_replicas=1)
        for own in (topic_of(self.back.flow), offset_topic_of(self.back.flow)):
            self.a.create_at(own, [3], cleanup_policy="compact", min_insync_replicas=1)
        if REGISTRY_TOPIC not in self.b.topics():
            self.b.create(REGISTRY_TOPIC, cleanup_policy="compact")
        self.a.create_at(self.topic, [3], min_insync_replicas=1)
        for pair in (self.there, self.back):
            self.begin_run(pair)
        self.there.target_topic(self.topic)

    @staticmethod
    def begin_run(pair: TwoClusters) -> None:
        options = ({"bootstrap.servers": side.address} for side in (pair.source, pair.target))
        prepare_registries(pair.flow, *options, only_local=True)

    def write(self, cluster: str, value: bytes) -> None:
        """Produce one record as an application does."""
        side = self.a if cluster == "a" else self.b
        side.fill(self.topic, [value], first_ms=int(time.time() * 1000))

    def copy_back(self) -> list[RangeResult]:
        """Copy from ``b`` to ``a``, under producer ids that ``a`` has not seen before."""
        return self.back.complete(self.topic, **POLICY, exactly_once=False)

    def copy_in_another_process(self, ranges: list[Range]) -> list[RangeResult]:
        """Copy from ``a`` to ``b``."""
        order = AttemptOrder(
            source={"bootstrap.servers": self.a.address},
            target={"bootstrap.servers": self.b.address},
            ranges=ranges,
            policy=CopyPolicy(**POLICY),
        )
        with AttemptProcess(order) as attempt:
            return attempt.await_end()


def test_an_unclean_election_of_a_registry_stops_the_flow_that_reads_it(
    three_brokers: Cluster, target_cluster: Cluster
) -> None:
    """The lost producer ids are those of a batch that the flow has not passed yet: it would count as local."""
    site = Site(three_brokers, target_cluster)
    site.write("a", b"a1")
    site.write("b", b"b1")
    site.copy_back()
    site.there.complete(site.topic, **POLICY)

    def register_on_the_leader_alone() -> None:
        site.write("a", b"a2")
        (until_here,) = site.there.ranges(site.topic)
        site.write("b", b"b2")
        site.copy_back()
        site.begin_run(site.there)
        site.there.complete([until_here], **POLICY)

    (lost,) = site.election.elect(register_on_the_leader_alone)
    assert lost > 0
    site.write("a", b"a3")
    ranges = site.there.ranges(site.topic)
    assert ranges[0].end - ranges[0].start == 5, "a1, b1, a2, b2 and a3"
    for result in [*site.there.copy(ranges, **POLICY), *site.copy_in_another_process(ranges)]:
        assert result.outcome is Outcome.FAILED
        assert result.error is not None
        assert "origin-unknown" in result.error
        assert "has lost records" in result.error
    with pytest.raises(FlowError, match=LOST):
        site.begin_run(site.there)
    assert [record.value for record in site.b.records(site.topic)] == [b"b1", b"a1", b"b2", b"a2"]
    site.write("b", b"b3")
    site.copy_back()
    site.copy_back()
    found = [record.value for record in site.a.records(site.topic)]
    assert found == [b"a1", b"b1", b"a2", b"b2", b"a3", b"b3"], "the other flow goes on, and takes nothing back"
