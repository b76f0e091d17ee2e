"""Differences as lines of a diff, and what a round's report says of them."""

from __future__ import annotations

import pytest

from mirror.alignment.decision import Reason
from mirror.alignment.report import AlignmentReport, Difference


def difference(
    wanted: str | None, target: str | None, reason: Reason | None = None, *, topic: str = "t", detail: str = ""
) -> Difference:
    return Difference(topic=topic, key="retention.ms", wanted=wanted, target=target, reason=reason, detail=detail)


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (difference("1", None), "+ retention.ms: the default -> 1"),
        (difference("1", "2"), "~ retention.ms: 2 -> 1"),
        (difference(None, "2"), "- retention.ms: 2 -> the default"),
        (difference("1", "2", Reason.CHANGED), "= retention.ms: 2, not 1 (changed-on-target)"),
        (difference("1", None, Reason.REFUSED, detail="why"), "= retention.ms: the default, not 1 (refused: why)"),
        (difference("\x1b[2J", None), "+ retention.ms: the default -> \\x1b[2J"),
    ],
)
def test_a_difference_is_a_line_of_a_diff(one: Difference, line: str) -> None:
    assert one.line() == line


def test_the_lines_of_a_topic_stand_together() -> None:
    report = AlignmentReport((difference("1", None), difference("1", "2"), difference("1", None, topic="u")))
    assert [line.strip()[0] for line in report.lines()] == ["t", "+", "~", "t", "+"]


def test_a_round_is_in_step_if_all_was_changed_and_nothing_is_held() -> None:
    pending, held = difference("1", None), difference("1", "2", Reason.BEFORE)
    kept = difference(None, "2", Reason.ONLY_ON_TARGET)
    assert AlignmentReport().is_in_step
    assert AlignmentReport((kept,)).is_in_step
    assert AlignmentReport((pending, kept), changed=1).is_in_step
    assert not AlignmentReport((pending,)).is_in_step
    assert not AlignmentReport((held,)).is_in_step
    assert not AlignmentReport(problems=("p",)).is_in_step


def test_warnings_name_each_refusal_and_count_the_rest() -> None:
    report = AlignmentReport(
        (
            difference("1", None, Reason.REFUSED, detail="why"),
            difference("1", "2", Reason.BEFORE),
            difference("1", "2", Reason.BEFORE, topic="u"),
            difference(None, "2", Reason.ONLY_ON_TARGET, topic="v"),
        ),
        problems=("p",),
        topics=3,
    )
    assert report.warnings() == (
        "p",
        "topic t: retention.ms = 1 is refused: why",
        "2 configurations of target topics differed-before; mirror drift lists them",
    )
    assert report.summary() == {
        "topics": 3,
        "changed": 0,
        "in_step": False,
        "not_in_step": {"refused": 1, "differed-before": 2},
        "problems": ["p"],
    }
    expected = "configurations of 3 target topics compared, 0 changed; not in step: 2 differed-before, 1 refused"
    assert report.line() == expected
