"""The lines about consumer groups at the end of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

from mirror.groups.summary import GroupsSummary, HeldGroup
from mirror.spark.driver.output.tables import flow_results, worst_groups
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.ledger.results import FlowReport


def held(number: int, **changes: Any) -> HeldGroup:
    values = {"group": f"g{number}", "reasons": ("taken-over",), "detail": "orders-0", "age_ms": 0}
    return HeldGroup(**{**values, **changes})


def summary(count: int, **changes: Any) -> GroupsSummary:
    groups = tuple(held(number) for number in range(count))
    return GroupsSummary(**{"total": 30, "in_step": 10, "by_reason": {"taken-over": 20}, "held": groups, **changes})


def printed(report: FlowReport) -> str:
    text = StringIO()
    Terminal(text).print(flow_results(report))
    return text.getvalue()


def test_the_worst_groups_are_named_and_the_others_counted() -> None:
    lines = worst_groups(summary(20), "f")
    assert lines[:5] == [f"  g{number}: taken-over (orders-0)" for number in range(5)]
    assert lines[5:] == ["  and 15 more: mirror groups --flow f shows all"]


def test_a_group_has_its_age_and_is_one_short_printable_line() -> None:
    one = held(0, group="\x1b[31mred" + 200 * "x", detail="a\nb", age_ms=185_000)
    assert worst_groups(summary(0, held=(one,), total=11), "f") == [
        f"  \\x1b[31mred{109 * 'x'}...: taken-over for 3 min 5 s (a b)"
    ]


def test_groups_that_are_not_committed_are_not_listed() -> None:
    report = FlowReport("f", datetime.now(UTC), groups=summary(5, sync=False))
    assert printed(report) == "consumer groups: sync is off, nothing is committed on the target; 30 groups read\n"


def test_a_run_that_copied_nothing_has_lines_about_its_groups_only() -> None:
    report = FlowReport("f", datetime.now(UTC), groups=summary(0, total=10, by_reason={}))
    assert printed(report) == "consumer groups: 10 of 10 are in step; 0 offsets committed\n"
