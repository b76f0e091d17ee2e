"""What users see of a round about ACLs."""

from __future__ import annotations

from mirror.alignment.permissions.decision import AclDifference, Change, Reason
from mirror.alignment.permissions.report import AclReport
from mirror.cluster.acls import AclOperation
from tests.alignment.permissions.authorizer import group, topic

CREATED = AclDifference(acl=topic("paris.t", host="10.0.0.1"), change=Change.CREATE)
DELETED = AclDifference(acl=topic("paris.o", prefixed=True, deny=True), change=Change.DELETE)
REMOVED = AclDifference(acl=group("g", AclOperation.DELETE), reason=Reason.REMOVED)
OTHERS = AclDifference(acl=topic("paris.t", AclOperation.WRITE), reason=Reason.ONLY_ON_TARGET)
REFUSED = AclDifference(acl=topic("paris.u\n"), reason=Reason.REFUSED, detail="no such\nprincipal")


def test_the_diff() -> None:
    report = AclReport((CREATED, DELETED, REMOVED, OTHERS, REFUSED), changing=2)
    assert list(report.lines()) == [
        "+ ACL of topic paris.t: ALLOW READ for User:alice from 10.0.0.1",
        "- ACL of topics paris.o*: DENY READ for User:alice",
        "= ACL of group g: ALLOW DELETE for User:alice (removed-on-target)",
        "= ACL of topic paris.t: ALLOW WRITE for User:alice (only-on-target)",
        "= ACL of topic paris.u\\n: ALLOW READ for User:alice (refused: no such\\nprincipal)",
        "= 2 ACLs of the source that allow more than reading: that is left out (write = false)",
    ]


def test_what_is_in_step() -> None:
    assert AclReport((OTHERS,), changing=1).is_in_step
    assert AclReport((CREATED, DELETED), created=1, deleted=1).is_in_step
    assert not AclReport((CREATED, DELETED), created=1).is_in_step
    assert not AclReport((REMOVED,)).is_in_step
    assert not AclReport(problems=("no answer",)).is_in_step
    assert AclReport(off="no authorizer").is_in_step


def test_warnings_are_the_same_until_something_changes() -> None:
    refused = [AclDifference(acl=topic(f"t{n}"), reason=Reason.REFUSED, detail="why") for n in range(5)]
    report = AclReport((CREATED, REMOVED, OTHERS, *refused), ("unread",), off="no authorizer")
    assert report.warnings() == (
        "no authorizer",
        "unread",
        "ACL of topic t0: ALLOW READ for User:alice is refused: why",
        "ACL of topic t1: ALLOW READ for User:alice is refused: why",
        "ACL of topic t2: ALLOW READ for User:alice is refused: why",
        "2 ACLs refused; mirror drift lists them",
        "1 ACL removed-on-target; mirror drift lists them",
    )


def test_lines_and_values() -> None:
    report = AclReport((CREATED, REMOVED), acls=7, created=1, time_ms=5)
    assert report.line() == "7 ACLs compared, 1 created, 0 deleted; not in step: 1 removed-on-target"
    assert AclReport(off="cluster b has no authorizer").line() == "ACLs: cluster b has no authorizer"
    assert report.summary() == {
        "acls": 7,
        "created": 1,
        "deleted": 0,
        "left_out": 0,
        "not_own": {},
        "in_step": False,
        "not_in_step": {"removed-on-target": 1},
        "off": None,
        "problems": [],
    }
    first, second = report.to_json()["differences"]
    assert first == {
        "resource": "topic",
        "name": "paris.t",
        "pattern": "literal",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "operation": "READ",
        "permission": "ALLOW",
        "change": "create",
        "reason": None,
        "detail": None,
        "drift": True,
    }
    assert (second["change"], second["reason"], second["resource"]) == (None, "removed-on-target", "group")
