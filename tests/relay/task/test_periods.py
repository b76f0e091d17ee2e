"""What telemetry gets of a copy that goes on for months: each period by itself. No I/O."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.model.timeline import CopyPhase, SpanName
from mirror.relay.partition.across_attempts.attempt_outcome import AttemptOutcome
from mirror.relay.partition.across_attempts.result_recorder import ResultRecorder
from mirror.relay.task.periods import PeriodObserver

RANGE = Range(
    flow="f", topic="t", target_topic="a.t", partition=0, start=0, end=OPEN_END, source_cluster_id="a", topic_id="id"
)
TARGET = TopicPartition("a.t", 0)


class Observed(NullObserver):
    def __init__(self) -> None:
        self.results: list[RangeResult] = []

    def range_finished(self, range_: Range, result: RangeResult) -> None:
        assert range_ == RANGE
        self.results.append(result)


class Periods:
    """A copy that a test moves on by hand."""

    def __init__(self) -> None:
        self.observed, self.now = Observed(), 0
        self.failed: list[TopicPartition] = []
        self.periods = PeriodObserver(self.observed, self.failed.append)
        self.begin()

    def begin(self) -> None:
        self.recorder = ResultRecorder(RANGE, lambda: 1_000_000 + self.now, self.now, self.periods)
        self.recorder.timeline.start(0, 0, None)
        self.recorder.timeline.enter(CopyPhase.IDLE, self.now)

    def copied(self, records: int) -> None:
        self.recorder.result.records += records
        self.recorder.result.end += records

    def end(self, outcome: Outcome = Outcome.COMPLETE, error: str = "") -> None:
        self.now += 1_000
        copy = SimpleNamespace(
            range=RANGE,
            target=TARGET,
            recorder=self.recorder,
            result_at=lambda now: self.recorder.result_at(now, AttemptOutcome(outcome, error), None),
        )
        self.periods.end_period(cast("Any", copy), self.now)

    def close(self) -> None:
        self.recorder.close(self.now, AttemptOutcome(Outcome.COMPLETE), None)

    @property
    def seen(self) -> list[tuple[int, int, int]]:
        return [(one.start, one.end, one.records) for one in self.observed.results]


def test_each_period_is_passed_on_by_itself_unless_nothing_happened_in_it() -> None:
    one = Periods()
    for records in (3, 0, 4):
        one.copied(records)
        one.end()
    one.copied(2)
    one.now += 500
    one.close()
    assert one.seen == [(0, 3, 3), (3, 7, 4), (7, 9, 2)]
    assert one.recorder.result.records == 9, "the result of the copy is the sum"
    timelines = [result.timeline for result in one.observed.results if result.timeline is not None]
    assert [(each.began_ms, each.ended_ms) for each in timelines] == [
        (1_000_000, 1_001_000),
        (1_002_000, 1_003_000),
        (1_003_000, 1_003_500),
    ]
    assert [each.phases for each in timelines] == [{"idle": 1_000}, {"idle": 1_000}, {"idle": 500}]
    assert one.observed.results[1].seconds == pytest.approx(1)


def test_a_period_in_which_an_attempt_failed_is_passed_on() -> None:
    one = Periods()
    one.end(Outcome.FAILED, "no")
    assert [(each.outcome, each.error) for each in one.observed.results] == [(Outcome.FAILED, "no")]


def test_the_next_copy_of_a_partition_has_periods_of_its_own() -> None:
    one = Periods()
    one.copied(3)
    one.end()
    one.close()
    one.periods.forget([TARGET])
    one.begin()
    one.copied(2)
    one.end()
    assert one.seen == [(0, 3, 3), (3, 3, 0), (0, 2, 2)]


@pytest.mark.parametrize(("name", "failed"), [(SpanName.ATTEMPT, [TARGET]), (SpanName.CATCH_UP, [])])
def test_an_attempt_that_fails_is_noticed_by_its_span(name: SpanName, failed: list[TopicPartition]) -> None:
    found: list[TopicPartition] = []
    PeriodObserver(NullObserver(), found.append).span_ended(RANGE, {"name": name.value})
    assert found == failed
