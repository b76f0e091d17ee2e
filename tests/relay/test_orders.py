"""What is told to a stream's tasks, as it is committed and understood."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace

import pytest

from mirror.client import OffsetAndMetadata
from mirror.relay.progress.control import POLL_INTERVAL_MS, ControlPoller, RunControl, control_partition, from_offset
from mirror.timing import FOREVER_MS

TOLD = RunControl(run="run-1", host="h", since_ms=5, epoch=3)


@pytest.mark.parametrize(
    "orders",
    [
        TOLD,
        TOLD.stopped(),
        TOLD.stopped(ended=True),
        replace(TOLD, seen_ms=9),
        replace(TOLD.stopped(), seen_ms=9),
    ],
)
def test_orders_are_understood_as_they_were_committed(orders: RunControl) -> None:
    assert from_offset(orders.to_offset()) == orders


@pytest.mark.parametrize(
    "metadata", ["", "x", "[]", "1", "{}", '{"run": "a"}', '{"run": "a", "host": "h", "since": []}']
)
def test_what_a_stranger_committed_is_no_order(metadata: str) -> None:
    assert from_offset(OffsetAndMetadata(1, None, metadata)) is None
    assert from_offset(None) is None


def test_an_epoch_ends_by_a_stop_by_a_newer_plan_and_by_another_run() -> None:
    assert TOLD.end_reason("run-1", 3) is None
    assert TOLD.end_reason("run-1", 2) == "there is something new to plan"
    assert TOLD.stopped().end_reason("run-1", 3) == "it was told to stop"
    assert TOLD.end_reason("run-0", 3) == "another run of this flow took over: run-1, on h"


def test_a_run_that_ended_fences_nobody() -> None:
    assert TOLD.other_run_active("run-0")
    assert not TOLD.other_run_active("run-1")
    assert not TOLD.stopped(ended=True).other_run_active("run-0")


def test_a_run_says_that_it_goes_on_in_a_key_of_its_own() -> None:
    """Older versions read the others, and are read."""
    old = {"v": 1, "run": "run-1", "host": "h", "since": 5}
    assert json.loads(TOLD.to_offset().metadata) == old
    assert json.loads(replace(TOLD, seen_ms=9).to_offset().metadata) == {**old, "seen": 9}
    assert from_offset(OffsetAndMetadata(3, None, json.dumps(old))) == TOLD


def test_a_run_that_has_not_been_heard_of_for_a_minute_is_gone() -> None:
    assert TOLD.silent_ms(10**9) is None
    assert not TOLD.is_dead(10**9), "of an older version nobody knows"
    seen = replace(TOLD, seen_ms=10**9)
    assert (seen.silent_ms(10**9 + 59_999), seen.is_dead(10**9 + 59_999)) == (59_999, False)
    assert seen.is_dead(10**9 + 60_000)
    assert seen.silent_ms(10**9 - 5) == 0, "the clock of its host is ahead"


def test_each_flow_is_told_in_a_group_of_its_own() -> None:
    assert control_partition("a")[0] != control_partition("b")[0]
    assert control_partition("a")[0].startswith("mirror.a."), "where the flow's own permissions hold"


def test_it_is_asked_one_question_at_a_time_and_a_failure_ends_nothing() -> None:
    asked: list[Future[RunControl | None]] = []

    def ask() -> Future[RunControl | None]:
        asked.append(Future())
        return asked[-1]

    listening = ControlPoller(ask, "run-1", 3, 1_000)
    assert listening.due_ms() == 1_000
    assert listening.poll(1_000) is None
    assert listening.due_ms() == FOREVER_MS
    assert listening.poll(10_000) is None
    assert len(asked) == 1
    asked[0].set_exception(TimeoutError())
    assert listening.poll(10_000) is None
    assert listening.due_ms() == 1_000 + POLL_INTERVAL_MS, "overdue: at once"
    listening.poll(10_001)
    asked[1].set_result(TOLD.stopped())
    assert listening.poll(10_002) == "it was told to stop"
