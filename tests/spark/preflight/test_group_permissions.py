"""Permissions that a flow lacks for consumer groups are warnings: records are copied without them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.client import AclOperation
from mirror.spark.preflight.acl_check import MissingPermissions, missing_permissions
from mirror.spark.preflight.flow_checks import check_flows
from mirror.spark.preflight.group_permissions import GroupPermissions, group_warnings, names_of
from mirror.spark.preflight.permission_lines import NO_OPERATIONS, TopicPermissions
from tests.spark import fakes
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_acl_check import EVERYTHING
from tests.spark.preflight.test_flow_checks import config_of

ALL = frozenset(AclOperation)
FLOW = flow(topics=["orders", "clicks"], exactly_once_by="transactions", groups={})
TOPIC, ID = names_of(FLOW)
GRANTED = GroupPermissions(
    selected=2, target={"billing": ALL, "audit": ALL}, ids={ID: ALL}, topic={TOPIC: TopicPermissions(1, ALL)}
)


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[fakes.Cluster]:
    monkeypatch.setenv(fakes.FOLDER, str(tmp_path))
    monkeypatch.setattr("mirror.spark.preflight.flow_checks.Admin", fakes.Admin)
    monkeypatch.setattr("mirror.spark.preflight.acl_lookup.Admin", fakes.Admin)
    made = [fakes.Cluster(f"{name}:1", tmp_path).make() for name in "ab"]
    made[0].add_topic("orders", [1]).add_topic("clicks", [1])
    return made


def only(found: GroupPermissions) -> str:
    (line,) = group_warnings(FLOW, found)
    assert missing_permissions(FLOW, replace(EVERYTHING, consumer_groups=found)) == MissingPermissions(warnings=[line])
    return line


def test_nothing_is_said_if_everything_is_granted_or_unknown() -> None:
    assert group_warnings(FLOW, GRANTED) == group_warnings(FLOW, GroupPermissions()) == []


def test_groups_that_may_not_be_committed_are_named() -> None:
    line = only(replace(GRANTED, target={"billing": ALL - {AclOperation.READ}, "audit": ALL}))
    assert line == (
        "the permission Read on group billing of cluster b is missing: their positions are not written; grant to this"
        " client's user: kafka-acls --add --allow-principal User:... --operation Read --group billing"
    )
    assert "--operation Describe --operation Read --group audit --group billing" in only(
        replace(GRANTED, target=dict.fromkeys(("billing", "audit"), NO_OPERATIONS))
    )


def test_groups_that_are_listed_and_may_not_be_read_are_named(clusters: list[fakes.Cluster]) -> None:
    """Who has Describe on the source's cluster sees all groups."""
    line = only(replace(GRANTED, source={"billing": NO_OPERATIONS, "audit": ALL}))
    assert line == (
        "the permission Describe on group billing of cluster a is missing: their positions are not read; grant to this"
        " client's user: kafka-acls --add --allow-principal User:... --operation Describe --group billing"
    )
    clusters[0].set_moods({"groups": '["billing"]', "denied": json.dumps({"group billing": ["DESCRIBE"]})})
    clusters[1].add_topic(TOPIC, [1])
    assert check_flows(config_of(FLOW), [FLOW]).warnings["f"] == [line]


def test_groups_whose_offsets_are_to_be_deleted_need_the_permission() -> None:
    deleting = flow(topics=["orders"], exactly_once_by="transactions", groups={"on-group-deleted": "delete"})
    undeletable = replace(GRANTED, target={"billing": ALL - {AclOperation.DELETE}})
    assert group_warnings(FLOW, undeletable) == []
    (line,) = group_warnings(deleting, undeletable)
    assert "the permission Delete on group billing of cluster b is missing: their positions are not deleted" in line
    (line,) = group_warnings(deleting, replace(GRANTED, target={"billing": NO_OPERATIONS}))
    assert "--operation Describe --operation Read --operation Delete --group billing" in line


def test_names_of_groups_are_quoted_in_the_command() -> None:
    """A group's name is any text."""
    name = "x; rm -rf '$HOME'"
    command = only(replace(GRANTED, target={name: NO_OPERATIONS})).split("client's user: ")[1]
    assert shlex.split(command)[-2:] == ["--group", name]


def test_a_source_that_shows_no_group_may_lack_a_permission() -> None:
    assert "no consumer group of cluster a is one of [flows.f.groups]" in only(replace(GRANTED, selected=0, target={}))


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.WRITE])
def test_the_group_topic_has_to_be_read_and_written(operation: AclOperation) -> None:
    lacking = {TOPIC: TopicPermissions(1, ALL - {operation})}
    assert f"topic {TOPIC} of cluster b is missing: no group's position is written" in only(
        replace(GRANTED, topic=lacking)
    )


def test_the_transactional_id_has_to_be_granted() -> None:
    line = only(replace(GRANTED, ids={ID: NO_OPERATIONS}))
    assert "transactional id mirror.f.groups of cluster b" in line
    assert "--operation Describe --operation Write --transactional-id mirror.f.groups" in line


def test_positions_that_are_only_translated_need_no_permission_to_commit(clusters: list[fakes.Cluster]) -> None:
    clusters[0].set_moods({"groups": '["billing"]'})
    topic = "a.checkpoints.internal"
    denied = {f"topic {TOPIC}": ["WRITE"], "group billing": ["READ"], f"topic {topic}": ["WRITE"]}
    clusters[1].add_topic(TOPIC, [1]).add_topic(topic, [1]).set_moods({"denied": json.dumps(denied)})
    one = flow(topics=["orders"], mirrormaker={"checkpoints": True}, groups={"sync": False})
    (line,) = check_flows(config_of(one), [one]).warnings["f"]
    assert f"the permission Write on topic {topic} of cluster b is missing: checkpoints are not written" in line
    clusters[0].set_moods({"groups": "[]"})
    assert "no consumer group" in check_flows(config_of(one), [one]).warnings["f"][1]


def test_permissions_are_looked_up_for_flows_with_groups_only(clusters: list[fakes.Cluster]) -> None:
    clusters[0].set_moods({"groups": '["billing", "console-consumer-1", "mirror.x.3"]'})
    denied = {f"topic {TOPIC}": ["WRITE"], "group billing": ["READ"], "group console-consumer-1": ["READ"]}
    clusters[1].add_topic(TOPIC, [1]).set_moods({"denied": json.dumps(denied)})
    without = flow(topics=["orders", "clicks"], exactly_once_by="transactions")
    assert check_flows(config_of(without), [without]).warnings["f"] == []
    group, topic = check_flows(config_of(FLOW), [FLOW]).warnings["f"]
    assert "the permission Read on group billing of cluster b" in group
    assert f"the permission Write on topic {TOPIC}" in topic
    clusters[0].set_moods({"groups": "[]"})
    assert "no consumer group" in check_flows(config_of(FLOW), [FLOW]).warnings["f"][0]


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
    clusters[1].add_topic(TOPIC, [1])
    back = FLOW.model_copy(update={"name": "back", "source": "b", "target": "a", "topics": ("payments",)})
    topics, progress = check_flows(config_of(FLOW, back), [FLOW]).warnings["f"]
    assert topics == (
        "the permission Read on topics mirror-groups.back.internal, mirror-offsets.back.internal of cluster a is"
        " missing: groups that come back from there are not followed; grant to this client's user: kafka-acls --add"
        " --allow-principal User:... --operation Read --topic mirror-groups.back.internal"
        " --topic mirror-offsets.back.internal"
    )
    assert "the permission Describe on groups with the prefix mirror.back. of cluster a is missing" in progress
    assert "--operation Describe --group mirror.back. --resource-pattern-type prefixed" in progress
    clusters[0].set_moods({"groups": '["billing"]', "denied": "{}"})
    assert check_flows(config_of(FLOW, back), [FLOW]).warnings["f"] == []
