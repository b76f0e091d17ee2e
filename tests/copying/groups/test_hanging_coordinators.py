"""A broker hangs that coordinates groups: they alone are delayed, on either side, and reported. Real clusters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupsReport
from mirror.groups.sync import GroupSync
from mirror.relay.progress.committed import group_of
from mirror.relay.progress.fenced_writer import groups_transactional_id
from mirror.relay.progress.flow_topic import group_topic_of, offset_topic_of, topic_of
from mirror.sandbox.cluster import Cluster
from tests.conftest import NewCluster
from tests.copying.group_site import commit, committed_at, group_sync
from tests.copying.pair import End, TwoClusters
from tests.copying.writers import transactional
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(240)]

_HEALTHY: Final = 1
_HANGS: Final = 2
_PROPERTIES: Final = {
    # A coordinator has one replica and stays where it is, also while it does not answer.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "broker.session.timeout.ms": "300000",
}
_COORDINATORS: Final = "__consumer_offsets"
_TRANSACTIONS: Final = "__transaction_state"
_INTERNAL_PARTITIONS: Final = 6
"""The sandbox has so many of both."""
_ROUND_S: Final = 30.0
"""Calls have limits of 2, 8 and 20 s; a call of a client takes up to 60 s by default."""
_OF_EACH: Final = 3


class Groups:
    """Groups of a cluster of two brokers, by their coordinator, and a copied topic that only the healthy one leads."""

    def __init__(self, pair: TwoClusters, two: End, name: Callable[[str], str]) -> None:
        self.pair = pair
        self._two: Final = two
        self._name: Final = name
        # The first commit creates the topic that spreads the coordinators.
        self.topic: Final = name("t")
        for end in (pair.source, pair.target):
            end.create_at(self.topic, [_HEALTHY])
        commit(two, name("first"), self.topic, 0)
        eventually(lambda: two.partitions(_COORDINATORS) == _INTERNAL_PARTITIONS, what="coordinators")
        self.hanging, self.healthy = (
            [self.named("g.billing", node) for _ in range(_OF_EACH)] for node in (_HANGS, _HEALTHY)
        )

    def named(self, prefix: str, node: int) -> str:
        """Return a new name whose coordinator is ``node``."""
        while self.coordinator(found := self._name(prefix)) != node:
            pass
        return found

    def coordinator(self, name: str, topic: str = _COORDINATORS) -> int:
        """Return the coordinator of a group, or with ``_TRANSACTIONS`` of a transactional id."""
        number = abs(_java_hash(name)) % _INTERNAL_PARTITIONS
        return int(self._two.admin.list_topics(topic, timeout=60).topics[topic].partitions[number].leader)

    def commit(self, offset: int, groups: list[str]) -> None:
        for group in groups:
            commit(self.pair.source, group, self.topic, offset)

    def at_target(self, groups: list[str]) -> set[bytes | None]:
        """Return the records at which these groups continue on the target."""
        found = {committed_at(self.pair.target, group, self.topic)[0] for group in groups}
        return {record.value for offset, record in self.pair.target.seen(self.topic) if offset in found}


def _java_hash(text: str) -> int:
    """``String.hashCode``, by which a group has its partition of ``__consumer_offsets``."""
    number = 0
    for character in text:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


@pytest.fixture
def two(new_cluster: NewCluster) -> Cluster:
    return new_cluster(brokers=2, properties=_PROPERTIES)


@pytest.fixture(params=["source", "target"])
def groups(
    request: pytest.FixtureRequest,
    two: Cluster,
    source_cluster: Cluster,
    target_cluster: Cluster,
    unique: Callable[[str], str],
) -> Groups:
    """Of two brokers on this side; 250 records are copied."""
    ends = (two, target_cluster) if request.param == "source" else (source_cluster, two)
    pair = TwoClusters(*ends, unique, unique("flow"))
    found = Groups(pair, End(two.bootstrap_servers), unique)
    if request.param == "target":
        # What the flow itself needs is not on the broker that is going to hang: all groups would wait for that.
        tp = TopicPartition(found.topic, 0)
        transactional(two.bootstrap_servers, unique("first"))
        while {
            found.coordinator(group_of(pair.flow, tp)),
            found.coordinator(groups_transactional_id(pair.flow), _TRANSACTIONS),
        } != {_HEALTHY}:
            pair = found.pair = TwoClusters(*ends, unique, unique("flow"))
        for own in (topic_of(pair.flow), offset_topic_of(pair.flow), group_topic_of(pair.flow)):
            pair.target.create_at(own, [_HEALTHY], cleanup_policy="compact")
    pair.own_topics()
    pair.source.fill(found.topic, [b"%d" % number for number in range(250)])
    pair.complete(found.topic)
    return found


def _timed_round(sync: GroupSync) -> GroupsReport:
    began_s = time.monotonic()
    report = sync.round()
    assert time.monotonic() - began_s < _ROUND_S
    return report


def test_the_groups_of_a_coordinator_that_hangs_are_delayed_alone(groups: Groups, two: Cluster) -> None:
    side = "source" if two.bootstrap_servers == groups.pair.source.address else "target"
    every = [*groups.hanging, *groups.healthy]
    groups.commit(100, every)
    with group_sync(groups.pair, groups.topic) as sync:
        assert not sync.round().by_reason()
        assert groups.at_target(every) == {b"100"}
        groups.commit(200, groups.healthy if side == "source" else every)
        two.pause(_HANGS)
        try:
            for offset in (200, 220):
                groups.commit(offset, groups.healthy)
                report = _timed_round(sync)
                assert groups.at_target(groups.healthy) == {b"%d" % offset}
                assert {name for name, one in report.groups.items() if one.is_in_step} >= set(groups.healthy)
                for group in groups.hanging:
                    assert report.groups[group].reasons == {Reason.UNAVAILABLE}, report.groups[group]
                unlisted = f"the groups of broker {_HANGS} of the {side} cannot be listed"
                assert any(unlisted in line for line in report.problems)
        finally:
            two.resume(_HANGS)
        groups.commit(200, groups.hanging)

        def in_step() -> bool:
            return not _timed_round(sync).by_reason()

        eventually(in_step, within_s=60, what="all groups in step")
    assert groups.at_target(groups.hanging) == {b"200"}
