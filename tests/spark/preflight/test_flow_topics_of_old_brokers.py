"""The topics that a flow writes on its source are created on old brokers, too."""

from __future__ import annotations

import pytest

from mirror.observation import Side
from mirror.spark.preflight.flow_topics import FlowTopic, prepare
from mirror.wire.api import Api
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster

_HEARTBEATS = FlowTopic("heartbeats", "heartbeats", "there are none")


@pytest.mark.parametrize(("release", "brokers", "replicas"), [("2.1", 2, 2), ("2.1", 4, 3), ("2.4", 2, -1)])
def test_a_topic_has_so_many_replicas(release: str, brokers: int, replicas: int) -> None:
    cluster = FakeCluster(brokers, release=release)
    changes, warnings = prepare([_HEARTBEATS], Side("a", FakeAdmin(cluster)))
    assert warnings == []
    assert len(changes) == 1
    assert "heartbeats" in cluster.topics
    (request,) = (call.body for call in cluster.calls(Api.CREATE_TOPICS))
    assert [topic.replication_factor for topic in request.topics] == [replicas]
