"""Target topics as flows prepare them, and the warnings about clusters, on clusters in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.causes import (
    CONNECTIONS,
    OFFSET_METADATA,
    OFFSETS_REPLICAS,
    TRANSACTION_REPLICAS,
    TRANSACTION_TIME,
    Cause,
)
from mirror.client import Admin
from mirror.errors import AuthorizationFailed, FlowError, KafkaTimeout
from mirror.relay.progress.flow_topic import topic_of
from mirror.spark.preflight.target_topics import prepare_own_topics
from tests.spark.planning.planner_harness import PlannerHarness
from tests.spark.planning.test_range_planner import flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror import client


def test_a_missing_topic_is_created_like_the_source_s(pair: PlannerHarness) -> None:
    configs = {"retention.ms": "100", "leader.replication.throttled.replicas": "0:1"}
    pair.a.add_topic("orders", [1, 2, 3], configs=configs)
    assert pair.prepare(flow(replication_factor=2)) == []
    made = pair.b.state()["topics"]["a.orders"]
    assert made["configs"] == {"retention.ms": "100"}
    assert [each["replicas"] for each in made["partitions"]] == [2, 2, 2]


def test_a_target_gets_missing_partitions_and_keeps_additional_ones(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [0] * 3).add_topic("clicks", [0])
    pair.b.add_topic("a.orders", [0]).add_topic("a.clicks", [0] * 5)
    pair.own("a.orders")
    pair.prepare(flow(topics=["orders", "clicks"]))
    topics = pair.b.state()["topics"]
    assert [len(topics[name]["partitions"]) for name in ("a.orders", "a.clicks")] == [3, 5]


@pytest.mark.parametrize("naming", ["prefix", "identity"])
def test_heartbeats_have_a_topic_on_the_source_that_is_copied(pair: PlannerHarness, naming: str) -> None:
    pair.a.add_topic("orders", [0])
    one = flow(naming=naming, replication_factor=2, mirrormaker={"heartbeats": True})
    assert pair.prepare(one) == []
    made = pair.a.state()["topics"]["heartbeats"]
    assert made["configs"] == {"cleanup.policy": "compact", "segment.bytes": "16777216"}
    assert [each["replicas"] for each in made["partitions"]] == [3], "replication-factor is for the target"
    copied = pair.b.state()["topics"]["a.heartbeats"]
    assert (copied["configs"]["cleanup.policy"], copied["partitions"][0]["replicas"]) == ("compact", 2)
    assert "a.heartbeats" in {result.target_topic for result in pair.plan(one).results_without_task}


def test_checkpoints_have_a_topic_on_the_target(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [0])
    one = flow(replication_factor=2, mirrormaker={"checkpoints": True}, groups={"sync": False})
    assert pair.prepare(one) == []
    made = pair.b.state()["topics"]["a.checkpoints.internal"]
    assert (made["configs"]["cleanup.policy"], [each["replicas"] for each in made["partitions"]]) == ("compact", [2])
    assert "mirror-groups.f.internal" not in pair.b.state()["topics"]


def test_heartbeats_alone_are_no_topic_of_a_flow(pair: PlannerHarness) -> None:
    with pytest.raises(FlowError, match="none of the 1 topics of cluster a matches"):
        pair.prepare(flow(mirrormaker={"heartbeats": True}))


def test_preparing_again_changes_nothing(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1, 2])
    pair.prepare(flow())
    before = pair.b.state()
    pair.prepare(flow())
    assert pair.b.state() == before


def test_a_topic_that_appears_meanwhile_is_used(pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.a.add_topic("orders", [1]).add_topic("clicks", [1])
    plain = Admin.create_topics

    def late(self: Admin, topics: list[client.NewTopic], **options: Any) -> object:
        monkeypatch.setattr(Admin, "create_topics", plain)
        pair.b.add_topic("a.clicks", [0])
        return plain(self, topics, **options)

    monkeypatch.setattr(Admin, "create_topics", late)
    pair.prepare(flow(topics=["orders", "clicks"]))
    assert set(pair.b.state()["topics"]) == {
        "a.orders",
        "a.clicks",
        "mirror-progress.f.internal",
        "mirror-offsets.f.internal",
        "mirror-progress.f.status.internal",
    }


def test_one_replica_and_too_few_for_min_insync_are_warnings(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1], configs={"min.insync.replicas": "2"})
    one_replica, too_few = pair.prepare(flow(replication_factor=1, configs_exclude=[]))
    assert "a.orders: one replica" in one_replica
    assert "KIP-185" in one_replica
    assert "min.insync.replicas = 2, with 1 replicas" in too_few


def test_a_target_topic_with_more_partitions_than_its_source_is_a_warning(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic("a.orders", [0, 0])
    (line,) = pair.prepare(flow())
    assert line.startswith("target topic a.orders: more partitions than the source topic (2, and not 1)")


LOST = {
    "mirror-progress.f.internal": "progress that the target forgets is not restored",
    "mirror-offsets.f.internal": "offsets are not translated",
    "mirror-progress.f.status.internal": "other hosts do not see its state",
}


@pytest.mark.parametrize("name", LOST)
def test_the_flow_s_own_topics_are_created_once(pair: PlannerHarness, name: str) -> None:
    pair.a.add_topic("orders", [1])
    assert pair.prepare(flow(replication_factor=2)) == []
    made = pair.b.state()["topics"][name]
    assert (len(made["partitions"]), made["partitions"][0]["replicas"]) == (1, 2)
    assert made["configs"]["cleanup.policy"] == "compact"
    assert pair.prepare(flow(replication_factor=3)) == []
    assert pair.b.state()["topics"][name] == made


@pytest.mark.parametrize("name", LOST)
def test_a_topic_of_the_flow_that_deletes_records_is_a_warning(pair: PlannerHarness, name: str) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic(name, [0])
    (line,) = pair.prepare(flow())
    assert f"topic {name} has cleanup.policy = delete" in line
    assert "set cleanup.policy = compact" in line


@pytest.mark.parametrize("name", LOST)
def test_a_topic_of_the_flow_that_cannot_be_created_stops_nothing(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pair.a.add_topic("orders", [1])
    plain = Admin.create_topics

    def refuse(self: Admin, topics: Iterable[client.NewTopic], **options: Any) -> object:
        if (wanted := list(topics))[0].name == name:
            raise AuthorizationFailed("the permission Create on the topic is missing", 29)
        return plain(self, wanted, **options)

    monkeypatch.setattr(Admin, "create_topics", refuse)
    (line,) = pair.prepare(flow())
    assert f"topic {name} cannot be prepared, so {LOST[name]}" in line
    assert "the permission Create" in line
    assert "a.orders" in pair.b.state()["topics"]


def test_harmful_pairs_of_topic_configurations_are_warnings(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1], configs={"retention.ms": "-1"})
    pair.b.add_topic("a.orders", [0], configs={"max.message.bytes": "1000"})
    retention, size = pair.prepare(flow())
    assert retention.startswith("target topic a.orders: retention.ms = 604800000 (7 days), where the source has no")
    assert "max.message.bytes = 1000, where the source has 1048588" in size


def test_own_topics_are_created_without_the_configurations_that_a_policy_refuses(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"refused_configs": json.dumps({"segment.bytes": "too small"})})
    lines = pair.prepare(flow())
    own = {name: topic["configs"] for name, topic in pair.b.state()["topics"].items() if name.startswith("mirror-")}
    violation = "POLICY_VIOLATION (error 44): too small"
    assert own
    assert all(configs == {"cleanup.policy": "compact"} for configs in own.values())
    assert sorted(lines) == sorted(
        f"topic {name} is created without segment.bytes = 16777216: creating topic {name!r}: {violation}"
        for name in own
    )


def test_an_own_topic_that_is_created_uncompacted_is_a_warning_at_once(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"refused_configs": json.dumps({"cleanup.policy": "no"})})
    first, again = ({line for line in pair.prepare(flow()) if "has cleanup.policy = delete" in line} for _ in range(2))
    assert len(first) == 3
    assert first == again


def test_an_own_topic_whose_cluster_does_not_answer_is_an_error_and_no_warning(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a stream beside a cluster that is away would warn for each of its topics, each time after 60 s."""
    pair.a.add_topic("orders", [1])
    asked: list[str] = []

    def away(self: Admin, names: Iterable[str], **options: object) -> object:
        del self, options
        asked.extend(names)
        raise KafkaTimeout("describing topics did not succeed within 60000 ms: broker 1 at b:9092: connection refused")

    monkeypatch.setattr(Admin, "describe_topics", away)
    with pytest.raises(KafkaTimeout):
        prepare_own_topics(flow(), pair.sides())
    assert len(asked) == len(set(asked))


def test_own_topics_that_a_policy_refuses_altogether_are_warnings(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"refused": json.dumps({topic_of("f"): "no owner"})})
    (line,) = pair.prepare(flow())
    assert line.startswith(f"topic {topic_of('f')} cannot be prepared, so progress that the target forgets")
    assert "no owner" in line


@pytest.mark.parametrize(
    ("setting", "harmful", "harmless", "beside"),
    [
        (TRANSACTION_REPLICAS, "4", "3", ", and 3 brokers run"),
        (OFFSETS_REPLICAS, "4", "3", ", and 3 brokers run"),
        (OFFSET_METADATA, "100", "4096", ""),
        (CONNECTIONS, "10", "2147483647", ""),
        (TRANSACTION_TIME, "60000", "900000", ""),
    ],
)
def test_settings_of_brokers_that_a_flow_cannot_work_with_are_warnings(
    pair: PlannerHarness, setting: Cause, harmful: str, harmless: str, beside: str
) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"broker_settings": json.dumps({setting.key: harmless})})
    assert pair.prepare(flow()) == []
    pair.b.set_moods({"broker_settings": json.dumps({setting.key: harmful})})
    assert pair.prepare(flow()) == [f"the target's {setting.key} is {harmful}{beside}: {setting.words}"]


def test_an_internal_topic_that_is_there_needs_no_more_replicas(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic("__transaction_state", [1])
    pair.b.set_moods({"broker_settings": json.dumps({TRANSACTION_REPLICAS.key: "4"})})
    assert pair.prepare(flow()) == []


def test_an_unreadable_retention_is_a_warning_and_taken_for_a_week(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"broker_configs": "the permission DescribeConfigs on the cluster is missing"})
    (line,) = pair.prepare(flow())
    assert "offsets.retention.minutes cannot be read and is taken for 7 days" in line
    assert "DescribeConfigs" in line
    assert len(pair.plan(flow()).ranges) == 1


@pytest.mark.parametrize(
    ("expiration_ms", "delivery", "warned"),
    [
        (7_199_999, {}, True),
        (7_200_000, {}, False),
        (7_199_999, {"exactly_once_by": "transactions"}, False),
        (7_199_999, {"delivery": "at-least-once"}, False),
    ],
)
def test_short_lived_transactional_ids_are_a_warning_where_fences_need_them(
    pair: PlannerHarness, expiration_ms: int, delivery: dict[str, str], *, warned: bool
) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"id_expiration_ms": str(expiration_ms)})
    lines = pair.prepare(flow(**delivery))
    assert [line.startswith("the target's transactional.id.expiration.ms is 7199999: ") for line in lines] == (
        [True] if warned else []
    )
