"""A cluster as one command observes it: each fact is read once, and only if it is needed. Brokers in memory."""

from __future__ import annotations

import pytest

from mirror.client import ResourceType
from mirror.errors import AuthorizationFailed, FlowError
from mirror.observation import Side, Sides
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(2, cluster_id="paris")
    made.add_topic("orders", 2)
    made.add_topic("clicks")
    return made


def observed(cluster: FakeCluster, timeout_ms: int | None = None) -> Side:
    return Side("a", FakeAdmin(cluster), timeout_ms)


def test_nothing_is_read_before_a_view_needs_it_and_each_fact_once(cluster: FakeCluster) -> None:
    side = observed(cluster)
    assert cluster.received == []
    for _ in range(3):
        assert side.topics.keys() == {"orders", "clicks"}
        assert side.describe(["orders"]).keys() == {"orders"}, "the listing has it"
        assert side.own_configs(["orders"]) == {"orders": {}}
        assert side.configs(["orders"]).keys() == {"orders"}
    assert len([one for one in cluster.calls(Api.METADATA) if one.body.topics is None]) == 1
    assert [one.body.topics for one in cluster.calls(Api.METADATA) if one.body.topics] == []
    assert len(cluster.calls(Api.DESCRIBE_CONFIGS)) == 1


def test_only_names_that_were_not_read_before_are_asked_for(cluster: FakeCluster) -> None:
    side = observed(cluster)
    assert side.describe(["orders", "none"]).keys() == {"orders"}
    assert side.describe(["orders", "none", "clicks"]).keys() == {"orders", "clicks"}
    named = [
        sorted(topic.name or "" for topic in one.body.topics) for one in cluster.calls(Api.METADATA) if one.body.topics
    ]
    assert named[-1] == ["clicks"]
    assert {"none", "orders"} <= {name for names in named[:-1] for name in names}


def test_a_topic_that_the_listing_does_not_have_says_why(cluster: FakeCluster) -> None:
    hidden = Action(errors={"orders": errors.TOPIC_AUTHORIZATION_FAILED})
    cluster.control.add(lambda call: hidden if call.api is Api.METADATA else None)
    side = observed(cluster)
    assert "orders" not in side.topics
    found = side.describe(["orders", "clicks", "none"])
    assert found.keys() == {"clicks"}
    assert isinstance(found.failed["orders"], AuthorizationFailed)


def test_another_observation_reads_anew(cluster: FakeCluster) -> None:
    sides = Sides(observed(cluster), observed(cluster))
    assert "new" not in sides.target.topics
    cluster.add_topic("new")
    assert "new" not in sides.target.topics
    assert "new" in sides.again().target.topics


def test_a_cluster_that_does_not_answer_is_waited_for_once_and_named(cluster: FakeCluster) -> None:
    for node in cluster.brokers:
        cluster.kill(node)
    side = observed(cluster, timeout_ms=1_000)
    began = cluster.clock.now()
    with pytest.raises(FlowError, match="cluster a does not answer: "):
        side.cluster  # noqa: B018 - a fact that is read
    waited = cluster.clock.now() - began
    with pytest.raises(FlowError, match="cluster a does not answer"):
        side.cluster  # noqa: B018 - a fact that is read
    assert cluster.clock.now() - began == waited


def test_what_is_refused_is_refused_to_each_view_without_another_request(cluster: FakeCluster) -> None:
    refused = Action(errors={"acls": errors.CLUSTER_AUTHORIZATION_FAILED})
    cluster.control.on(Api.DESCRIBE_ACLS, refused, times=None)
    side = observed(cluster)
    for _ in range(2):
        with pytest.raises(AuthorizationFailed):
            side.acls(ResourceType.TOPIC)
    assert len(cluster.calls(Api.DESCRIBE_ACLS)) == 1
