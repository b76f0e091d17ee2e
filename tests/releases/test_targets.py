"""Clusters of each release that flows may copy to, in both exactly-once ways and with both versions of transactions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mirror import observation
from mirror.client import Admin
from mirror.relay.model.way import Way
from mirror.sandbox.cluster import Cluster
from mirror.spark.preflight.old_brokers import why_no_target
from tests.campaign.kills.campaign import PROPERTIES, play
from tests.conftest import NewCluster
from tests.copying.pair import TwoClusters
from tests.e2e.broker_side import Side
from tests.relay.progress.status_site import check_reports_are_followed
from tests.releases import releases
from tests.releases.releases import MAIN_VERSION, TARGETS, TRANSACTION_LEVELS, VERSIONS
from tests.releases.topics import SourceTopics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_FEATURE = "transaction.version"
_FIND_COORDINATOR = {"2.1.1": 2, "2.4.1": 3, "2.8.2": 3}
"""The highest version that older releases offer."""


@pytest.mark.parametrize(
    ("version", "level"), [(version, level) for version in TARGETS for level in TRANSACTION_LEVELS.get(version, (0,))]
)
def test_a_target_takes_copies_in_both_ways(
    source_cluster: Cluster, unique: Callable[[str], str], version: str, level: int
) -> None:
    with releases.cluster(version, features={_FEATURE: level} if level else None) as target:
        with Admin({"bootstrap.servers": target.bootstrap_servers}) as admin:
            assert admin.describe_versions([1])[1].finalized(_FEATURE) == level
        for asked, taken in (("auto", Way.SEQUENCES), ("sequences", Way.SEQUENCES), ("transactions", Way.TRANSACTIONS)):
            topics = SourceTopics(source_cluster, MAIN_VERSION, unique(asked))
            topics.create()
            pair = TwoClusters(source_cluster, target, unique, unique("flow"))
            names = [topics.plain, topics.transactional]
            for topic in names:
                pair.target_topic(topic, topics.partitions[topic])
            for _ in range(2):
                topics.grow()
                ways = {one.way for topic in names for one in pair.complete(topic, exactly_once_by=asked)}
                assert ways == {taken}
            assert topics.difference(pair.target, "", names) is None
        check_reports_are_followed(target.bootstrap_servers, unique("f").replace(".", "-"))


@pytest.mark.parametrize("version", [version for version in TARGETS if version != MAIN_VERSION])
def test_killed_and_doubled_attempts_leave_every_record_on_the_target_once(
    source_cluster: Cluster, new_cluster: NewCluster, version: str, subtests: pytest.Subtests
) -> None:
    """All rounds have a compacted topic; test_murder.py does the same with the release of all other tests."""
    source, target = Side(source_cluster.bootstrap_servers), new_cluster(release=version, properties=PROPERTIES)
    for by, attack in (("auto", "killed at a point"), ("transactions", "killed at a point"), ("mixed", "two at once")):
        seed = random.SystemRandom().randrange(10**9)  # a new one in each run; a failure reports it
        with subtests.test(attack=attack, by=by, seed=seed):
            counts = play(source, target, seed, (attack,), attacks_each=1, by=by)
            assert counts[attack] == 1
            assert counts["result: complete"] >= 4, counts  # a plain topic's partitions and the compacted one's


@pytest.mark.parametrize("version", [version for version in VERSIONS if version not in TARGETS])
def test_an_older_target_is_refused_in_one_line(new_cluster: NewCluster, version: str) -> None:
    cluster = new_cluster(release=version)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        why = why_no_target("berlin", observation.Side("berlin", admin).versions)
    assert why == (
        f"berlin cannot be a target, which needs Apache Kafka 3.0 or newer: broker 1 at {cluster.bootstrap_servers}:"
        f" it speaks FindCoordinator up to version {_FIND_COORDINATOR[version]}, and 4 is needed"
    )
