"""Partitions that are given to a task while it lives, and taken from it: a task on a source and target in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.futures import done, failed
from mirror.relay.model.assignments import RELEASED, Entry
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.model.reports import SETTLED, PartitionReport, TaskState
from mirror.relay.progress.control_record import RunControl
from mirror.relay.task.taking import Taken
from mirror.relay.task.topic_rules import TopicRules
from tests.examples import examples
from tests.relay.copy_harness import made
from tests.relay.hand_context import TIMES
from tests.relay.task_harness import TaskHarness

WIND_UP_MS = 5_000
OTHER = 1
"""Another task of the job; the one that is tested is number 0."""


class Assigned:
    """A task that begins with ``rows`` partitions, and is to stop after 30 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int, stop_at: int = 30_000) -> None:
        self.harness = harness = TaskHarness(rows, monkeypatch)
        harness.end = OPEN_END
        harness.lookups.run_control = self.read_control  # type: ignore[method-assign]
        harness.load_entries = self.load
        harness.send_report = self.send
        self.reports: list[tuple[int, PartitionReport]] = []
        self.states: list[TaskState] = []
        self.began_ms = harness.clock.now()
        self.happens: dict[int, Callable[[], object]] = {stop_at: self.stop}
        self.control = RunControl(run="run-1", host="h", since_ms=1, job=3, generation=2, seen_ms=1)
        self.entries: dict[TopicPartition, Entry] = {}
        self.loads = 0
        self.fails = False

    @property
    def passed_ms(self) -> int:
        return self.harness.clock.now() - self.began_ms

    def target(self, partition: int) -> TopicPartition:
        return TopicPartition("paris.t", partition)

    # --- what happens

    def at(self, ms: int, do: Callable[[], object]) -> None:
        """``do`` happens so many ms after the task has begun."""
        self.happens[ms] = do

    def assign(self, partition: int, owner: int, **range_: Any) -> None:
        """The driver stores an entry, and announces its version."""
        version = self.control.version + 1
        copied = replace(self.harness.range_of(partition), **range_)
        before = self.entries.get(self.target(partition))
        previous = (0 if before is None else before.owner) if owner == RELEASED else None
        self.entries[self.target(partition)] = Entry("run-1", 3, version, owner, copied, previous)
        self.control = replace(self.control, version=version)

    def take(self, *partitions: int) -> None:
        for partition in partitions:
            self.harness.source.logs.setdefault(partition, [made(0), made(1)])
            self.assign(partition, 0)

    def release(self, *partitions: int) -> None:
        for partition in partitions:
            self.assign(partition, RELEASED)

    def stop(self) -> None:
        self.control = replace(self.control, stop=True)

    def answer_late(self, most: int = 100) -> None:
        """Answer batches that had no answer until now, the first ones first."""
        unanswered = self.harness.target.unanswered
        answered, unanswered[:] = unanswered[:most], unanswered[most:]
        for answer in answered:
            answer()

    # --- what the task asks for

    def read_control(self) -> Future[RunControl | None]:
        for ms in sorted(ms for ms in self.happens if ms <= self.passed_ms):
            self.happens.pop(ms)()
        self.control = replace(self.control, seen_ms=self.control.seen_ms + 1)
        return failed(KafkaTimeout("no answer")) if self.fails else done(self.control)

    def load(self) -> Mapping[TopicPartition, Entry]:
        self.loads += 1
        return self.entries

    def send(self, report: TaskState | PartitionReport) -> None:
        if isinstance(report, PartitionReport):
            self.reports.append((self.passed_ms, report))
        else:
            self.states.append(report)

    def copy(self, **policy: Any) -> dict[int, RangeResult]:
        policy = {"run": "run-1", "job": 3, "generation": 2, "wind_up_ms": WIND_UP_MS, **policy}
        return {result.partition: result for result in self.harness.copy(**policy)}

    def settled(self) -> list[tuple[int, int, int]]:
        """The partition, the version and the end of each release that was settled."""
        return [
            (
                report.target.partition,
                report.version,
                report.result.end,
            )
            for _, report in self.reports
            if report.state == SETTLED
        ]


def test_a_task_copies_what_it_is_given_and_settles_what_is_taken_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Assigned(monkeypatch, 3)
    site.at(5_000, lambda: site.take(3))
    site.at(10_000, lambda: site.release(1, 3))
    site.harness.source.later[1] = [(site.began_ms + 15_000, made(2))]
    results = site.copy()
    assert {number: (each.outcome, each.records) for number, each in results.items()} == dict.fromkeys(
        (0, 2), (Outcome.COMPLETE, 2)
    )
    assert site.harness.target.committed == dict.fromkeys(range(4), 2), "partition 1 was copied up to its release"
    assert sorted(site.settled()) == [(1, 2, 2), (3, 3, 2)]
    assert site.loads == 2, "once for each version that was announced"
    assert sorted(site.harness.lookups.removed) == [site.target(1), site.target(3)]
    last = {report.target.partition: report for _, report in site.reports}
    assert {number: (each.state, each.taken, each.result.records) for number, each in last.items()} == {
        0: (Outcome.COMPLETE, 0, 2),
        2: (Outcome.COMPLETE, 0, 2),
        1: (SETTLED, 0, 2),
        3: (SETTLED, 1, 2),
    }
    assert [(each.version, each.partitions) for each in site.states][-1] == (3, 2)
    assert site.states[-1].stopping == "the run was asked to stop"


def test_a_task_fetches_so_much_of_each_partition_that_all_it_has_been_given_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Assigned(monkeypatch, 0)
    site.harness.max_partition_bytes = 100_000
    site.at(5_000, lambda: site.take(*range(20)))
    site.at(10_000, lambda: site.release(*range(10)))
    site.copy()
    assert site.harness.source.partition_limits == [1_000_000 // 2 // 20, 1_000_000 // 2 // 10]


def test_the_rules_of_a_topic_are_read_again_once_nothing_of_it_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics come and go for months: nothing is kept of those that have gone."""
    site = Assigned(monkeypatch, 0)
    read: list[int] = []

    def load(ranges: Sequence[Range]) -> Taken:
        read.append(len(ranges))
        return Taken(ranges, TopicRules({"paris.t": TargetLimits()}, {}), {})

    site.harness.load_taken = load
    site.at(2_000, lambda: site.take(1, 2))
    site.at(5_000, lambda: site.release(1))
    site.at(8_000, lambda: site.take(1))
    site.at(11_000, lambda: site.release(1, 2))
    site.at(14_000, lambda: site.take(3))
    results = site.copy()
    assert read == [2, 1], "while partition 2 was copied, its topic was known"
    assert {number: each.records for number, each in results.items()} == {3: 2}


@pytest.mark.parametrize(("attempt", "settled_ms"), [(0, 5_000), (1, 30_000)])
def test_an_attempt_settles_what_it_does_not_hold_once_an_earlier_one_has_ended(
    monkeypatch: pytest.MonkeyPatch, attempt: int, settled_ms: int
) -> None:
    """At least once no fence ends an earlier attempt that lives, because Spark has lost sight of its executor."""
    site = Assigned(monkeypatch, 1, stop_at=60_000)
    site.at(5_000, lambda: site.release(3))
    site.copy(attempt=attempt)
    (report_ms,) = [ms for ms, report in site.reports if report.state == SETTLED]
    assert settled_ms <= report_ms <= settled_ms + 1_000


def test_a_release_is_settled_soon_and_what_is_not_acknowledged_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Assigned(monkeypatch, 2)
    site.at(5_000, lambda: site.release(0, 1))
    site.harness.target.silent = {1}
    assert site.copy() == {}
    at = {report.target.partition: at for at, report in site.reports if report.state == SETTLED}
    assert 5_000 <= at[0] <= 6_100
    assert 0 <= at[1] - at[0] - min(WIND_UP_MS, TIMES.request_timeout_ms) <= 1_000
    assert site.settled() == [(0, 1, 2), (1, 2, 0)], "it is not known what becomes of what has no answer"


def test_a_partition_that_is_given_back_while_it_winds_up_begins_once_that_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver gives it back that waits no longer: it is not settled before, and then with the last version."""

    def answer() -> None:
        assert site.harness.target.opened == [0], "its first copy is not done"
        site.harness.target.silent = set()
        site.answer_late()

    site = Assigned(monkeypatch, 1)
    site.harness.timeouts = replace(TIMES, request_timeout_ms=WIND_UP_MS)
    site.at(5_000, lambda: site.release(0))
    for at, change in ((6_000, site.take), (7_000, site.release), (8_000, site.take)):
        site.at(at, partial(change, 0))
    site.at(9_000, answer)
    site.harness.target.silent = {0}
    results = site.copy()
    assert (results[0].outcome, results[0].end) == (Outcome.COMPLETE, 2)
    assert site.settled() == [(0, 3, 1)]
    assert [report.taken for _, report in site.reports][-1] == 4


def test_a_task_settles_what_it_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Assigned(monkeypatch, 1)
    site.take(1)
    site.release(1)
    site.copy(attempt=1)
    assert site.settled() == [(1, 2, 0)]
    assert 1 not in site.harness.target.opened
    ((_, report),) = [each for each in site.reports if each[1].state == SETTLED]
    assert (report.result.records, report.attempt) == (0, 1)


@pytest.mark.parametrize("attempt", [0, 1])
def test_nothing_is_opened_before_it_is_known_what_was_taken_from_the_task(
    monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    """An attempt that fences first, and reads then, ends the copy of the task that has the partition by now."""

    def answer() -> None:
        assert site.harness.target.opened == []
        site.fails = False

    site = Assigned(monkeypatch, 3)
    site.at(10_000, answer)
    site.fails = True
    site.release(0)
    site.assign(0, OTHER)
    results = site.copy(attempt=attempt)
    assert sorted(results) == [1, 2]
    assert 0 not in site.harness.target.opened
    assert site.settled() == []


def test_a_task_lives_on_without_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Assigned(monkeypatch, 1)
    site.at(5_000, lambda: site.release(0))
    site.at(15_000, lambda: site.take(1))
    assert sorted(site.copy()) == [1]
    assert site.harness.target.committed[1] == 2


def test_what_is_assigned_to_a_task_that_stops_is_left_to_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Assigned(monkeypatch, 2, stop_at=0)
    results = site.copy()
    assert {(each.outcome, each.records) for each in results.values()} == {(Outcome.UNFINISHED, 0)}
    assert site.harness.target.opened == []


def test_what_is_given_back_to_a_task_that_stops_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Assigned(monkeypatch, 1, stop_at=7_000)
    site.harness.timeouts = replace(TIMES, request_timeout_ms=WIND_UP_MS)
    site.harness.target.silent = {0}
    site.at(5_000, lambda: site.release(0))
    site.at(6_000, lambda: site.take(0))
    (result,) = site.copy().values()
    assert (result.outcome, result.records) == (Outcome.UNFINISHED, 0)
    assert "the run was asked to stop" in str(result.error)
    assert site.settled() == [(0, 1, 0)]
    assert site.harness.target.opened == [0]


def test_partitions_that_come_back_begin_together_as_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose last attempt has failed asks for the description of its topic alone: thousands must not."""
    site = Assigned(monkeypatch, 20)
    site.at(5_000, lambda: site.release(*range(20)))
    site.at(10_000, lambda: site.take(*range(20)))
    assert {(each.outcome, each.records) for each in site.copy().values()} == {(Outcome.COMPLETE, 0)}
    assert site.harness.lookups.described == [None, frozenset({"paris.t"})]


# --- what is late


@settings(max_examples=examples(12, 100), deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["move", "mute", "answer", "hear"]), st.integers(1, 4_000)), max_size=12)
)
def test_a_late_answer_changes_nothing_for_the_next_copy_of_its_partition(steps: list[tuple[str, int]]) -> None:
    """The task keeps nothing of a copy that is settled: its partition may come back at any time."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        site, at, held = Assigned(monkeypatch, 2, stop_at=120_000), 2_000, True
        site.harness.source.later[0] = [(site.began_ms + 1_000 * n, made(1 + n)) for n in range(1, 40)]
        target = site.harness.target
        for kind, ms in steps:
            at += ms
            if kind == "move":
                site.at(at, partial(site.release if held else site.take, 0))
                held = not held
            elif kind == "answer":
                site.at(at, partial(site.answer_late, 2))
            else:
                site.at(at, partial(setattr, target, "silent", {0} if kind == "mute" else set[int]()))
        site.at(at + 1, partial(setattr, target, "silent", set[int]()))
        if not held:
            site.at(at + 2, partial(site.take, 0))
        site.at(at + 20_000, site.answer_late)
        results = site.copy()
        assert {each.outcome for each in results.values()} == {Outcome.COMPLETE}, results[0].error
        end = site.harness.source.logs[0][-1].next_offset
        assert target.committed == {0: end, 1: 2}
        last = [report for _, report in site.reports if report.target.partition == 0][-1]
        assert (last.state, last.result.end) == (Outcome.COMPLETE, end)
        assert site.harness.source.assigned == set()
        assert [version for _, version, _ in site.settled()] == sorted({version for _, version, _ in site.settled()})
