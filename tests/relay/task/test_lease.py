"""Copies that continue under their lease between two epochs of a stream, and the counts of what they copy."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import OffsetAndMetadata, RecordMetadata, TopicPartition
from mirror.errors import DeliveryCause, DeliveryPhase, DeliveryTimeout, Fenced
from mirror.producer.batch.batches import Callback
from mirror.relay.futures import done, failed
from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.partition.context import CopyHandle
from mirror.relay.progress.committed import NO_TOTALS, Progress, ProgressTotals, from_offset, to_offset
from mirror.relay.progress.control import RunControl
from mirror.relay.task.task import Task
from mirror.wire.records import Batch
from tests.relay.copy_harness import made, progress_at
from tests.relay.hand_context import TIMES
from tests.relay.task_harness import TaskHarness

EPOCH_MS = 60_000
LEASE_MS = 10_000


class Transactions:
    """The target of all partitions: its committed progress, and when it fences the copies."""

    def __init__(self, harness: TaskHarness) -> None:
        self.harness = harness
        self.progress: dict[int, Progress] = {}
        self.ends: dict[int, int] = {}
        self.fenced_at = self.fenced_until = OPEN_END
        self.opened: list[tuple[int, int]] = []
        self.sick: set[int] = set()
        self.silent_at = 0
        self.opens_at: dict[int, int] = {}
        """When partitions open that do not open immediately."""
        self.opening: dict[int, Future[Progress | None]] = {}

    def answer(self) -> None:
        """Answer what is opening, and due."""
        for partition, opened in list(self.opening.items()):
            if self.harness.clock.now() >= self.opens_at.get(partition, 0):
                del self.opening[partition]
                opened.set_result(self.progress.get(partition, progress_at(0)))

    def new_writer(self, copy: CopyHandle) -> AnsweringWriter:
        self.opened.append((copy.source.partition, self.harness.clock.now()))
        return AnsweringWriter(self, copy.source.partition)


class AnsweringWriter:
    """A writer that answers immediately."""

    atomic = True
    way = Way.TRANSACTIONS
    acquired = True
    continues = False
    valid_until_ms = OPEN_END
    producer_id = 7
    fences_in_doubt = 0

    def __init__(self, target: Transactions, partition: int) -> None:
        self.target, self.partition = target, partition

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        del planned
        assert timeout_ms > 0
        opened: Future[Progress | None] = Future()
        self.target.opening[self.partition] = opened
        self.target.answer()
        return opened

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        """The log ends with the progress."""

    def send(self, batch: Batch, created_ms: int | None, callback: Callback, log_end: int) -> None:
        del created_ms, log_end
        tp = TopicPartition("paris.t", self.partition)
        if self.partition not in self.target.sick:
            end = self.target.ends.get(self.partition, 0)
            self.target.ends[self.partition] = end + int(batch.count)
            callback(RecordMetadata(tp, end))
        elif self.target.harness.clock.now() < self.target.silent_at:
            callback(expired(tp))

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        assert timeout_ms > 0
        if self.target.fenced_at <= self.target.harness.clock.now() < self.target.fenced_until:
            return failed(Fenced("another attempt", 90))
        if self.partition in self.target.sick:
            return Future()  # the transaction includes a batch without an answer
        self.target.progress[self.partition] = progress
        return done(None)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int) -> int:
        return pending_since_ms + interval_ms

    def close(self, timeout_ms: int) -> Future[None]:
        assert timeout_ms > 0
        return done(None)


def expired(tp: TopicPartition) -> DeliveryTimeout:
    return DeliveryTimeout(
        "too late",
        topic=tp.topic,
        partition=tp.partition,
        age_ms=6_000,
        queued_ms=6_000,
        in_flight_ms=0,
        attempts=0,
        phase=DeliveryPhase.METADATA,
        cause=DeliveryCause.NO_LEADER,
        may_have_been_written=False,
    )


class LeaseHarness:
    """An epoch of a stream with four partitions, and the results that it handed over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.harness = TaskHarness(4, monkeypatch)
        self.harness.end = OPEN_END
        self.target = Transactions(self.harness)
        self.handed_over: list[tuple[int, list[RangeResult]]] = []
        self.began = self.harness.clock.now()
        self.described_ms = 0
        """How long a task takes to look up the topics' limits, before its copies begin."""
        monkeypatch.setattr(Task, "new_writer", lambda _task, copy, _way: self.target.new_writer(copy))
        turn = Task._turn

        def answered_turn(task: Task, now: int) -> None:
            self.target.answer()
            turn(task, now)

        monkeypatch.setattr(Task, "_turn", answered_turn)
        run = Task.run

        def run_later(task: Task, *arguments: Any) -> list[RangeResult]:
            self.harness.clock.advance(self.described_ms)
            return run(task, *arguments)

        monkeypatch.setattr(Task, "run", run_later)

    def run(self, *, epoch_ms: int = EPOCH_MS, **policy: object) -> list[RangeResult]:
        def hand_over(results: list[RangeResult]) -> None:
            self.handed_over.append((self.harness.clock.now() - self.began, results))

        until_ms = self.harness.clock.unix_ms() + epoch_ms
        return self.harness.copy(hand_over, until_ms=until_ms, lease_ms=LEASE_MS, **policy)


@pytest.fixture
def leased(monkeypatch: pytest.MonkeyPatch) -> LeaseHarness:
    return LeaseHarness(monkeypatch)


def test_results_are_handed_over_at_the_epoch_s_end_and_copies_continue_for_the_lease(leased: LeaseHarness) -> None:
    leased.harness.source.later[3] = [(leased.began + EPOCH_MS + 3_000, made(2))]
    results = leased.run()
    ((at_ms, handed_over),) = leased.handed_over
    assert EPOCH_MS <= at_ms <= EPOCH_MS + 100
    assert {(result.outcome, result.error, result.records, result.end) for result in handed_over} == {
        (Outcome.COMPLETE, None, 2, 2)
    }
    assert results[3].end == 3, "the copy continued"
    assert EPOCH_MS + LEASE_MS <= leased.harness.clock.now() - leased.began <= EPOCH_MS + LEASE_MS + 1_000
    assert leased.target.progress[3].unreported == ProgressTotals(1, 1, made(2).size)
    assert {leased.target.progress[number].unreported for number in range(3)} == {NO_TOTALS}


def test_task_that_begins_after_its_epoch_s_end_opens_its_copies_before_it_hands_over(leased: LeaseHarness) -> None:
    """Otherwise an epoch whose processes take long to start copies nothing, also not under its lease."""
    leased.described_ms = 5_000  # It counts from the moment when the copies begin.
    leased.target.opens_at = dict.fromkeys(range(4), leased.began + 5_700)
    leased.target.progress[1] = progress_at(2)
    results = leased.run(epoch_ms=-3_000)
    ((at_ms, handed_over),) = leased.handed_over
    assert 5_700 <= at_ms <= 6_000
    assert {(result.outcome, result.error) for result in handed_over} == {(Outcome.COMPLETE, None)}
    assert [result.end for result in results] == [2] * 4, "the copies continued"
    assert leased.harness.turns < 2_000


def test_copy_that_opens_too_late_does_not_delay_the_hand_over_any_further(leased: LeaseHarness) -> None:
    leased.target.opens_at = {2: OPEN_END}
    leased.run(epoch_ms=-3_000)
    ((at_ms, _),) = leased.handed_over
    assert TIMES.request_timeout_ms <= at_ms <= TIMES.request_timeout_ms + 100, "as long as an epoch may wind up"


def test_copy_that_never_opens_does_not_delay_the_hand_over_of_a_whole_epoch(leased: LeaseHarness) -> None:
    leased.target.opens_at = {2: OPEN_END}
    leased.run()
    ((at_ms, _),) = leased.handed_over
    assert EPOCH_MS <= at_ms <= EPOCH_MS + 100


def test_unreported_counts_are_counted_by_the_copy_that_resumes(leased: LeaseHarness) -> None:
    leased.target.progress[1] = Progress(
        offset=1, leader_epoch=None, source_cluster_id="paris", topic_id="the-id", unreported=ProgressTotals(5, 2, 700)
    )
    leased.run()
    ((_, handed_over),) = leased.handed_over
    assert [result.records for result in handed_over] == [2, 6, 2, 2]
    assert (handed_over[1].batches, handed_over[1].bytes) == (3, 700 + made(1).size)
    assert leased.target.progress[1].unreported == NO_TOTALS, "they are counted once"


def test_unreported_counts_of_an_idle_partition_are_counted_once(leased: LeaseHarness) -> None:
    """Otherwise each epoch of an idle partition would count them again."""
    leased.target.progress[1] = Progress(
        offset=2, leader_epoch=None, source_cluster_id="paris", topic_id="the-id", unreported=ProgressTotals(5, 2, 700)
    )
    leased.run()
    ((_, handed_over),) = leased.handed_over
    assert [result.records for result in handed_over] == [2, 5, 2, 2]
    assert (leased.target.progress[1].offset, leased.target.progress[1].unreported) == (2, NO_TOTALS)


def test_copy_fenced_under_its_lease_ends_without_a_retry(leased: LeaseHarness) -> None:
    leased.target.fenced_at = leased.began + EPOCH_MS + 1_000
    for partition in range(4):
        leased.harness.source.later[partition] = [(leased.target.fenced_at, made(2))]
    results = leased.run()
    assert {result.outcome for result in results} == {Outcome.FENCED}
    assert leased.harness.clock.now() < leased.target.fenced_at + 1_000
    assert len(leased.target.opened) == 4
    assert {progress.offset for progress in leased.target.progress.values()} == {2}


def test_epoch_ended_by_control_hands_nothing_over(leased: LeaseHarness) -> None:
    leased.harness.lookups.control = RunControl(run="run-1", host="h", since_ms=1, stop=True)
    results = leased.run(run="run-1", epoch=1)
    assert not leased.handed_over
    assert {result.outcome for result in results} == {Outcome.COMPLETE}


def test_stop_command_ends_the_lease(leased: LeaseHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = leased.harness
    control = RunControl(run="run-1", host="h", since_ms=1)
    monkeypatch.setattr(
        harness.lookups,
        "run_control",
        lambda: done(control.stopped() if harness.clock.now() >= leased.began + EPOCH_MS + 2_000 else control),
    )
    leased.run(run="run-1", epoch=1)
    assert len(leased.handed_over) == 1
    assert harness.clock.now() - leased.began < EPOCH_MS + 4_000


def test_failed_copy_is_reported_and_not_retried_under_the_lease(leased: LeaseHarness) -> None:
    """Its next attempt would fence that of the next epoch."""
    leased.harness.source.dead = {2}
    leased.run()
    ((_, handed_over),) = leased.handed_over
    assert [result.outcome is Outcome.COMPLETE for result in handed_over] == [True, True, False, True]
    assert all(at_ms - leased.began < EPOCH_MS for _, at_ms in leased.target.opened)


def test_expired_copy_whose_retry_has_just_begun_is_unfinished_at_the_epoch_s_end(leased: LeaseHarness) -> None:
    """Otherwise it would count as complete whenever an attempt begins shortly before an epoch's end."""
    leased.target.sick = {2}
    leased.target.silent_at = leased.began + EPOCH_MS - 1_500
    leased.run()
    ((_, handed_over),) = leased.handed_over
    assert [result.outcome for result in handed_over] == [Outcome.COMPLETE] * 2 + [Outcome.UNFINISHED, Outcome.COMPLETE]
    assert handed_over[2].expiries
    assert handed_over[2].stuck_since_ms is not None
    assert leased.harness.clock.unix_ms() - LEASE_MS - 3_500 < handed_over[2].stuck_since_ms, (
        "it waits since this attempt began"
    )


@pytest.mark.parametrize("left", ["null", '"x"', "[1,2]", '[1,2,"3"]', "[1,2,true]", "{}"])
def test_malformed_unreported_counts_are_ignored(left: str) -> None:
    assert from_offset(OffsetAndMetadata(7, None, f'{{"v":1,"left":{left}}}')).unreported == NO_TOTALS


def test_unreported_counts_survive_a_commit() -> None:
    progress = Progress(
        offset=1, leader_epoch=None, source_cluster_id="c", topic_id="t", time_ms=5, unreported=ProgressTotals(1, 2, 3)
    )
    assert from_offset(to_offset(progress)) == progress
