"""A task reads its assignments if a newer version was announced, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.assignments import RELEASED, Change, Entry, OwnAssignments
from mirror.relay.progress.control_record import Command, RunControl, control_partition
from mirror.relay.task.assignment_reading import AssignmentReader, LoadEntries, load_entries
from tests.relay.model.test_assignments import R0, R1, T0, by_target, entry


class Reading:
    """A reader of task 0 whose reads the test answers."""

    def __init__(self) -> None:
        self.reads: list[Future[Any]] = []
        self.woken = 0
        self.reader = AssignmentReader(OwnAssignments("run", 1, 0, [R0]), dict, self.submit, self.wake)

    def submit(self, load: LoadEntries) -> Future[Any]:
        load()
        self.reads.append(Future())
        return self.reads[-1]

    def wake(self) -> None:
        self.woken += 1

    def take(self, version: int | None = None) -> Change | None:
        if version is not None:
            self.reader.follow(Command(version=version))
        return self.reader.take()


def test_a_task_begins_with_its_row_without_a_read_while_nothing_was_announced() -> None:
    task = Reading()
    assert task.take() is None, "it waits for the control record"
    assert task.take(0) == Change((R0,))
    assert task.take(0) is None
    assert task.reads == []
    assert task.reader.applied == 0


def test_entries_are_read_once_for_each_version() -> None:
    task = Reading()
    task.take(0)
    assert task.take(1) is None
    assert task.take(1) is None, "it is being read"
    assert len(task.reads) == 1
    task.reads[0].set_result(by_target(entry(1, 0, R1)))
    assert task.woken == 1
    assert task.take(1) == Change((R1,))
    assert task.take(1) is None
    assert len(task.reads) == 1


def test_a_version_that_is_announced_while_an_earlier_one_is_read_is_read_after_it() -> None:
    task = Reading()
    task.take(0)
    task.take(1)
    assert task.take(2) is None
    task.reads[0].set_result({})
    assert task.take() is None
    task.reads[1].set_result(by_target(entry(2, RELEASED, previous=0)))
    assert task.take() == Change((), ((T0, 2),))


def test_a_task_that_begins_late_reads_the_entries_before_it_takes_its_row() -> None:
    task = Reading()
    assert task.take(3) is None
    task.reads[0].set_result(by_target(entry(3, 1)))
    assert task.take() is None


def test_a_read_that_fails_is_repeated_with_the_next_command(caplog: pytest.LogCaptureFixture) -> None:
    task = Reading()
    task.take(0)
    task.take(1)
    for number in range(3):
        task.reads[number].set_exception(KafkaTimeout("the coordinator does not answer"))
        assert task.take() is None
        assert task.take(1) is None
    assert caplog.messages == [
        "the assignments of this task cannot be read; retrying: the coordinator does not answer"
    ], "once"
    task.reads[3].set_result(by_target(entry(1, 0, R1)))
    assert task.take() == Change((R1,))


def test_the_entries_of_the_job_are_loaded_from_the_control_group() -> None:
    group, control = control_partition("f")

    def group_offsets(name: str) -> Mapping[TopicPartition, object]:
        assert name == group
        other = Entry("run", 2, 1, 0, R1)
        return {
            T0: entry(1, 0).to_offset(),
            other.target: other.to_offset(),
            control: RunControl(run="run", host="h", since_ms=1).to_offset(),
        }

    admin = cast("Admin", SimpleNamespace(group_offsets=group_offsets))
    assert load_entries(admin, "f", "run", 1) == by_target(entry(1, 0))
