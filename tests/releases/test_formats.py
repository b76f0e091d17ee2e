"""Topics of the releases that write the old message formats are copied, without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.sandbox.cluster import Cluster
from tests.conftest import NewCluster
from tests.copying.pair import TwoClusters
from tests.releases.topics import SourceTopics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["2.1.1", "2.4.1", "2.8.2"])
def test_topics_of_all_formats_are_copied_in_both_ways(
    new_cluster: NewCluster, target_cluster: Cluster, unique: Callable[[str], str], version: str
) -> None:
    source = new_cluster(release=version)
    topics = SourceTopics(source, version, unique("x"))
    topics.create()
    topics.grow()
    topics.check_formats()
    pair = TwoClusters(source, target_cluster, unique, unique("flow"))
    names = [topics.plain, topics.transactional, *topics.old.values()]
    for topic in names:
        pair.target_topic(topic, topics.partitions[topic])

    def copy() -> None:
        for topic in names:
            # A sequence takes no record without a time.
            by = "transactions" if topic == topics.old[0] else "sequences"
            pair.complete(topic, exactly_once_by=by)
        assert topics.difference(pair.target, "", names) is None

    copy()
    topics.grow()
    copy()
