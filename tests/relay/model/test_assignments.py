"""Assignments: what a task does about the entries that it reads, and what the driver's table makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mirror.client import TopicPartition
from mirror.relay.model import assignments
from mirror.relay.model.assignments import RELEASED, AssignmentTable, Change, Entry, OwnAssignments, target_of
from mirror.relay.model.ranges import OPEN_END, Range

SETTLE_MS = 100


def range_of(partition: int) -> Range:
    return Range(
        flow="f",
        topic="t",
        target_topic="a.t",
        partition=partition,
        start=5,
        end=OPEN_END,
        source_cluster_id="paris",
        topic_id="the-id",
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
    later = replace(R0, source_end=7)
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
    table.on_settled(T0, 0)
    assert table.settling([T0]) == {T0}


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
    table = AssignmentTable("run", 1, [[R0], [], [R1, R2]])
    new = [range_of(number) for number in range(3, 8)]
    entries = table.take(new, {0, 1, 2})
    assert owners(entries) == [(3, 1), (4, 0), (5, 1), (6, 0), (7, 1)]
    assert {each.version for each in entries} == {table.version} == {1}
    assert table.take([range_of(9)], set()) == [], "no task lives"
    assert table.version == 1


def test_what_has_an_owner_is_not_taken() -> None:
    table = AssignmentTable("run", 1, [[R0], []])
    assert table.take([R0], {1}) == []
    table.release([T0])
    assert table.take([R0], {1}) == [], "its owner has not settled it"


def test_a_released_partition_is_taken_once_it_is_settled() -> None:
    table = AssignmentTable("run", 1, [[R0], []])
    assert table.release([T0, T1]) == [entry(1, RELEASED, previous=0)]
    assert table.release([T0]) == []
    table.on_settled(T0, 0)
    assert (table.lacking([T0]), table.settling([T0, T1])) == (set(), {T0})
    table.on_settled(T0, 1)
    assert (table.lacking([T0]), table.settling([T0, T1])) == ({T0}, set())
    assert table.take([R0], {1}) == [entry(2, 1)]
    assert table.lacking([T0]) == set()


def test_a_partition_that_comes_home_since_its_task_is_lost_stays_there() -> None:
    table = AssignmentTable("run", 1, [[R0], [], []])
    assert owners(table.displace({1, 2})) == [(0, 1)]
    assert table.away() == {T0: 0}
    assert owners(table.displace({0, 2})) == [(0, 0)], "its own task lives again"
    assert (table.away(), table.move_home({0, 2}, 9)) == ({}, [])


def test_a_partition_that_is_lost_twice_goes_home() -> None:
    table = AssignmentTable("run", 1, [[R0], [], []])
    table.displace({1, 2})
    assert owners(table.displace({2})) == [(0, 2)]
    assert table.away() == {T0: 0}
    assert owners(table.move_home({0, 2}, 9)) == [(0, RELEASED)]
    assert table.away() == {T0: 0}, "it is on its way"


def test_only_what_is_settled_stays_where_it_is_and_is_in_no_row_needs_no_entry() -> None:
    table = AssignmentTable("run", 1, [[R0], []])
    table.take([R1, R2], {0, 1})
    table.release([T0, T1, T2])
    assert table.settled() == set()
    table.displace({1})
    assert table.settled() == set(), "a lost task may live, and has to read that it has lost the partition"
    for target in (T0, T1, T2):
        table.on_settled(target, table.version)
    assert table.settled() == {T1, T2}


def test_a_release_is_overdue_from_its_announcement_on() -> None:
    table = AssignmentTable("run", 1, [[R0, R1], []])
    table.release([T0])
    assert table.expire(10_000, SETTLE_MS) == set(), "no task can know of it"
    table.on_announced(1, 10_000)
    table.release([T1])
    table.on_announced(1, 10_050)
    assert table.expire(10_099, SETTLE_MS) == set()
    assert table.expire(10_100, SETTLE_MS) == {T0}
    assert table.expire(10_100, SETTLE_MS) == set(), "reported once"
    assert table.lacking([T0, T1]) == {T0}


@pytest.mark.parametrize("known", [[], [T0], [T0, T1, T2]])
def test_what_was_never_assigned_is_lacking(known: list[TopicPartition]) -> None:
    table = AssignmentTable("run", 1, [[R0]])
    table.release([T0])
    table.take([R1], {0})
    assert table.lacking(known) == set(known) - {T0, T1}


def test_all_entries_of_the_job_can_be_committed_again() -> None:
    table = AssignmentTable("run", 1, [[R0, R1], []], version=6)
    assert table.entries() == []
    assert [*table.take([R2], {1}), *table.release([T0])] == table.entries()
    assert [each.version for each in table.entries()] == [7, 8]


def test_nothing_is_kept_of_a_partition_that_does_not_exist_any_more() -> None:
    table = AssignmentTable("run", 1, [[R0, R1]])
    table.release([T0])
    table.forget([T0, T1])
    assert (table.entries(), table.lacking([T0, T1])) == ([], {T0}), "what has an owner is kept"


def test_a_task_keeps_nothing_of_entries_that_were_deleted_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics come and go for months."""
    monkeypatch.setattr(assignments, "LATE_VERSIONS", 10)
    own = OwnAssignments("run", 1, 0, [])
    for version in range(1, 41, 2):
        taken, released = entry(version, 0, range_of(version)), entry(version + 1, RELEASED, range_of(version))
        own.apply({taken.target: taken}, version)
        own.apply({released.target: replace(released, previous=0)}, version + 1)
    assert len(own._seen) <= 7


def test_an_entry_that_a_late_commit_brings_back_is_not_applied_again() -> None:
    """Its topic was deleted, and the entries with it; then the topic was made again, and another task has it."""
    own, other = task(0), task(1)
    taken = by_target(entry(1, 0))
    assert own.apply(taken, 1) == Change((R0,))
    assert own.apply(by_target(entry(2, RELEASED, previous=0)), 2) == Change((), ((T0, 2),))
    for each in (own, other):
        assert not each.apply({}, 3)
    assert other.apply(by_target(entry(4, 1)), 4) == Change((R0,))
    assert not own.apply(by_target(entry(4, 1)), 4)
    for each in (own, other):
        assert not each.apply({}, 5)
        assert not each.apply(taken, 6), "of a request that the broker has executed late"
    assert own.apply(by_target(entry(7, 0)), 7) == Change((R0,))


def test_an_entry_that_an_old_reading_is_without_is_not_applied_again() -> None:
    own = OwnAssignments("run", 1, 0, [])
    taken, released = entry(1, 0, R0), replace(entry(2, RELEASED, R0), previous=0)
    own.apply({T0: taken}, 1)
    own.apply({T0: released}, 2)
    own.apply({}, 0)
    assert not own.apply({T0: taken}, 1)


# --- tasks that are lost


def test_the_partitions_of_a_lost_task_go_to_those_that_live_and_nothing_waits_for_it() -> None:
    table = AssignmentTable("run", 1, [[R0, R1], [R2], []])
    table.release([T1])
    assert table.displace({0, 1, 2}) == []
    assert table.displace(set()) == [], "no task lives"
    assert table.lacking([T1]) == set()
    assert table.displace({1, 2}) == [entry(2, 2, R0)]
    assert table.lacking([T1]) == {T1}
    assert table.displace({1, 2}) == []


def test_partitions_go_back_to_their_own_task_a_few_at_a_time_once_each_is_settled() -> None:
    table = AssignmentTable("run", 1, [[R0, R1, R2], []])
    table.displace({1})
    table.take([range_of(3)], {1})
    assert table.move_home({1}, 2) == [], "its own task is still lost"
    assert owners(table.move_home({0, 1}, 2)) == [(0, RELEASED), (1, RELEASED)]
    assert table.move_home({0, 1}, 2) == [], "some are on their way"
    assert table.take_home({0, 1}) == []
    table.on_settled(T0, table.version)
    assert owners(table.take_home({0, 1})) == [(0, 0)]
    assert table.move_home({0, 1}, 2) == [], "one is"
    table.on_settled(T1, table.version - 1)
    assert owners(table.take_home({1})) == [(1, 1)], "its task was lost again"
    assert owners(table.move_home({0, 1}, 2)) == [(2, RELEASED), (1, RELEASED)]
    for target in (T1, T2):
        table.on_settled(target, table.version)
    assert owners(table.take_home({0, 1})) == [(1, 0), (2, 0)]
    assert table.move_home({0, 1}, 2) == [], "all others are where they were given"


def test_what_is_released_for_good_does_not_go_back() -> None:
    table = AssignmentTable("run", 1, [[R0], []])
    table.displace({1})
    table.release([T0])
    table.on_settled(T0, table.version)
    assert table.take_home({0, 1}) == table.move_home({0, 1}, 1) == []
