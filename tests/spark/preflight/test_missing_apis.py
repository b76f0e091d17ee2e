"""Clusters that do not offer all APIs of Apache Kafka: what is said beforehand, and that the rest is done without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mirror.alignment.owned_topics import OwnedTopics
from mirror.client import Admin, TopicPartition
from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.observation import Side as Observed
from mirror.observation import Sides
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.spark.preflight.api_table import API_USES, MissingApis, missing_apis
from mirror.spark.preflight.dry_run import forecast
from mirror.spark.preflight.flow_checks import ClusterTopics, find_problems
from mirror.spark.preflight.permissions import Side
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.wire.api import Api
from mirror.wire.versions import BrokerVersions
from tests.fakes.cluster import FakeCluster
from tests.relay.fake_pair import FLOW, FakePair

EVERYTHING: dict[str, Any] = {
    "configs": "sync",
    "on_topic_deleted": "delete",
    "groups": {"sync": True, "include": ["g"], "on-group-deleted": "delete"},
    "acls": {"sync": True},
}
USES = [pytest.param(use, api, id=f"{use.side}-{api.label}") for use in API_USES for api in use.apis]


def flow(**more: Any) -> FlowConfig:
    given = {"name": FLOW, "source": "paris", "target": "berlin", "topics": ["t"], **more}
    return FlowConfig.model_validate(given)


def config_of(one: FlowConfig, pair: FakePair) -> MirrorConfig:
    places = {"paris": pair.source.bootstrap, "berlin": pair.target.bootstrap}
    clusters = {
        name: ClusterConfig(name=name, options={"bootstrap.servers": place, "default.api.timeout.ms": 5_000})
        for name, place in places.items()
    }
    return MirrorConfig(clusters=clusters, flows={one.name: one})


def versions_without(*apis: Api) -> dict[str, BrokerVersions]:
    offered = {api.spec.key: (0, api.spec.high) for api in Api if api not in apis}
    return {"broker 2": BrokerVersions(offered)}


def lines_without(side: Side, *apis: Api, **settings: Any) -> MissingApis:
    all_of_them, fewer = versions_without(), versions_without(*apis)
    both = (fewer, all_of_them) if side is Side.SOURCE else (all_of_them, fewer)
    return missing_apis(flow(**settings), *both)


def degradable(side: Side) -> list[Api]:
    """The APIs that a flow with default settings can do without."""
    every = {api for use in API_USES if use.side is side for api in use.apis}
    return [api for api in every if not lines_without(side, api).problems]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


@pytest.fixture
def sides(pair: FakePair) -> Iterator[Sides]:
    with (
        Admin({"bootstrap.servers": pair.source.bootstrap, "default.api.timeout.ms": 5_000}) as source,
        Admin({"bootstrap.servers": pair.target.bootstrap, "default.api.timeout.ms": 5_000}) as target,
    ):
        yield Sides(Observed("paris", source), Observed("berlin", target))


def remove(cluster: FakeCluster, *apis: Api) -> None:
    for api in apis:
        cluster.versions.pop(api, None)


@pytest.mark.parametrize(("use", "api"), USES)
def test_each_use_of_each_api_has_a_line_that_names_both(use: Any, api: Api) -> None:
    settings = [{}, EVERYTHING, {"exactly_once_by": "sequences"}, {**EVERYTHING, "delivery": "at-least-once"}]
    found = [lines_without(use.side, api, **one) for one in settings]
    name = "paris" if use.side is Side.SOURCE else "berlin"
    line = f"cluster {name} does not offer {api.label}: {use.without}"
    expected = f"flow {FLOW}: {line}" if use.refuses else line
    assert any(expected in (each.problems if use.refuses else each.warnings) for each in found)


def test_a_cluster_with_all_apis_and_one_that_does_not_answer_give_no_lines() -> None:
    assert missing_apis(flow(**EVERYTHING), versions_without(), {}) == MissingApis([], [])


def test_one_broker_of_several_that_lacks_an_api_is_enough() -> None:
    mixed = {"old": versions_without(Api.CREATE_PARTITIONS)["broker 2"], "new": versions_without()["broker 2"]}
    (line,) = missing_apis(flow(), versions_without(), mixed).warnings
    assert line == "cluster berlin does not offer CreatePartitions: no topic gets more partitions; add them yourself"


def test_a_target_without_transactions_is_refused_until_the_flow_asks_for_less() -> None:
    (line,) = lines_without(Side.TARGET, Api.END_TXN).problems
    assert 'EndTxn: nothing can be copied exactly once; set delivery = "at-least-once"' in line
    assert not lines_without(Side.TARGET, Api.END_TXN, delivery="at-least-once").problems


def test_the_checks_say_the_lines_and_a_target_that_is_too_old_is_named_once(pair: FakePair, sides: Sides) -> None:
    remove(pair.source, Api.DESCRIBE_LOG_DIRS)
    remove(pair.target, Api.INIT_PRODUCER_ID)
    config = config_of(flow(), pair)
    clusters = {"paris": ClusterTopics.of(sides.source), "berlin": ClusterTopics.of(sides.target)}
    found = find_problems(config, config.select(), clusters)
    assert "cluster paris does not offer DescribeLogDirs" in found.warnings[FLOW][0]
    assert "cluster berlin does not offer InitProducerId: it cannot be a target" in found.problems[FLOW][0]
    old = replace(clusters["berlin"], versions=versions_without(Api.OFFSET_FETCH, Api.END_TXN))
    (line,) = find_problems(config, config.select(), {**clusters, "berlin": old}).problems[FLOW]
    assert "berlin cannot be a target" in line


def test_a_plan_is_made_with_the_apis_that_there_are(pair: FakePair, sides: Sides) -> None:
    remove(pair.source, *degradable(Side.SOURCE))
    remove(pair.target, *degradable(Side.TARGET))
    pair.write(b"a", b"b")
    one = flow(naming="prefix", groups=EVERYTHING["groups"], acls=EVERYTHING["acls"])
    (found,) = forecast(config_of(one, pair), one, sides, wall_ms=0).partitions
    assert (found.topic, found.records, found.bytes) == ("t", 2, None)


def test_topics_that_cannot_be_made_are_obstacles_and_the_others_are_copied(pair: FakePair, sides: Sides) -> None:
    pair.source.add_topic("new")
    pair.source.grow(pair.source.topics["t"], 2)
    remove(pair.target, Api.CREATE_TOPICS, Api.CREATE_PARTITIONS)
    owned = OwnedTopics(FLOW)
    owned.add(sides.target.describe(["paris.t"]))
    obstacles = prepare_topics(flow(topics=["t", "new"]), sides, owned=owned).targets.obstacles
    assert {topic: one.first_partition for topic, one in obstacles.items()} == {"new": 0, "t": 1}
    assert all("does not offer Create" in one.reason for one in obstacles.values())


def test_a_topic_whose_configuration_is_not_shown_is_not_made_unless_it_is_not_asked_for(
    pair: FakePair, sides: Sides
) -> None:
    pair.source.add_topic("new")
    remove(pair.source, Api.DESCRIBE_CONFIGS)
    obstacles = prepare_topics(flow(topics=["new"]), sides).targets.obstacles
    assert "which cluster paris does not show: " in obstacles["new"].reason
    assert not prepare_topics(flow(topics=["new"], configs="off"), sides.again()).targets.obstacles


@pytest.mark.parametrize("way", [*Way, None])
@pytest.mark.parametrize("side", [Side.SOURCE, Side.TARGET])
def test_records_are_copied_without_all_apis_that_need_not_be_there(
    monkeypatch: pytest.MonkeyPatch, side: Side, way: Way | None
) -> None:
    """Once more behind a change of the leader, after which positions are validated."""
    pair = FakePair(monkeypatch, brokers=2, source_brokers=2, exactly_once=way is not None)
    by_sequences = way is Way.SEQUENCES
    kept = {Api.DESCRIBE_CONFIGS} if by_sequences else set()
    remove(pair.source if side is Side.SOURCE else pair.target, *{*degradable(side)} - kept)
    pair.target.topics["paris.t"].configs["message.timestamp.type"] = "LogAppendTime"
    policy = {} if way is None else {"exactly_once_by": way}
    pair.write(b"a", b"b", b"c")
    for _ in range(3):
        result = pair.copy(**policy)
        assert (result.outcome, result.error) == (Outcome.COMPLETE, None)
        pair.source.move("t", 0, 3 - pair.source.log("t").leader)
        pair.target.move("paris.t", 0, 3 - pair.log().leader)
        pair.write(b"d")
    assert pair.values() == [b"a", b"b", b"c", b"d", b"d"]


def test_leader_epochs_that_cannot_be_asked_about_are_not_shown(pair: FakePair, sides: Sides) -> None:
    tp = TopicPartition("t", 0)
    assert sides.source.topics["t"].partitions[0].leader_epoch >= 0
    remove(pair.source, Api.OFFSET_FOR_LEADER_EPOCH)
    pair.source.disconnect(1)
    again = sides.again().source
    assert again.topics["t"].partitions[0].leader_epoch == -1
    assert again.admin.list_offsets({tp: 0})[tp].leader_epoch == -1
    assert again.admin.epoch_ends_async({tp: 0}).result()[tp] is None
