"""Permissions that a flow lacks to keep configurations in step are warnings: records are copied without them."""

from __future__ import annotations

from dataclasses import replace

from mirror.client import AclOperation
from mirror.spark.preflight.acl_check import FlowPermissions, missing_permissions
from mirror.spark.preflight.config_permissions import ConfigPermissions, config_warnings, deletion_warnings, names_of
from mirror.spark.preflight.permission_lines import NO_OPERATIONS, TopicPermissions
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_acl_check import EVERYTHING

ALL = frozenset(AclOperation)
FLOW = flow(topics=["orders", "clicks"], exactly_once_by="transactions", configs="sync")
TOPIC, (ID,) = names_of(FLOW)
GRANTED = ConfigPermissions(topic={TOPIC: TopicPermissions(1, ALL)}, ids={ID: ALL})


def without(*operations: AclOperation) -> TopicPermissions:
    return TopicPermissions(1, ALL - set(operations))


def lines(
    found: ConfigPermissions = GRANTED,
    source: TopicPermissions | None = None,
    target: TopicPermissions | None = None,
) -> list[str]:
    return config_warnings(FLOW, found, {"orders": source}, {"a.orders": target})


def test_with_all_permissions_nothing_is_said() -> None:
    assert lines(source=without(), target=without()) == []
    assert lines() == [], "topics that do not exist are created"


def test_alter_configs_on_target_topics_is_named_with_the_command() -> None:
    (line,) = lines(target=without(AclOperation.ALTER_CONFIGS))
    assert line == (
        "the permission AlterConfigs on topic a.orders of cluster b is missing: their configurations are not brought in"
        " step; grant to this client's user: kafka-acls --add --allow-principal User:... --operation AlterConfigs"
        " --topic a.orders"
    )


def test_the_source_s_configuration_the_inventory_and_its_id_are_named() -> None:
    (line,) = lines(source=without(AclOperation.DESCRIBE_CONFIGS))
    assert "DescribeConfigs on topic orders of cluster a is missing" in line
    (line,) = lines(replace(GRANTED, topic={TOPIC: without(AclOperation.WRITE)}))
    assert "Write on topic mirror-inventory.f.internal of cluster b is missing: no configuration is brought in" in line
    (line,) = lines(replace(GRANTED, ids={ID: NO_OPERATIONS}))
    assert line.endswith("--operation Describe --operation Write --transactional-id mirror.f.inventory")


def test_what_is_not_visible_or_is_checked_for_sequences_is_named_once() -> None:
    assert lines(source=TopicPermissions(0, NO_OPERATIONS), target=TopicPermissions(0, NO_OPERATIONS)) == []
    source = {**EVERYTHING.source, "orders": without(AclOperation.DESCRIBE_CONFIGS)}
    target = {**EVERYTHING.target, "a.orders": without(AclOperation.ALTER_CONFIGS)}
    found: FlowPermissions = replace(EVERYTHING, source=source, target=target, configs=GRANTED)
    for way, why in (("auto", "go in transactions"), ("transactions", "are not brought in step")):
        said = missing_permissions(flow(topics=["orders"], configs="sync", exactly_once_by=way), found).warnings
        assert [line for line in said if "DescribeConfigs on topic orders of cluster a" in line and why in line]
        assert len([line for line in said if "DescribeConfigs on topic orders" in line]) == 1
        assert len([line for line in said if "AlterConfigs on topic a.orders" in line]) == 1
    assert not missing_permissions(flow(), replace(found, configs=None)).problems


def test_delete_on_target_topics_is_named_only_where_topics_are_deleted() -> None:
    deleting = flow(topics=["orders"], exactly_once_by="transactions", on_topic_deleted="delete")
    topic, (own_id,) = names_of(deleting)
    granted = ConfigPermissions(topic={topic: without()}, ids={own_id: ALL})
    (line,) = deletion_warnings(deleting, granted, {"a.orders": without(AclOperation.DELETE), "a.new": None})
    assert "Delete on topic a.orders of cluster b is missing: they are not deleted when their source" in line
    (line,) = deletion_warnings(deleting, replace(granted, topic={topic: without(AclOperation.WRITE)}), {})
    assert "Write on topic mirror-inventory.f.internal of cluster b is missing: no topic is deleted" in line
    (line,) = deletion_warnings(deleting, replace(granted, ids={own_id: NO_OPERATIONS}), {})
    assert line.endswith("--transactional-id mirror.f.deletions")
    target = {**EVERYTHING.target, "a.orders": without(AclOperation.DELETE)}
    for one, said in ((deleting, 1), (flow(topics=["orders"], exactly_once_by="transactions"), 0)):
        found = missing_permissions(one, replace(EVERYTHING, target=target, configs=granted)).warnings
        assert len([line for line in found if "Delete on topic a.orders" in line]) == said
