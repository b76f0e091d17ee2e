"""Notes that are written in the background: some at a time, a bounded number, and again after a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.relay.futures import done
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.task import task_records
from mirror.relay.task.task_records import LazyWriting

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)


class Harness:
    """Writes are done when the test says so."""

    def __init__(self, most_pending: int | None = None, interval_ms: int = 5_000) -> None:
        self.written: list[dict[str, int]] = []
        self.futures: list[Future[Any]] = []
        self.writing = LazyWriting[str, int](self._write, self._submit, most_pending, interval_ms=interval_ms)

    def _write(self, notes: Mapping[str, int], sources: Mapping[TopicPartition, TopicPartition]) -> bool:
        assert sources == {TARGET: SOURCE}
        self.written.append(dict(notes))
        return True

    def _submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        call(*arguments)
        self.futures.append(Future())
        return self.futures[-1]

    def add(self, **notes: int) -> None:
        for key, note in notes.items():
            self.writing.add(SOURCE, TARGET, key, note)


def test_later_note_replaces_an_earlier_one_of_its_key_and_all_are_written_together() -> None:
    run = Harness()
    run.add(a=1, b=2)
    run.add(a=3)
    run.writing.write_due(0)
    assert run.written == [{"a": 3, "b": 2}]


def test_one_write_is_in_progress_and_the_next_one_waits_longer_after_a_failure() -> None:
    run = Harness()
    run.add(a=1)
    run.writing.write_due(0)
    run.add(b=2)
    run.writing.write_due(10_000)
    assert len(run.written) == 1
    run.futures[0].set_result(False)
    run.writing.write_due(10_000)
    run.add(c=3)
    run.futures[1].set_result(True)
    run.writing.write_due(69_999)
    assert run.written == [{"a": 1}, {"b": 2}]
    run.writing.write_due(70_000)
    assert run.written[-1] == {"c": 3}


@pytest.mark.parametrize(("index_ms", "segments_ms"), [(0, 5_000), (250, 125), (2_500, 1_250), (60_000, 5_000)])
def test_the_index_is_written_as_soon_as_groups_need_it(index_ms: int, segments_ms: int) -> None:
    policy = CopyPolicy(index_interval_ms=index_ms)
    run = Harness(interval_ms=policy.segments_ms)
    for now in (0, 1, segments_ms - 1, segments_ms):
        run.add(**{f"at-{now}": now})
        run.writing.write_due(now)
        if not run.futures[-1].done():
            run.futures[-1].set_result(True)
    assert run.written == [
        {"at-0": 0},
        {"at-1": 1, f"at-{segments_ms - 1}": segments_ms - 1, f"at-{segments_ms}": segments_ms},
    ]


def test_only_so_many_notes_wait() -> None:
    run = Harness(most_pending=2)
    run.add(a=1, b=2, c=3)
    run.writing.write_due(0)
    assert run.written == [{"b": 2, "c": 3}]


@pytest.mark.parametrize(("result", "rest"), [(True, {"b": 2}), (None, {"a": 1, "b": 2})])
def test_rest_is_what_may_not_be_written_yet(result: bool | None, rest: dict[str, int]) -> None:
    run = Harness()
    run.add(a=1)
    run.writing.write_due(0)
    run.add(b=2)
    if result is not None:
        run.futures[0].set_result(result)
    assert run.writing.take_rest() == rest
    assert run.writing.take_rest() == ({} if result else {"a": 1})


def test_end_waits_for_what_is_being_written_and_writes_the_rest() -> None:
    run = Harness()
    run.add(a=1)
    run.writing.write_due(0)
    run.add(b=2)
    threading.Timer(0.05, run.futures[0].set_result, [True]).start()
    run.writing.write_rest()
    assert run.written == [{"a": 1}, {"b": 2}]
    run.writing.write_rest()
    assert len(run.written) == 2


def test_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_records, "_LONGEST_S", 0.01)
    run = Harness()
    run.add(a=1)
    run.writing.write_due(0)
    run.add(b=2)
    run.writing.write_rest()
    assert run.written == [{"a": 1}]


def test_rest_is_not_written_after_a_failure() -> None:
    """Another write would take as long, and the task has ended."""
    run = Harness()
    run.add(a=1)
    run.writing.write_due(0)
    run.add(b=2)
    run.futures[0].set_result(False)
    run.writing.write_rest()
    assert run.written == [{"a": 1}]


def test_nothing_is_kept_of_a_partition_whose_notes_are_written() -> None:
    given: list[dict[TopicPartition, TopicPartition]] = []

    def write(notes: Mapping[str, int], sources: Mapping[TopicPartition, TopicPartition]) -> bool:
        given.append(dict(sources))
        return bool(notes)

    def submit(call: Callable[..., bool], *arguments: Any) -> Future[bool]:
        return done(call(*arguments))

    writing = LazyWriting[str, int](write, submit)
    targets = [TopicPartition("paris.t", number) for number in range(2)]
    for number, target in enumerate(targets):
        writing.add(SOURCE, target, "a", number)
        writing.write_due(10_000 * number)
    assert given == [{target: SOURCE} for target in targets]
