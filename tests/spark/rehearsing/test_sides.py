"""What of topics, configurations and ACLs is not ready, and what is not compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirror.alignment import acls, topic_configs, topic_deletions
from mirror.alignment.acl_decision import Reason as AclReason
from mirror.alignment.config_decision import Reason
from mirror.alignment.config_requests import TopicKey
from mirror.alignment.differences import Difference, KindReport
from mirror.rehearsal.values import Kind
from mirror.spark.preflight.drift import FlowDrift
from mirror.spark.rehearsing.sides import blockers_of, notes_of
from tests.spark.planning.test_range_planner import flow

DUE = Difference(subject=TopicKey("a.t", "retention.ms"), text="retention.ms: 2 -> 1", change="set", sign="~")
ACL = Difference(subject=None, text="ACL of topic a.t: ALLOW READ for User:alice", change="create", sign="+")
REMOVED = replace(ACL, change=None, reason=AclReason.REMOVED)


def configs(*differences: Difference, **more: Any) -> KindReport:
    return KindReport(words=topic_configs.WORDS, differences=differences, **more)


def of_acls(*differences: Difference, **more: Any) -> KindReport:
    return KindReport(words=acls.WORDS, differences=differences, **more)


def drift(**changes: Any) -> FlowDrift:
    values = {
        "changes": [],
        "done": [],
        "obstacles": {},
        "configs": configs(),
        "deletions": KindReport(words=topic_deletions.WORDS),
        "acls": of_acls(),
        "warnings": [],
    }
    return FlowDrift(flow="f", source="a", target="b", **{**values, **changes})


def test_sides_in_step_have_no_blockers() -> None:
    assert list(blockers_of(flow(), drift())) == []


def test_consumers_do_not_switch_to_a_test_copy() -> None:
    (found,) = blockers_of(flow(test_copy={"sample": "1%"}), drift())
    assert (found.kind, found.name) == (Kind.CONFIGURATION, "test-copy")
    assert "b does not have all records of a as they are" in found.reason


def test_each_difference_has_a_reason_and_what_to_do() -> None:
    held = replace(DUE, change=None, reason=Reason.CHANGED)
    only = replace(DUE, change=None, reason=Reason.ONLY_ON_TARGET, is_drift=False)
    others = replace(ACL, change=None, reason=AclReason.ONLY_ON_TARGET, is_drift=False)
    found = list(
        blockers_of(
            flow(),
            drift(
                changes=["on b: topic a.u is created"],
                obstacles={"x": "topic x is too long"},
                configs=configs(DUE, held, only, problems=("b refuses",)),
                acls=of_acls(ACL, REMOVED, others),
            ),
        )
    )
    assert [one.kind for one in found] == [
        Kind.TOPIC,
        Kind.TOPIC,
        Kind.CONFIGURATION,
        Kind.CONFIGURATION,
        Kind.ACL,
        Kind.ACL,
        Kind.CONFIGURATION,
    ]
    assert (found[0].name, found[0].reason) == ("b", "topic a.u is created")
    assert all(one.reason and one.action for one in found)
    assert "retention.ms: 2 -> 1" in found[2].reason
    assert "--adopt" in found[3].action
    assert found[4].reason == "it is to be created"
    assert "--adopt" in found[5].action


def test_a_reason_of_an_acl_has_its_own_remedy_and_commands_name_the_flow() -> None:
    unowned = replace(DUE, change=None, reason=Reason.NOT_OWNED)
    reducing = replace(unowned, reason=Reason.OVER_LIMIT)
    acl = replace(REMOVED, reason=AclReason.OVER_LIMIT)
    both = drift(configs=configs(unowned, reducing), acls=of_acls(acl, REMOVED))
    actions = [one.action for one in blockers_of(flow(), both)]
    assert "mirror apply --flow f --adopt a.t," in actions[0]
    assert "mirror apply --flow f --max-deletions N" in actions[1]
    assert "max-acls" in actions[2]
    assert "mirror apply --flow f --adopt takes" in actions[3]


def test_what_is_not_compared_is_said() -> None:
    assert next(iter(notes_of(flow(configs="off"), drift()))).startswith("configurations of topics are not compared")
    left_out = drift(acls=of_acls(counts={"left_out": 3}))
    assert any(note.startswith("3 ACLs of") and "producers" in note for note in notes_of(flow(), left_out))
