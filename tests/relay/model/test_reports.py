"""The counts of reports add up, whatever becomes of single reports on their way."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.cluster.types import TopicPartition
from mirror.relay.model import reports
from mirror.relay.model.ranges import CountBasis, Outcome, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, LastReports, PartitionReport, ReportedCounts, difference
from mirror.spark.ledger.results import Totals

TARGET = TopicPartition("a.t", 0)
NOTHING = RangeResult(flow="f", topic="t", target_topic="a.t", partition=0, start=100, end=100)


def report(sequence: int, result: RangeResult, **values: Any) -> PartitionReport:
    identity = {"run": "r", "job": 1, "task": 0, "attempt": 0, "taken": 0, "version": 0, "state": COPYING}
    return PartitionReport(target=TARGET, sequence=sequence, result=result, **{**identity, **values})


@st.composite
def histories(draw: st.DrawFn) -> list[RangeResult]:
    """The cumulative results of one copy."""
    results = [NOTHING]
    for number in range(draw(st.integers(1, 6))):
        last = results[-1]
        more = draw(st.integers(0, 50))
        results.append(
            replace(
                last,
                end=last.end + more,
                records=last.records + more,
                batches=last.batches + min(more, 1),
                bytes=last.bytes + 70 * more,
                seconds=last.seconds + more,
                retries=last.retries + draw(st.integers(0, 1)),
                skipped={**last.skipped, "empty": last.skipped.get("empty", 0) + draw(st.integers(0, 2))},
                gaps={**last.gaps, f"kind {number}": draw(st.integers(1, 3))} if draw(st.booleans()) else last.gaps,
                expiries=[*last.expiries, {"time": number}] if draw(st.booleans()) else last.expiries,
                outcome=draw(st.sampled_from([Outcome.UNFINISHED, Outcome.EXPIRED])),
            )
        )
    return results[1:]


def without_zeros(result: RangeResult) -> RangeResult:
    kept: dict[str, Any] = {
        name: {k: n for k, n in getattr(result, name).items() if n} for name in ("skipped", "deep", "gaps")
    }
    return replace(result, start=0, end=0, **kept)


@given(st.lists(histories(), min_size=1, max_size=3), st.data())
@settings(max_examples=30)
def test_the_deltas_add_up_to_the_last_results_however_reports_are_lost_repeated_and_ordered(
    histories_of_copies: list[list[RangeResult]], data: st.DataObject
) -> None:
    """The copies are those of a lost task, of its retry and of another owner; each one counts from zero."""
    copies: list[dict[str, Any]] = [{"attempt": 0}, {"attempt": 1}, {"taken": 7, "task": 1}]
    made = [
        report(number, result, **copies[copy])
        for copy, results in enumerate(histories_of_copies)
        for number, result in enumerate(results)
    ]
    lasts = [results[-1] for results in histories_of_copies]
    read = data.draw(st.lists(st.sampled_from(made), max_size=8)) + data.draw(st.permutations(made))
    drawn = [data.draw(st.booleans()) for _ in read]
    is_last = [any(each.result is last for last in lasts) for each in read]
    read = [each for each, kept, needed in zip(read, drawn, is_last, strict=True) if kept or needed]
    counts, totals, reference = ReportedCounts("r"), Totals(), Totals()
    for each in read:
        added = counts.take(each)
        if added is not None:
            assert min(added.records, added.batches, added.bytes, added.retries, *added.skipped.values(), 0) == 0
            totals.count(added)
    for last in lasts:
        reference.count(last)
    (total,), (expected,) = totals.results(), reference.results()
    listed: dict[str, Any] = {"expiries": [], "target_losses": [], "seconds": 0.0}
    assert without_zeros(replace(total, **listed)) == without_zeros(replace(expected, **listed))
    assert total.seconds == pytest.approx(expected.seconds)
    assert total.end == lasts[-1].end, "the latest copy says how far it is"
    if len(lasts) == 1:
        assert sorted(map(str, total.expiries)) == sorted(map(str, expected.expiries))


@given(histories())
@settings(max_examples=30)
def test_delta_in_order_gives_each_part_once(results: list[RangeResult]) -> None:
    reports = [report(number, result) for number, result in enumerate(results)]
    counts, totals = ReportedCounts("r"), Totals()
    deltas = [added for each in reports if (added := counts.take(each)) is not None]
    for each in deltas:
        totals.count(each)
    (total,) = totals.results()
    assert without_zeros(total) == without_zeros(results[-1])
    assert [each.start for each in deltas[1:]] == [each.end for each in results[:-1]]
    assert reduce(lambda records, each: records + each.records, deltas, 0) == results[-1].records


def test_a_report_that_is_not_later_adds_nothing_and_keeps_the_state() -> None:
    counts = ReportedCounts("r")
    earlier = report(1, replace(NOTHING, records=3, end=103, outcome=Outcome.EXPIRED, error="slow"))
    later = report(2, replace(NOTHING, records=5, end=105))
    assert counts.latest(TARGET) is None
    counts.take(later)
    assert [counts.take(now) for now in (earlier, later)] == [None, None]
    assert counts.latest(TARGET) is later


@pytest.mark.parametrize(
    "other", [{"attempt": 1}, {"task": 2}, {"taken": 3}, {"job": 2}], ids=lambda one: next(iter(one))
)
def test_another_copy_counts_all_although_its_sequence_is_lower(other: dict[str, Any]) -> None:
    before = report(9, replace(NOTHING, records=40, end=140))
    now = report(0, replace(NOTHING, start=120, records=5, end=125), **other)
    counts = ReportedCounts("r")
    counts.take(before)
    assert counts.take(now) == now.result


def test_a_late_report_of_an_earlier_copy_counts_but_does_not_change_the_state() -> None:
    counts = ReportedCounts("r")
    failed = replace(NOTHING, records=4, end=104, outcome=Outcome.FAILED, error="refused")
    assert counts.take(report(0, replace(NOTHING, start=104, records=6, end=110), attempt=1)) is not None
    added = counts.take(report(5, failed, state=SETTLED, version=2))
    assert added is not None
    assert (added.records, added.start, added.end) == (4, 110, 110)
    assert (added.outcome, added.error) == (Outcome.UNFINISHED, None)
    assert counts.take(report(5, failed)) is None


def test_reports_of_other_runs_add_nothing() -> None:
    assert ReportedCounts("r").take(report(0, replace(NOTHING, records=1), run="before")) is None


def test_a_settled_partition_of_which_nothing_was_copied_adds_nothing() -> None:
    assert ReportedCounts("r").take(report(0, replace(NOTHING, topic=""), state=SETTLED)) is None


def test_few_copies_are_kept_and_those_before_them_add_nothing() -> None:
    counts, one = ReportedCounts("r"), replace(NOTHING, records=1, end=101)
    moves = [report(0, one, taken=version) for version in range(1, 100)]
    assert all(counts.take(move) == one for move in moves)
    assert [counts.take(move) for move in moves] == [None] * 99, "all of it was read again"
    assert len(counts._last[TARGET]) == 4


def test_a_result_without_counts_of_its_task_keeps_its_basis() -> None:
    unknown = replace(NOTHING, counted=CountBasis.UNKNOWN)
    assert difference(NOTHING, unknown).counted is CountBasis.UNKNOWN


def test_a_task_keeps_the_last_report_of_what_it_has_and_of_what_it_has_settled_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "MOST_SETTLED", 2)
    last, made = (
        LastReports(),
        [replace(report(1, NOTHING), target=TopicPartition("a.t", number)) for number in range(4)],
    )
    for one in made:
        last.take(one)
    for one in made[:3]:
        last.take(replace(one, sequence=2, state=SETTLED))
    assert [(one.target.partition, one.state) for one in last.all()] == [(1, SETTLED), (2, SETTLED), (3, COPYING)]
    last.take(replace(made[1], sequence=3))
    assert [(one.target.partition, one.state) for one in last.all()] == [(2, SETTLED), (3, COPYING), (1, COPYING)]
