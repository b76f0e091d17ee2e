"""An attempt that was shut out by another of its own run keeps quiet as long as there are signs of that one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import pytest

from mirror.client import TopicPartition
from mirror.errors import ConnectionFailed
from mirror.relay.progress.control import RunControl
from mirror.spark.datasource.speculation import POLL_MS, OtherAttempt, wait_for_other_attempt
from mirror.spark.datasource.task_spec import TaskSpec
from tests.fakes.clock import FakeClock

PATIENCE_MS = 10_000
TP = TopicPartition("a.orders", 0)
OURS = RunControl(run="ours", host="h", since_ms=0)


class Seen:
    """What is seen of the other attempt: the first orders and offsets, then the next ones, and the last for ever."""

    def __init__(self, orders: Callable[[int], RunControl | None], offset: Callable[[int], int]) -> None:
        self.looks = 0
        self._orders, self._offset = orders, offset

    def control(self) -> RunControl | None:
        self.looks += 1
        return self._orders(self.looks)

    def offsets(self) -> dict[TopicPartition, int]:
        return {TP: self._offset(self.looks)}


def _unanswered(_look: int) -> RunControl | None:
    raise ConnectionFailed("no route")


def waited(seen: Seen, until_ms: int | None = None) -> int:
    """For how long it keeps quiet, in ms; ``until_ms`` from the start."""
    clock = FakeClock()
    wall = None if until_ms is None else clock.unix_ms() + until_ms
    spec = TaskSpec(0, 1, OURS.run, 1, wall, 0)
    began = clock.now()
    wait_for_other_attempt(
        cast("OtherAttempt", seen),
        spec,
        timeout_ms=PATIENCE_MS,
        clock=clock,
        pause=lambda seconds: clock.advance(int(seconds * 1000)),
    )
    return clock.now() - began


@pytest.mark.parametrize("orders", [None, RunControl(run="another", host="h", since_ms=0)])
def test_the_wait_ends_if_another_run_has_taken_over(orders: RunControl | None) -> None:
    assert waited(Seen(lambda _: orders, lambda _: 0), 60_000) == POLL_MS


@pytest.mark.parametrize("lasts_ms", [0, 60_000])
def test_in_a_stream_the_wait_ends_soon_after_the_epoch(lasts_ms: int) -> None:
    """The next epoch waits for this task, while the leases of this one run out."""
    assert lasts_ms < waited(Seen(lambda _: OURS, lambda _: 0), lasts_ms) <= lasts_ms + 2 * POLL_MS


@pytest.mark.parametrize("command", [OURS.stopped(), replace(OURS, epoch=2)])
def test_in_a_stream_the_wait_ends_soon_after_a_command_that_ends_the_epoch(command: RunControl) -> None:
    seen = Seen(lambda look: OURS if look <= 5 else command, lambda _: 0)
    assert waited(seen, 60_000) <= 7 * POLL_MS


def test_in_a_stream_a_target_that_does_not_answer_does_not_delay_the_next_epoch() -> None:
    assert waited(Seen(_unanswered, lambda _: 0), 3_000) <= 5 * POLL_MS


def test_in_a_scheduled_run_the_wait_lasts_while_progress_is_made() -> None:
    assert waited(Seen(lambda _: OURS, lambda look: min(look, 30))) == 30 * POLL_MS + PATIENCE_MS


def test_a_target_that_does_not_answer_is_no_sign_of_life() -> None:
    answers: Iterator[RunControl | None] = iter([OURS])

    def ask(_look: int) -> RunControl | None:
        for answer in answers:
            return answer
        return _unanswered(_look)

    assert waited(Seen(ask, lambda _: 0)) == POLL_MS + PATIENCE_MS
