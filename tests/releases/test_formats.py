"""Topics of every kind are copied from each release, those of old message formats included, without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.sandbox.cluster import Cluster
from tests.conftest import NewCluster
from tests.copying.pair import TwoClusters
from tests.releases.releases import OLDEST, OTHERS
from tests.releases.topics import SOURCE_PROPERTIES, SourceTopics

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(600)]

_OTHERS = [pytest.param(version, marks=pytest.mark.cluster) for version in OTHERS if version != OLDEST]


@pytest.mark.parametrize("version", [OLDEST, *_OTHERS])
def test_topics_of_all_kinds_are_copied_in_both_ways(
    new_cluster: NewCluster, target_cluster: Cluster, unique: Callable[[str], str], version: str
) -> None:
    source = new_cluster(release=version, properties=SOURCE_PROPERTIES)
    topics = SourceTopics(source, version, unique("x"))
    topics.create()
    topics.grow()
    topics.compact()
    topics.check_formats()
    pair = TwoClusters(source, target_cluster, unique, unique("flow"))
    for topic, count in topics.partitions.items():
        pair.target_topic(topic, count)

    def copy() -> None:
        for topic in topics.partitions:
            # A sequence takes no record without a time, and none of a compacted topic.
            by = "transactions" if topic in {topics.compacted, topics.old.get(0)} else "sequences"
            pair.complete(topic, exactly_once_by=by)
        assert topics.difference(pair.target, "") is None

    copy()
    topics.grow()
    copy()
