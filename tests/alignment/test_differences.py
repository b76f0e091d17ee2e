"""What users see of a round: lines of a diff, warnings, counts and JSON."""

from __future__ import annotations

import enum
from dataclasses import replace

import pytest

from mirror.alignment.acls import WORDS, describe
from mirror.alignment.config_decision import Reason
from mirror.alignment.differences import Difference, KindReport
from mirror.alignment.reconciler import Failure
from mirror.cluster.acls import AclOperation
from tests.alignment.permissions.authorizer import group, topic


def difference(
    reason: enum.StrEnum | None = None, *, done: bool = False, drift: bool = True, detail: str = "", under: str = ""
) -> Difference:
    return Difference(
        subject="s",
        text="retention.ms: 2 -> 1",
        change=None if reason else "set",
        sign="=" if reason else "~",
        done=done,
        reason=reason,
        detail=detail,
        is_drift=drift,
        name="topic t: retention.ms = 1",
        under=under,
        fields={"topic": "t"},
    )


def report(*differences: Difference, problems: tuple[str, ...] = (), off: str = "", compared: int = 3) -> KindReport:
    return KindReport(words=WORDS, differences=differences, problems=problems, off=off, compared=compared, time_ms=5)


PENDING, DONE = difference(), difference(done=True)
HELD, KEPT = difference(Reason.BEFORE), difference(Reason.ONLY_ON_TARGET, drift=False)
REFUSED = difference(Failure.REFUSED, detail="why\n")


def test_the_diff() -> None:
    assert PENDING.line() == "~ retention.ms: 2 -> 1"
    assert REFUSED.line() == "= retention.ms: 2 -> 1 (refused: why\\n)"
    under = [difference(under="topic t"), difference(under="topic t"), difference(under="topic u")]
    assert [line.strip()[:7] for line in report(*under).lines()] == [
        "topic t",
        "~ reten",
        "~ reten",
        "topic u",
        "~ reten",
    ]
    notes = KindReport(words=WORDS, notes=("left out\n",), off="no authorizer")
    assert list(notes.lines()) == ["= left out\\n", "= no authorizer"]


@pytest.mark.parametrize(
    ("found", "in_step"),
    [
        (report(), True),
        (report(KEPT), True),
        (report(DONE, KEPT), True),
        (report(PENDING), False),
        (report(HELD), False),
        (report(problems=("p",)), False),
        (report(off="no authorizer"), True),
    ],
)
def test_a_round_is_in_step_if_all_was_changed_and_nothing_is_held(found: KindReport, in_step: bool) -> None:
    assert found.is_in_step is in_step


def test_warnings_name_each_refusal_and_count_the_rest() -> None:
    found = report(
        *(replace(REFUSED, subject=number) for number in range(5)),
        HELD,
        HELD,
        KEPT,
        PENDING,
        problems=("p",),
        off="off",
    )
    refused = "topic t: retention.ms = 1 is refused: why\\n"
    assert found.warnings() == (
        "off",
        "p",
        *[refused] * 3,
        "2 ACLs differed-before; mirror drift lists them",
        "2 ACLs refused; mirror drift lists them",
    )


def test_lines_and_values() -> None:
    found = report(DONE, HELD, REFUSED)
    assert found.line() == "ACLs: 3 compared, 1 changed; not in step: 1 differed-before, 1 refused"
    assert report(off="no authorizer").line() == "no authorizer"
    assert report(problems=("p",), compared=0).line() == "ACLs could not be compared"
    summary = {
        "compared": 3,
        "changed": 1,
        "in_step": False,
        "not_in_step": {"differed-before": 1, "refused": 1},
        "off": None,
        "problems": [],
    }
    assert found.summary() == summary
    done, held, _ = found.to_json()["differences"]
    assert done == {"topic": "t", "change": "set", "done": True, "reason": None, "detail": None, "drift": True}
    assert (held["change"], held["reason"], held["done"]) == (None, "differed-before", False)


def test_of_two_rounds_the_report_has_what_each_has_changed() -> None:
    both = report(DONE, HELD).followed_by(report(DONE, compared=4))
    assert (both.changed, both.is_in_step, both.compared) == (2, True, 4)


def test_after_a_failure_what_differed_still_does() -> None:
    failed = report(DONE, HELD, KEPT).failed("no answer", 7)
    assert (failed.differences, failed.problems, failed.time_ms) == ((HELD,), ("no answer",), 7)


def test_acls_are_described_in_a_line() -> None:
    assert describe(topic("paris.t", host="10.0.0.1")) == (
        "ACL of topic paris.t: ALLOW READ for User:alice from 10.0.0.1"
    )
    assert describe(topic("paris.o", prefixed=True, deny=True)) == "ACL of topics paris.o*: DENY READ for User:alice"
    assert describe(group("g\n", AclOperation.DELETE)) == "ACL of group g\\n: ALLOW DELETE for User:alice"
