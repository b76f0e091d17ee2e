"""Permissions that flows lack, by a check on their clusters before anything starts."""

from __future__ import annotations

import json

import pytest

from mirror.client import Admin
from mirror.relay.progress.committed import SHARDS
from mirror.spark.preflight.flow_checks import FlowsRefused
from tests.spark import fakes
from tests.spark.observed import check_flows
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of
from tests.spark.preflight.test_permission_check import (
    BEATING,
    CARRYING,
    FLOW,
    GRANT,
    GROUP_TOPIC,
    GROUPS,
    HIDDEN,
    only_warning,
)


@pytest.fixture
def clusters() -> list[fakes.Cluster]:
    made = [fakes.Cluster(f"{name}:1").make() for name in "ab"]
    made[0].add_topic("orders", [1]).add_topic("clicks", [1])
    return made


def test_missing_permissions_of_all_flows_are_in_one_list(clusters: list[fakes.Cluster]) -> None:
    groups = {f"group mirror.f.{shard}": ["READ"] for shard in range(SHARDS)}
    clusters[1].set_moods({"denied": json.dumps(groups), "no_ids": json.dumps(["mirror.g.a.clicks.0"])})
    config = config_of(flow(), flow("g", topics=["clicks"]), flow("h", topics=["nope"]))
    with pytest.raises(FlowsRefused) as refused:
        check_flows(config, config.select())
    assert refused.value.problems.keys() == {"f", "g", "h"}
    assert "the permission Read on groups with the prefix mirror.f." in refused.value.problems["f"][0]
    assert "the permission Describe on transactional ids with the prefix mirror.g." in refused.value.problems["g"][0]
    assert len(str(refused.value).splitlines()) == 3


def test_a_permission_missing_on_some_topics_is_a_warning_of_the_flow(clusters: list[fakes.Cluster]) -> None:
    clusters[0].set_moods({"denied": json.dumps({"topic clicks": ["READ"]})})
    config = config_of(FLOW)
    (line,) = check_flows(config, config.select()).warnings["f"]
    assert "the permission Read on topic clicks of cluster a is missing" in line


def test_permissions_of_heartbeats_are_looked_up_and_stop_nothing(clusters: list[fakes.Cluster]) -> None:
    """Heartbeats do not count as one of the flow's topics: without its own, the flow is refused."""
    config = config_of(BEATING)
    assert check_flows(config, config.select()).warnings["f"] == []
    clusters[0].add_topic("heartbeats", [1]).set_moods({"denied": json.dumps({"topic heartbeats": ["WRITE"]})})
    clusters[1].add_topic("a.heartbeats", [1]).set_moods({"denied": json.dumps({"topic a.heartbeats": ["WRITE"]})})
    written, copied = check_flows(config, config.select()).warnings["f"]
    assert "the permission Write on topic heartbeats of cluster a is missing" in written
    assert "the permission Write on topic a.heartbeats of cluster b is missing" in copied
    clusters[0].set_moods({"denied": json.dumps({"topic orders": ["READ"], "topic clicks": ["READ"]})})
    with pytest.raises(FlowsRefused, match="the permission Read on topics clicks, orders of cluster a is missing"):
        check_flows(config, config.select())


@pytest.mark.parametrize(("mode", "lines"), [("auto", 1), ("transactions", 0)])
def test_brokers_are_asked_only_if_records_may_go_by_sequence(
    clusters: list[fakes.Cluster], mode: str, lines: int
) -> None:
    clusters[1].set_moods({"broker_configs": "refused"})
    config = config_of(flow(topics=["orders", "clicks"], exactly_once_by=mode))
    warnings = check_flows(config, config.select()).warnings["f"]
    assert len([line for line in warnings if "producer.id.expiration.ms cannot be read" in line]) == lines
    config = config_of(flow(topics=["orders", "clicks"], exactly_once_by="sequences"))
    with pytest.raises(FlowsRefused, match=r"DescribeConfigs on the brokers of cluster b is missing"):
        check_flows(config, config.select())


def test_an_impossible_topic_name_hides_no_missing_permission(
    clusters: list[fakes.Cluster],
) -> None:
    """A name that is too long for a question is left out of it."""
    clusters[0].add_topic("x" * 249, [1])
    clusters[1].add_topic("a.orders", [0]).set_moods({"denied": json.dumps({"topic a.orders": ["WRITE"]})})
    config = config_of(flow(topics=["orders", "x+"]))
    (line,) = check_flows(config, config.select()).warnings["f"]
    assert "the permission Write on topic a.orders of cluster b is missing" in line


def test_a_failed_permission_check_is_a_warning(clusters: list[fakes.Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    assert clusters

    def fail(*_: object, **__: object) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr(Admin, "group_operations", fail)
    config = config_of(FLOW)
    (line,) = check_flows(config, config.select()).warnings["f"]
    assert line.startswith("the flow's permissions could not be checked: flow f: AttributeError")


def test_groups_that_are_listed_and_may_not_be_read_are_named(clusters: list[fakes.Cluster]) -> None:
    """Who has Describe on the source's cluster sees all groups."""
    line = only_warning({"source group billing": HIDDEN}, CARRYING, GROUPS)
    assert line == (
        "the permission Describe on group billing of cluster a is missing: their positions are not read;"
        f" {GRANT} --operation Describe --group billing"
    )
    clusters[0].set_moods({"groups": '["billing"]', "denied": json.dumps({"group billing": ["DESCRIBE"]})})
    clusters[1].add_topic(GROUP_TOPIC, [1])
    assert check_flows(config_of(CARRYING), [CARRYING]).warnings["f"] == [line]


def test_positions_that_are_only_translated_need_no_permission_to_commit(clusters: list[fakes.Cluster]) -> None:
    clusters[0].set_moods({"groups": '["billing"]'})
    topic = "a.checkpoints.internal"
    denied = {f"topic {GROUP_TOPIC}": ["WRITE"], "group billing": ["READ"], f"topic {topic}": ["WRITE"]}
    clusters[1].add_topic(GROUP_TOPIC, [1]).add_topic(topic, [1]).set_moods({"denied": json.dumps(denied)})
    one = flow(topics=["orders"], mirrormaker={"checkpoints": True}, groups={"sync": False})
    (line,) = check_flows(config_of(one), [one]).warnings["f"]
    assert f"the permission Write on topic {topic} of cluster b is missing: checkpoints are not written" in line
    clusters[0].set_moods({"groups": "[]"})
    assert "no consumer group" in check_flows(config_of(one), [one]).warnings["f"][1]


def test_permissions_are_looked_up_for_flows_with_groups_only(clusters: list[fakes.Cluster]) -> None:
    clusters[0].set_moods({"groups": '["billing", "console-consumer-1", "mirror.x.3"]'})
    denied = {f"topic {GROUP_TOPIC}": ["WRITE"], "group billing": ["READ"], "group console-consumer-1": ["READ"]}
    clusters[1].add_topic(GROUP_TOPIC, [1]).set_moods({"denied": json.dumps(denied)})
    without = flow(topics=["orders", "clicks"], exactly_once_by="transactions")
    assert check_flows(config_of(without), [without]).warnings["f"] == []
    group, topic = check_flows(config_of(CARRYING), [CARRYING]).warnings["f"]
    assert "the permission Read on group billing of cluster b" in group
    assert f"the permission Write on topic {GROUP_TOPIC}" in topic
    clusters[0].set_moods({"groups": "[]"})
    assert "no consumer group" in check_flows(config_of(CARRYING), [CARRYING]).warnings["f"][-1]


def test_what_a_flow_reads_of_the_other_direction_is_named(clusters: list[fakes.Cluster]) -> None:
    """For groups that come back by themselves: the other flow's intents and index, and its progress."""
    clusters[0].set_moods({"groups": '["billing"]'})
    denied = {
        "topic mirror-groups.back.internal": ["READ"],
        "topic mirror-offsets.back.internal": ["READ"],
        "group mirror.back.0": ["DESCRIBE"],
    }
    for topic in ("mirror-groups.back.internal", "mirror-offsets.back.internal"):
        clusters[0].add_topic(topic, [1])
    clusters[0].set_moods({"groups": '["billing"]', "denied": json.dumps(denied)})
    clusters[1].add_topic(GROUP_TOPIC, [1])
    back = CARRYING.model_copy(update={"name": "back", "source": "b", "target": "a", "topics": ("payments",)})
    topics, progress = check_flows(config_of(CARRYING, back), [CARRYING]).warnings["f"]
    assert topics == (
        "the permission Read on topics mirror-groups.back.internal, mirror-offsets.back.internal of cluster a is"
        " missing: groups that come back from there are not followed; grant to this client's user: kafka-acls --add"
        " --allow-principal User:... --operation Read --topic mirror-groups.back.internal"
        " --topic mirror-offsets.back.internal"
    )
    assert "the permission Describe on groups with the prefix mirror.back. of cluster a is missing" in progress
    assert "--operation Describe --group mirror.back. --resource-pattern-type prefixed" in progress
    clusters[0].set_moods({"groups": '["billing"]', "denied": "{}"})
    assert check_flows(config_of(CARRYING, back), [CARRYING]).warnings["f"] == []
