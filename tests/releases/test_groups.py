"""Positions of groups move from and to brokers of each release; confluent-kafka commits and reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.reverse import ReverseGroups
from mirror.runtime.clock import SystemClock
from mirror.sandbox.cluster import Cluster
from tests.conftest import NewCluster
from tests.copying.group_site import commit, committed_at, consumer_of, group_access, group_rules, group_sync
from tests.copying.pair import TwoClusters
from tests.polling import eventually
from tests.releases.releases import MAIN_VERSION, OTHERS, TARGETS

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_RECORDS = 250
_BEFORE = 33


@pytest.mark.parametrize("version", OTHERS)
def test_positions_move_with_the_copy_and_back(
    new_cluster: NewCluster, target_cluster: Cluster, unique: Callable[[str], str], version: str
) -> None:
    _move_there_and_back(TwoClusters(new_cluster(release=version), target_cluster, unique, unique("flow")), unique)


@pytest.mark.parametrize("version", [version for version in TARGETS if version != MAIN_VERSION])
def test_positions_move_to_a_target_and_back(
    source_cluster: Cluster, new_cluster: NewCluster, unique: Callable[[str], str], version: str
) -> None:
    _move_there_and_back(TwoClusters(source_cluster, new_cluster(release=version), unique, unique("flow")), unique)


def _move_there_and_back(pair: TwoClusters, unique: Callable[[str], str]) -> None:
    topic, group = pair.topics(), unique("g.billing")
    pair.target.fill(topic, [b"before %d" % number for number in range(_BEFORE)])
    pair.source.fill(topic, [b"%d" % number for number in range(_RECORDS)])
    pair.complete(topic, start_over=True)
    numbers = {record.value: offset for offset, record in pair.target.seen(topic)}
    with group_sync(pair, topic) as sync:
        for offset in (0, 137, _RECORDS - 1):
            commit(pair.source, group, topic, offset, f"at {offset}")
            (position,) = sync.round().groups[group].positions
            assert position.reason is None, position
            assert committed_at(pair.target, group, topic) == (numbers[b"%d" % offset], f"at {offset}")
        # A member of the group commits with the leader epoch that it has seen.
        with consumer_of(pair.source, group) as consumer:
            consumer.subscribe([topic])
            eventually(lambda: consumer.poll(0.2) is not None, within_s=60, what="the last record")
            consumer.commit(asynchronous=False)
            (position,) = sync.round().groups[group].positions
        assert (position.reason, committed_at(pair.target, group, topic)[0]) == (None, numbers[b"249"] + 1)
        pair.source.fill(topic, [b"not copied"])
        commit(pair.source, group, topic, _RECORDS + 1)
        assert sync.round().groups[group].positions[0].reason is Reason.NOT_COPIED
        pair.complete(topic)
        assert sync.round().groups[group].positions[0].reason is None
    commit(pair.source, group, topic, 0)
    commit(pair.target, group, topic, numbers[b"200"])
    with ReverseGroups(group_access(pair), group_rules(topic), SystemClock()) as way_back:
        positions, problems = way_back.commit(resume=False)
    (back,) = [one for one in positions if one.group == group]
    assert (back.written, back.source, problems) == (True, TopicPartition(topic, 0), []), back
    assert committed_at(pair.source, group, topic)[0] == 200
