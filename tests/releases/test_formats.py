"""Topics of every kind are copied from each release, those of old message formats included, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from mirror.sandbox.cluster import Cluster
from tests.conftest import NewCluster
from tests.copying.pair import TwoClusters
from tests.releases.releases import OLDEST
from tests.releases.topics import SOURCE_PROPERTIES, SourceTopics

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(600)]

COMPACTED: Final = (OLDEST,)
"""Those from which the compacted topic is copied: it takes long, and is no different in the others."""
_OTHERS = (pytest.param(version, marks=pytest.mark.cluster) for version in ("2.4.1", "2.8.2"))


@pytest.mark.parametrize("version", [OLDEST, *_OTHERS])
def test_topics_of_all_kinds_are_copied_in_both_ways(
    new_cluster: NewCluster, target_cluster: Cluster, unique: Callable[[str], str], version: str
) -> None:
    source = new_cluster(release=version, properties=SOURCE_PROPERTIES)
    topics = SourceTopics(source, version, unique("x"))
    topics.create()
    topics.grow()
    if version in COMPACTED:
        topics.compact()
    topics.check_formats()
    pair = TwoClusters(source, target_cluster, unique, unique("flow"))
    names = [topic for topic in topics.partitions if version in COMPACTED or topic != topics.compacted]
    for topic in names:
        pair.target_topic(topic, topics.partitions[topic])

    def copy() -> None:
        for topic in names:
            # A sequence takes no record without a time, and none of a compacted topic.
            by = "transactions" if topic in {topics.compacted, topics.old.get(0)} else "sequences"
            pair.complete(topic, exactly_once_by=by)
        assert topics.difference(pair.target, "", names) is None

    copy()
    topics.grow()
    copy()
