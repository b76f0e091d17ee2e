"""Targets that are too old, and sources whose topics have no ids."""

from __future__ import annotations

from mirror.observation import Side
from mirror.spark.preflight.flow_checks import ClusterTopics, find_problems
from mirror.spark.preflight.old_brokers import topics_without_ids, why_no_target
from mirror.wire.api import Api
from mirror.wire.versions import BrokerVersions
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.releases import versions_of
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of


def _versions(release: str) -> BrokerVersions:
    return BrokerVersions({api.value.key: bounds for api, bounds in versions_of(release).items()})


def test_one_broker_that_is_too_old_is_named_with_what_is_needed() -> None:
    assert why_no_target("b", {"broker 1 at h:1": _versions("3.0")}) is None
    mixed = {"broker 1 at h:1": _versions("3.0"), "broker 2 at h:2": _versions("2.8")}
    assert why_no_target("b", mixed) == (
        "b cannot be a target, which needs Apache Kafka 3.0 or newer: broker 2 at h:2: it speaks FindCoordinator up to"
        " version 3, and 4 is needed"
    )
    lacking = dict(_versions("3.0").ranges)
    del lacking[Api.OFFSET_FETCH.value.key]
    why = why_no_target("b", {"broker 1 at h:1": BrokerVersions(lacking)})
    assert why is not None
    assert why.endswith("it does not offer OffsetFetch, of which version 8 is needed")


def test_a_flow_into_such_a_cluster_is_refused_and_one_from_it_is_not() -> None:
    one = flow()
    old = {"broker 1 at h:1": _versions("2.8")}
    fine = ClusterTopics("id-a", frozenset({"orders"}))
    aged = ClusterTopics("id-b", frozenset({"orders"}), versions=old)
    config = config_of(one)
    (line,) = find_problems(config, [one], {"a": fine, "b": aged}).problems["f"]
    assert line.startswith("flow f: b cannot be a target")
    assert find_problems(config, [one], {"a": aged, "b": fine}).problems == {}


def test_versions_are_read_from_the_brokers_that_answer() -> None:
    cluster = FakeCluster(2, release="2.8")
    cluster.add_topic("t")
    side = Side("b", FakeAdmin(cluster))
    assert len(side.cluster.brokers) == 2
    cluster.control.on(Api.API_VERSIONS, Action(silent=True), times=None, node=2)
    found = side.versions
    assert set(found) == {"broker 1 at broker-1.fake:9092"}
    assert why_no_target("b", found) is not None


def test_selected_topics_without_ids_are_a_warning() -> None:
    assert topics_without_ids("a", []) == []
    (one,) = topics_without_ids("a", ["orders"])
    assert one.startswith("topic orders of a has no id (Apache Kafka before 2.8,")
    (several,) = topics_without_ids("a", ["orders", "clicks"])
    assert several.startswith("2 topics, such as clicks, of a have no ids")
    only = flow(topics=["orders"])
    source = ClusterTopics("id-a", frozenset({"orders", "other"}), without_ids=frozenset({"orders", "other"}))
    target = ClusterTopics("id-b", frozenset())
    assert find_problems(config_of(only), [only], {"a": source, "b": target}).warnings["f"] == [one]
