"""What a task reports of itself and its partitions: what has changed, a bounded number at a time. No I/O."""

from __future__ import annotations

from typing import Any, cast

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, PartitionReport, TaskState
from mirror.relay.model.timeline import CopyTimeline
from mirror.relay.task.reporting import (
    ALIVE_MS,
    MAX_ERROR_LENGTH,
    MAX_REPORTED_LOSSES,
    MAX_REPORTS,
    ROUND_MS,
    URGENT_ROUND_MS,
    TaskReporter,
)

POLICY = CopyPolicy(run="run-1", job=3, task=5, attempt=2)


class Copied:
    """A copy, as the reporter sees it."""

    def __init__(self, number: int) -> None:
        self.target = TopicPartition("t", number)
        self.range = _range(number)
        self.result = RangeResult.initial(self.range, 0, Outcome.COMPLETE)
        self.done = self.failing = False

    def result_at(self, now: int) -> RangeResult:
        del now
        return self.result

    def copy(self, records: int) -> None:
        self.result.records += records
        self.result.end += records

    def fail(self, error: str = "no") -> None:
        self.result.outcome, self.result.error, self.failing = Outcome.FAILED, error, True
        self.result.retries += 1


def _range(number: int) -> Range:
    return Range(
        flow="f", topic="s", target_topic="t", partition=number, start=0, end=9, source_cluster_id="a", topic_id="id"
    )


class Reported:
    def __init__(self, partitions: int) -> None:
        self.sent: list[TaskState | PartitionReport] = []
        self.copies = {TopicPartition("t", number): Copied(number) for number in range(partitions)}
        self.reporter = TaskReporter(self.sent.append, POLICY, "f", lambda: 1_000, 0)
        self.reporter.on_taken(self.copies, 0)

    def __getitem__(self, number: int) -> Copied:
        return self.copies[TopicPartition("t", number)]

    def update(self, now: int, version: int = 0) -> list[PartitionReport]:
        """Return the reports of partitions that are sent now."""
        return self._sent(lambda: self.reporter.update(now, cast("Any", self.copies), version))

    def end(self, now: int) -> list[PartitionReport]:
        return self._sent(lambda: self.reporter.end(now, cast("Any", self.copies), 0, ""))

    def settle(self, number: int, version: int, *, held: bool = True) -> PartitionReport:
        copy = self.copies.pop(TopicPartition("t", number)) if held else None
        (report,) = self._sent(lambda: self.reporter.settle(TopicPartition("t", number), cast("Any", copy), version, 0))
        return report

    def _sent(self, report: Any) -> list[PartitionReport]:
        before = len(self.sent)
        report()
        return [one for one in self.sent[before:] if isinstance(one, PartitionReport)]

    @property
    def states(self) -> list[TaskState]:
        return [one for one in self.sent if isinstance(one, TaskState)]


def numbers(reports: list[PartitionReport]) -> list[int]:
    return [report.target.partition for report in reports]


def test_only_what_has_changed_is_reported_in_each_round() -> None:
    one = Reported(3)
    assert numbers(one.update(0)) == [0, 1, 2], "each partition once, to begin with"
    one[1].copy(5)
    assert one.update(ROUND_MS - 1) == []
    (report,) = one.update(ROUND_MS)
    assert (report.target.partition, report.state, report.result.records) == (1, COPYING, 5)
    assert (report.run, report.job, report.task, report.attempt, report.taken) == ("run-1", 3, 5, 2, 0)
    assert one.update(2 * ROUND_MS) == []
    assert [(state.partitions, state.version, state.seen_ms) for state in one.states] == [(3, 0, 1_000)] * 3


def test_a_task_reports_that_it_is_alive_more_often_than_what_has_changed() -> None:
    one = Reported(1)
    for now in range(0, 2 * ROUND_MS, 1_000):
        assert one.update(now) == [] or now == 0
        assert one.reporter.due_ms() <= now + ALIVE_MS
    assert len(one.states) == -(-2 * ROUND_MS // ALIVE_MS)


def test_a_round_is_bounded_and_those_that_wait_longest_go_first() -> None:
    one = Reported(3 * MAX_REPORTS)
    seen: list[int] = []
    for number in range(3):
        for copy in one.copies.values():
            copy.copy(1)
        reports = one.update(number * ROUND_MS)
        assert len(reports) == MAX_REPORTS
        assert {report.result.records for report in reports} == {number + 1}, "what they have done until now"
        seen += numbers(reports)
    assert seen == list(range(3 * MAX_REPORTS))


def test_five_thousand_active_partitions_are_all_reported_within_ten_seconds() -> None:
    one, due = Reported(5_000), 0
    one.update(0)
    seen = set[int]()
    while due <= 10_000:
        for copy in one.copies.values():
            copy.copy(1)
        seen.update(numbers(one.update(due)))
        due += URGENT_ROUND_MS
    assert len(seen) == 5_000


def test_what_copies_goes_before_thousands_that_have_begun_and_are_idle() -> None:
    one = Reported(3 * MAX_REPORTS)
    for number in range(0, 3 * MAX_REPORTS, 10):
        one[number].copy(1)
    one[7].fail()
    first = numbers(one.update(0))
    assert first[:2] == [7, 0]
    assert set(range(0, 3 * MAX_REPORTS, 10)) < set(first)
    one[1_499].copy(1)
    assert numbers(one.update(ROUND_MS))[0] == 1_499


def test_failures_are_reported_within_a_second() -> None:
    one = Reported(2)
    one.update(0)
    one[1].fail("x" * 2_000)
    one.reporter.on_failed(one[1].target)
    assert one.reporter.due_ms() == URGENT_ROUND_MS
    assert one.update(URGENT_ROUND_MS - 1) == []
    (report,) = one.update(URGENT_ROUND_MS)
    assert (report.state, report.result.outcome) == (Outcome.FAILED, Outcome.FAILED)
    assert len(str(report.result.error)) == MAX_ERROR_LENGTH
    assert one.reporter.due_ms() == ALIVE_MS
    assert one.update(ROUND_MS) == [], "it was reported"


def test_many_failures_are_bounded_too() -> None:
    one = Reported(2 * MAX_REPORTS)
    for _ in range(2):
        one.update(0)
        one.reporter._round_at = 0
    one.reporter._round_at = ROUND_MS
    for copy in one.copies.values():
        copy.fail()
        one.reporter.on_failed(copy.target)
    reports = [one.update(URGENT_ROUND_MS * second) for second in (1, 2, 3)]
    assert [len(each) for each in reports] == [MAX_REPORTS, MAX_REPORTS, 0]
    assert len({number for each in reports for number in numbers(each)}) == 2 * MAX_REPORTS


def test_what_is_settled_is_reported_at_once() -> None:
    one = Reported(2)
    one.update(0)
    one[0].copy(4)
    report = one.settle(0, 7)
    assert (report.state, report.version, report.taken, report.result.records) == (SETTLED, 7, 0, 4)
    assert report.sequence == 2
    nothing = one.settle(9, 8, held=False)
    assert (nothing.state, nothing.version, nothing.result.records) == (SETTLED, 8, 0)


def test_the_next_copy_of_a_partition_counts_from_zero() -> None:
    one = Reported(1)
    one[0].copy(4)
    first = one.update(0)[0]
    one.settle(0, 1)
    one.copies[TopicPartition("t", 0)] = Copied(0)
    one.reporter.on_taken(one.copies, 2)
    one[0].copy(3)
    second = one.update(ROUND_MS)[0]
    assert (second.taken, second.sequence, second.result.records) == (2, 1, 3)
    assert first.copy_id != second.copy_id


def test_a_report_is_small() -> None:
    one = Reported(1)
    one[0].result.timeline = CopyTimeline()
    one[0].result.expiries = [{"time_ms": number} for number in range(9)]
    one[0].result.target_losses = [{"start": number} for number in range(9)]
    (report,) = one.update(0)
    assert report.result.timeline is None
    assert len(report.result.expiries) == len(report.result.target_losses) == MAX_REPORTED_LOSSES
    assert report.result.expiries[-1] == {"time_ms": 8}
    assert len(one[0].result.expiries) == 9, "the result itself has them all"


def test_the_end_of_a_task_reports_all_that_has_changed() -> None:
    one = Reported(2 * MAX_REPORTS)
    for copy in one.copies.values():
        copy.copy(1)
        copy.done = True
    reports = one.end(5)
    assert len(reports) == 2 * MAX_REPORTS
    assert {report.state for report in reports} == {Outcome.COMPLETE}
    assert one.states[-1].stopping == "its ranges are copied"
