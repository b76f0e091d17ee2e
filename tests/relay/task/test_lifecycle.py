"""A task that lives until it is to stop, or its ranges are done."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.errors import KafkaTimeout
from mirror.relay.futures import done, failed
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.relay.progress.control_record import DEAD_AFTER_MS, HEARTBEAT_INTERVAL_MS, RunControl
from mirror.relay.task.lifecycle import TaskLifecycle
from tests.relay.copy_harness import made
from tests.relay.hand_context import TIMES
from tests.relay.task_harness import TaskHarness

WIND_UP_MS = 5_000
CONTROL = RunControl(run="run-1", host="h", since_ms=1, job=3, generation=2, seen_ms=1)


class Job:
    """A task of job 3 of run 1; ``commands`` are control records and when they are written, in ms since it began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, commands: dict[int, RunControl], partitions: int = 4) -> None:
        self.harness = TaskHarness(partitions, monkeypatch)
        self.harness.end = OPEN_END
        self.harness.lookups.run_control = self.read  # type: ignore[method-assign]
        self.began_ms = self.harness.clock.now()
        self.commands = commands
        self.fails_from = OPEN_END
        self.renewed_until = OPEN_END
        """Until when the driver lives, in ms since the task began."""

    @property
    def passed_ms(self) -> int:
        return self.harness.clock.now() - self.began_ms

    def read(self) -> Future[RunControl | None]:
        if self.passed_ms >= self.fails_from:
            return failed(KafkaTimeout("no answer"))
        record = max((at, command) for at, command in self.commands.items() if at <= self.passed_ms)[1]
        beats = min(self.passed_ms, self.renewed_until) // HEARTBEAT_INTERVAL_MS
        return done(replace(record, seen_ms=record.seen_ms + beats))

    def copy(self, **policy: Any) -> list[RangeResult]:
        policy = {"run": "run-1", "job": 3, "generation": 2, "wind_up_ms": WIND_UP_MS, **policy}
        return self.harness.copy(**policy)


STOP = replace(CONTROL, stop=True)


def test_a_task_copies_until_it_is_to_stop_and_stops_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, {0: CONTROL, 1_200_000: STOP})
    job.harness.source.later[0] = [(job.began_ms + 1_100_000, made(2))]
    results = job.copy()
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    assert 1_200_000 <= job.passed_ms <= 1_202_000
    assert job.harness.target.committed == {0: 3, 1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("other", [{"run": "run-2", "generation": 3}, {"run": "run-0", "generation": 3}])
def test_a_task_stops_if_a_run_of_a_higher_generation_has_the_flow(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    job = Job(monkeypatch, {0: CONTROL, 20_000: replace(CONTROL, **other)})
    results = job.copy()
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    assert 20_000 <= job.passed_ms <= 22_000


def test_a_task_whose_driver_has_died_stops_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark ends its executors only if they are its own: on a cluster they may outlive the driver."""
    job = Job(monkeypatch, {0: CONTROL})
    job.renewed_until = 300_000
    results = job.copy()
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    assert 0 <= job.passed_ms - (300_000 + DEAD_AFTER_MS) <= 2_000


@dataclass(eq=False)
class _Copy:
    range: SimpleNamespace
    expired: bool

    def wind_up(self, now: int, *, immediately: bool) -> None:
        """It ends by itself."""


@pytest.mark.parametrize(
    ("copies", "retries"),
    [([(True, True)], True), ([(False, True)], False), ([(False, True), (False, False)], True), ([], False)],
)
def test_expired_copies_are_retried_while_one_is_followed_or_has_not_expired(
    copies: list[tuple[bool, bool]], *, retries: bool
) -> None:
    """A run ends, although its target may stay away: its next schedule continues. A stream has no other."""
    stop: Future[RunControl | None] = done(STOP)
    one = TaskLifecycle(CopyPolicy(run="run-1", job=3), TIMES, lambda: stop, lambda _: None, lambda: 0)
    active: Any = [_Copy(SimpleNamespace(open_ended=followed), expired) for followed, expired in copies]
    one.active.update(active)
    assert one.may_retry() is retries
    for now in (0, 1):
        one.update(now)
    assert not one.may_retry(), "it is to stop"


def test_reads_that_fail_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target may be away for hours; whether the driver lives is not known."""
    job = Job(monkeypatch, {0: CONTROL, 1_000_000: STOP})
    job.fails_from = 20_000

    def come_back() -> Future[RunControl | None]:
        if job.passed_ms >= 900_000:
            job.fails_from = OPEN_END
        return job.read()

    job.harness.lookups.run_control = come_back  # type: ignore[method-assign]
    job.copy()
    assert 1_000_000 <= job.passed_ms <= 1_002_000


def test_what_the_target_does_not_acknowledge_holds_up_the_stop_for_the_wind_up_time_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, {0: CONTROL, 1_000: STOP})
    job.harness.target.silent = {1}
    results = {result.partition: result for result in job.copy()}
    assert 1_000 <= job.passed_ms <= 2_000 + min(WIND_UP_MS, TIMES.request_timeout_ms) + 100
    assert results[1].outcome is Outcome.UNFINISHED
    assert {results[each].outcome for each in (0, 2, 3)} == {Outcome.COMPLETE}


def test_a_task_whose_ranges_have_ends_ends_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is a job like that of a stream; only its ranges have ends."""
    job = Job(monkeypatch, {0: CONTROL})
    job.harness.end = 2
    assert {(result.outcome, result.records) for result in job.copy()} == {(Outcome.COMPLETE, 2)}
    assert job.passed_ms < 1_000


def test_a_followed_partition_that_fails_is_retried_for_as_long_as_the_task_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, {0: CONTROL, 1_200_000: STOP}, partitions=1)
    job.harness.target.forbidden = {0}
    (result,) = job.copy()
    assert result.outcome is Outcome.FAILED
    assert result.retries > 15
    assert job.passed_ms <= 1_202_000
