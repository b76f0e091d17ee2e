"""Assignments: what a task does about the entries that it reads, and what the driver's table makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.assignments import RELEASED, AssignmentTable, Change, Entry, OwnAssignments, target_of
from mirror.relay.model.ranges import OPEN_END, Range

SETTLE_MS = 100


def range_of(partition: int, progress: str | None = None) -> Range:
    return Range(
        flow="f",
        topic="t",
        target_topic="a.t",
        partition=partition,
        start=5,
        end=OPEN_END,
        source_cluster_id="paris",
        topic_id="the-id",
        progress=progress,
    )


R0, R1, R2 = map(range_of, range(3))
T0, T1, T2 = map(target_of, (R0, R1, R2))


def entry(version: int, owner: int, range_: Range = R0, previous: int | None = None) -> Entry:
    return Entry("run", 1, version, owner, range_, previous)


def by_target(*entries: Entry) -> dict[TopicPartition, Entry]:
    return {each.target: each for each in entries}


def task(number: int = 0, *rows: Range) -> OwnAssignments:
    return OwnAssignments("run", 1, number, rows)


# --- a task


def test_a_task_takes_its_row_once() -> None:
    own = task(0, R0, R1)
    assert own.applied == -1
    assert own.apply({}, 0) == Change((R0, R1))
    assert not own.apply({}, 0)
    assert own.applied == 0


def test_a_task_takes_nothing_of_its_row_that_another_task_has_taken_before_it_began() -> None:
    assert task(0, R0, R1).apply(by_target(entry(2, 1)), 2) == Change((R1,))
    released = by_target(entry(2, RELEASED, R0, previous=1))
    assert task(0, R0, R1).apply(released, 2) == Change((R1,)), "another task has to settle it"


def test_a_task_takes_what_an_entry_gives_it_with_the_range_of_the_entry() -> None:
    own = task(0, R0)
    later = range_of(0, progress="[7]")
    assert own.apply(by_target(entry(3, 0, later), entry(3, 0, R1), entry(3, 1, R2)), 3) == Change((later, R1))


def test_a_released_partition_is_settled_with_the_version_of_its_release() -> None:
    own = task(0, R0)
    own.apply({}, 0)
    assert own.apply(by_target(entry(1, RELEASED, previous=0)), 1) == Change((), ((T0, 1),))
    assert not own.apply(by_target(entry(1, RELEASED, previous=0)), 1)


def test_a_task_that_was_retried_settles_at_once_what_its_earlier_attempt_held() -> None:
    assert task(0, R0).apply(by_target(entry(1, RELEASED, previous=0)), 1) == Change((), ((T0, 1),))
    assert task(0).apply(by_target(entry(5, RELEASED, R2, previous=0)), 5) == Change((), ((T2, 5),))


def test_a_task_does_not_settle_the_release_of_another_task() -> None:
    """It held the partition until it was given away as overdue: what it reports must not free what task 1 holds."""
    own = task(0, R0)
    own.apply({}, 0)
    assert own.apply(by_target(entry(3, RELEASED, previous=1)), 3) == Change((), ((T0, 0),))
    table = AssignmentTable("run", 1, [[], [R0]], version=2)
    table.release([T0])
    table.on_settled(T0, 0, None)
    assert table.takeable(0, SETTLE_MS) == []


def test_entries_that_were_read_late_or_again_change_nothing() -> None:
    own = task(0, R0)
    own.apply(by_target(entry(4, 0)), 4)
    for old in (entry(1, RELEASED, previous=0), entry(2, 1), entry(4, 0)):
        assert not own.apply(by_target(old), 2)
    assert own.applied == 4


def test_a_task_that_has_missed_its_release_goes_on_if_the_partition_is_its_own_again() -> None:
    own = task(0, R0)
    own.apply({}, 0)
    assert not own.apply(by_target(entry(2, 0)), 2)
    assert own.apply(by_target(entry(3, RELEASED, previous=0)), 3) == Change((), ((T0, 3),))


def test_entries_of_other_runs_and_jobs_count_for_nothing() -> None:
    others = [replace(entry(1, 1), run="other"), replace(entry(1, 1, R1), job=2), replace(entry(1, 0, R2), job=0)]
    assert task(0, R0, R1).apply(by_target(*others), 1) == Change((R0, R1))


# --- the table


def owners(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    return [(each.range.partition, each.owner) for each in entries]


def test_new_ranges_go_to_the_least_loaded_task_that_lives() -> None:
    table = AssignmentTable("run", 1, [[R0], [], []])
    new = [range_of(number) for number in range(1, 6)]
    entries = table.take(new, {0: 1, 1: 0, 2: 3})
    assert owners(entries) == [(1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]
    assert {each.version for each in entries} == {table.version} == {1}
    assert table.take([range_of(7)], {}) == [], "no task lives"
    assert table.version == 1


def test_what_has_an_owner_is_not_taken() -> None:
    table = AssignmentTable("run", 1, [[R0], []])
    assert table.take([R0], {1: 0}) == []
    table.release([T0])
    assert table.take([R0], {1: 0}) == [], "its owner has not settled it"


def test_a_released_partition_is_taken_with_its_progress_once_it_is_settled() -> None:
    table = AssignmentTable("run", 1, [[R0], []])
    assert table.release([T0, T1]) == [entry(1, RELEASED, previous=0)]
    assert table.release([T0]) == []
    assert table.owner(T0) is None
    table.on_settled(T0, 0, None)
    assert table.takeable(0, SETTLE_MS) == []
    table.on_settled(T0, 1, "[9]")
    (free,) = table.takeable(0, SETTLE_MS)
    assert free == range_of(0, progress="[9]")
    assert table.take([free], {1: 0}) == [entry(2, 1, free)]
    assert table.takeable(0, SETTLE_MS) == []
    assert table.owner(T0) == 1


def test_a_release_is_overdue_from_its_announcement_on() -> None:
    table = AssignmentTable("run", 1, [[R0, R1], []])
    table.release([T0])
    assert table.overdue(10_000, SETTLE_MS) == set(), "no task can know of it"
    table.on_announced(1, 10_000)
    table.release([T1])
    table.on_announced(1, 10_050)
    assert table.takeable(10_099, SETTLE_MS) == []
    assert table.overdue(10_100, SETTLE_MS) == {T0}
    assert table.takeable(10_100, SETTLE_MS) == [R0]
    assert table.overdue(10_100, SETTLE_MS) == set(), "reported once"
    table.on_settled(T0, 1, "[9]")
    assert table.takeable(10_101, SETTLE_MS) == [range_of(0, progress="[9]")], "it was not taken yet"


@pytest.mark.parametrize("known", [[], [T0], [T0, T1, T2]])
def test_what_was_never_assigned_is_lacking(known: list[TopicPartition]) -> None:
    table = AssignmentTable("run", 1, [[R0]])
    table.release([T0])
    table.take([R1], {0: 0})
    assert table.lacking(known) == set(known) - {T0, T1}


def test_all_entries_of_the_job_can_be_committed_again() -> None:
    table = AssignmentTable("run", 1, [[R0, R1], []], version=6)
    assert table.entries() == []
    assert [*table.take([R2], {1: 0}), *table.release([T0])] == table.entries()
    assert [each.version for each in table.entries()] == [7, 8]


def test_no_partition_is_moved_for_the_load_alone() -> None:
    assert AssignmentTable("run", 1, [[R0, R1], []]).moves({0: 2, 1: 0}) == []
