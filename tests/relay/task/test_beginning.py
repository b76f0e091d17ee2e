"""A task of a stream that cannot begin: it tries again, or is begun again, unless its flow is to stop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from mirror.client import Admin
from mirror.errors import AuthenticationFailed, KafkaTimeout
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.progress import control_record
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.relay.task import beginning
from mirror.relay.task.beginning import copy_once_clusters_answer
from mirror.runtime.clock import SystemClock
from mirror.timing import Clock
from mirror.wire.api import Api
from tests.polling import eventually
from tests.relay.fake_pair import FakePair


def range_to(end: int) -> Range:
    return Range(
        flow="f",
        topic="t",
        target_topic="a.t",
        partition=0,
        start=0,
        end=end,
        source_cluster_id="id",
        topic_id="",
    )


class NoTime:
    def now(self) -> int:
        return 0


class Task:
    """A task that fails as often as there are ``errors``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.errors, self.reported, self.begun = list(errors), list[str](), 0

        class Control:
            def __init__(self, *_: object) -> None: ...

            def stop_reason(self, _: int) -> str:
                return ""

        monkeypatch.setattr(beginning, "_Control", Control)

    def copy(self) -> list[RangeResult]:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        return []

    def run(self, *ranges: Range) -> list[RangeResult]:
        clock = cast("Clock", NoTime())
        return copy_once_clusters_answer(self.copy, ranges, CopyPolicy(), {}, "f", clock, self.reported.append)


def test_a_cluster_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, KafkaTimeout("away"), KafkaTimeout("away"))
    assert task.run(range_to(OPEN_END)) == []
    assert (task.begun, task.reported) == (3, [])


@pytest.mark.parametrize(
    ("error", "line"), [(AuthenticationFailed("no login"), "no login"), (ValueError("a bug"), "ValueError: a bug")]
)
@pytest.mark.parametrize("ranges", [[], [range_to(OPEN_END)]])
def test_another_error_is_reported_and_raised_to_spark(
    monkeypatch: pytest.MonkeyPatch, error: Exception, line: str, ranges: list[Range]
) -> None:
    task = Task(monkeypatch, error)
    with pytest.raises(type(error)):
        task.run(*ranges)
    assert (task.begun, task.reported) == (1, [line])


@pytest.mark.parametrize("error", [KafkaTimeout("away"), AuthenticationFailed("no login")])
@pytest.mark.parametrize("reads", [0, 3])
def test_a_flow_that_is_to_stop_does_not_begin(monkeypatch: pytest.MonkeyPatch, error: Exception, reads: int) -> None:
    """It ends within a second, however long the pause."""
    for name in ("_BACKOFF_MS", "_BACKOFF_MAX_MS", "_FAILED_PAUSE_MS"):
        monkeypatch.setattr(beginning, name, 10_000)
    monkeypatch.setattr(control_record, "POLL_INTERVAL_MS", 20)
    target, begun = FakePair(monkeypatch).target, list[int]()
    options = {"bootstrap.servers": target.bootstrap}
    record = RunControl(run="r", host="h", since_ms=1, job=1, generation=1, seen_ms=1)
    group, partition = control_partition("f")

    def write(record: RunControl) -> None:
        with Admin(options) as admin:
            admin.commit_group_offsets(group, {partition: record.to_offset()})

    def copy() -> list[RangeResult]:
        begun.append(1)
        raise error

    write(record if reads else record.stopped())
    policy = replace(CopyPolicy(), run="r", job=1, generation=1)
    with ThreadPoolExecutor() as pool:
        ranges = [range_to(OPEN_END)]
        task = pool.submit(copy_once_clusters_answer, copy, ranges, policy, options, "f", SystemClock(), str)
        eventually(lambda: task.done() or len(target.calls(Api.OFFSET_FETCH)) >= reads > 0, what="the control record")
        write(record.stopped())
        (result,) = task.result(30)
    assert result.outcome is Outcome.UNFINISHED
    assert "the run was asked to stop" in str(result.error)
    assert begun == [1]


@pytest.mark.parametrize("error", [KafkaTimeout("away"), AuthenticationFailed("no login")])
def test_the_task_of_a_scheduled_run_fails_at_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    task = Task(monkeypatch, error)
    with pytest.raises(type(error)):
        task.run(range_to(10))
    assert task.reported == []
