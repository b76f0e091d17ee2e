"""Permissions that a flow lacks to keep ACLs in step are warnings: records are copied without them."""

from __future__ import annotations

from dataclasses import replace

from mirror.client import AclOperation
from mirror.spark.preflight.acl_check import missing_permissions
from mirror.spark.preflight.acl_permissions import AclPermissions, acl_warnings, names_of
from mirror.spark.preflight.permission_lines import NO_OPERATIONS, TopicPermissions
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_acl_check import EVERYTHING

ALL = frozenset(AclOperation)
FLOW = flow(topics=["orders"], exactly_once_by="transactions", acls={})
TOPIC, ID = names_of(FLOW)
GRANTED = AclPermissions(source=ALL, target=ALL, topic={TOPIC: TopicPermissions(1, ALL)}, ids={ID: ALL})


def test_with_all_permissions_nothing_is_said() -> None:
    assert acl_warnings(FLOW, GRANTED) == []
    assert acl_warnings(FLOW, AclPermissions()) == [], "what the brokers did not answer for"


def test_the_cluster_s_permissions_are_named_with_the_command() -> None:
    (line,) = acl_warnings(FLOW, replace(GRANTED, source=NO_OPERATIONS))
    assert line == (
        "the permission Describe on the ACLs of cluster a is missing: ACLs are not brought in step; grant to this"
        " client's user: kafka-acls --add --allow-principal User:... --operation Describe --cluster"
    )
    (line,) = acl_warnings(FLOW, replace(GRANTED, target=NO_OPERATIONS))
    assert line.endswith("--operation Describe --operation Alter --cluster")
    (line,) = acl_warnings(FLOW, replace(GRANTED, target=ALL - {AclOperation.ALTER}))
    assert "the permission Alter on the ACLs of cluster b is missing" in line
    assert acl_warnings(FLOW, replace(GRANTED, source=ALL - {AclOperation.ALTER})) == []


def test_the_inventory_and_its_id_are_named() -> None:
    (line,) = acl_warnings(FLOW, replace(GRANTED, topic={TOPIC: TopicPermissions(1, ALL - {AclOperation.WRITE})}))
    assert "Write on topic mirror-inventory.f.internal of cluster b is missing: ACLs are not brought in step" in line
    (line,) = acl_warnings(FLOW, replace(GRANTED, ids={ID: NO_OPERATIONS}))
    assert line.endswith("--operation Describe --operation Write --transactional-id mirror.f.acls")


def test_they_are_warnings_of_the_flow() -> None:
    found = replace(EVERYTHING, acls=replace(GRANTED, source=NO_OPERATIONS))
    missing = missing_permissions(FLOW, found)
    assert missing.problems == []
    assert [line for line in missing.warnings if "ACLs" in line]
