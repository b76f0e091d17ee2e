"""A task of a stream that cannot begin: it tries again, or is begun again, unless its flow is to stop."""

from __future__ import annotations

from typing import cast

import pytest

from mirror.errors import AuthenticationFailed, KafkaTimeout
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.task import beginning
from mirror.relay.task.beginning import copy_once_clusters_answer
from mirror.timing import Clock


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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception, stop: str = "") -> None:
        self.errors, self.reported, self.begun = list(errors), list[str](), 0

        class Control:
            def __init__(self, *_: object) -> None: ...

            def stop_reason(self, _: int) -> str:
                return stop

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
def test_a_flow_that_is_to_stop_does_not_begin(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    (result,) = Task(monkeypatch, error, stop="its flow was stopped").run(range_to(OPEN_END))
    assert result.outcome is Outcome.UNFINISHED
    assert "its flow was stopped" in str(result.error)


@pytest.mark.parametrize("error", [KafkaTimeout("away"), AuthenticationFailed("no login")])
def test_the_task_of_a_scheduled_run_fails_at_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    task = Task(monkeypatch, error)
    with pytest.raises(type(error)):
        task.run(range_to(10))
    assert task.reported == []
