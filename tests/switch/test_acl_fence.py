"""The fence by ACLs, and what has to be so before."""

from __future__ import annotations

import pytest

from mirror.client import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from mirror.cluster.acls import EVERYONE, write_denial
from mirror.switch.acl_fence import denied, exactly, lacking, why_not_fenced
from tests.alignment.permissions.authorizer import allows, topic

WRITE = AclOperation.WRITE


def test_a_denial_ends_the_writes_of_everyone_and_nothing_else() -> None:
    acls = [topic("t", WRITE), topic("t", AclOperation.READ), write_denial("t")]
    host = "10.0.0.1"
    assert not allows(acls, ResourceType.TOPIC, "t", "User:alice", host, WRITE)
    assert allows(acls, ResourceType.TOPIC, "t", "User:alice", host, AclOperation.READ)


def test_a_topic_without_an_acl_is_not_fenced() -> None:
    prefixed = topic("ord", WRITE, prefixed=True)
    assert [name for name, _ in why_not_fenced(["orders", "clicks"], [prefixed])] == ["clicks"]
    assert [*why_not_fenced(["orders", "clicks"], [topic("*")])] == []


def test_only_the_denial_itself_is_found_and_removed() -> None:
    one = write_denial("t")
    others = [topic("t", WRITE, deny=True), one._replace(host="1.2.3.4"), one._replace(operation=AclOperation.ALL)]
    prefixed = write_denial("v")._replace(pattern=PatternType.PREFIXED)
    assert denied([*others, prefixed, write_denial("w")]) == {"w"}
    found = exactly(write_denial("w"))
    assert (found.name, found.principal, found.permission) == ("w", "User:*", AclPermission.DENY)
    assert (found.pattern, found.operation, found.host) == (PatternType.LITERAL, WRITE, "*")


def test_principals_that_may_not_write_on_the_target_are_named() -> None:
    everything = AclBinding(ResourceType.TOPIC, "t", "User:bob", AclOperation.ALL)
    source = [topic("t", WRITE), everything, topic("u", WRITE)]
    assert lacking(["t", "u"], source, [topic("*", WRITE)]) == {"t": ["User:bob"]}
    assert lacking(["t"], source, [everything, topic("t", WRITE), write_denial("t")]) == {}


_ALICE = AclBinding(ResourceType.TOPIC, "t", "User:alice", WRITE)
_ALL = _ALICE._replace(principal=EVERYONE)
_REFUSED = _ALL._replace(permission=AclPermission.DENY, operation=AclOperation.ALL)


@pytest.mark.parametrize(
    ("source", "target", "missing"),
    [
        ([_ALICE], [_ALL], []),
        ([_ALICE], [_ALL, _ALICE._replace(permission=AclPermission.DENY)], ["User:alice"]),
        ([_ALL], [_ALICE], [EVERYONE]),
        ([_ALICE], [_ALICE, _REFUSED], ["User:alice"]),
        ([_ALICE, _REFUSED], [], []),
    ],
)
def test_acls_about_everyone_are_understood(
    source: list[AclBinding], target: list[AclBinding], missing: list[str]
) -> None:
    assert lacking(["t"], source, target) == ({"t": missing} if missing else {})
