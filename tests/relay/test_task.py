"""One task's copies together: who is asked for what, how often anything is done, and whose failure is whose."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.backoff import Backoff
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.progress.control import RunControl
from mirror.relay.task.task import Task
from mirror.wire.decode import Record
from tests.fakes.clock import FakeClock
from tests.relay.copy_harness import TIMES, made
from tests.relay.task_harness import Source, TaskHarness


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> TaskHarness:
    return TaskHarness(20, monkeypatch)


def test_all_are_copied_and_the_results_are_in_the_order_of_the_ranges(harness: TaskHarness) -> None:
    results = harness.copy()
    assert [each.partition for each in results] == list(range(20))
    assert {(each.outcome, each.end, each.records) for each in results} == {(Outcome.COMPLETE, 2, 2)}
    assert harness.target.committed == dict.fromkeys(range(20), 2)
    assert all([one.value for one in sent] == [b"0", b"1"] for sent in harness.target.sent.values())


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=7), None])
def test_the_source_is_told_which_topic_is_to_be_read(harness: TaskHarness, topic_id: uuid.UUID | None) -> None:
    harness.target.topic_id = str(topic_id or "no UUID")
    assert {each.outcome for each in harness.copy()} == {Outcome.COMPLETE}
    assert harness.source.topics == {topic_id}


def test_a_silent_source_fails_its_partition_alone_and_why_is_asked_once(harness: TaskHarness) -> None:
    for partition in (3, 8):
        del harness.source.logs[partition]
    results = harness.copy()
    assert {each.partition for each in results if each.outcome is Outcome.FAILED} == {3, 8}
    assert results[3].error == f"t-3: nothing came from the source for {TIMES.stall_ms} ms: no route"
    assert harness.source.calls["last_error 3"] == harness.source.calls["last_error 8"] == 1
    assert harness.turns < 100


def test_who_may_not_keep_progress_fails_alone(harness: TaskHarness) -> None:
    harness.target.forbidden = {5}
    results = harness.copy()
    assert {each.partition for each in results if each.outcome is not Outcome.COMPLETE} == {5}
    assert "no Read on the group" in str(results[5].error)


@pytest.mark.parametrize("silent", [{0}, set(range(20))])
def test_an_epoch_ends_on_time_and_nothing_spins_while_it_waits(harness: TaskHarness, silent: set[int]) -> None:
    harness.target.silent = silent
    began = harness.clock.unix_ms()
    results = harness.copy(until_ms=began + 60_000)
    assert {each.partition for each in results if each.outcome is Outcome.UNFINISHED} == silent
    assert all(each.stuck_since_ms is not None for each in results if each.partition in silent)
    assert began + 60_000 <= harness.clock.unix_ms() <= began + 60_000 + TIMES.request_timeout_ms + 1_000
    assert harness.turns < 1_000
    assert harness.steps < 1_000


def test_a_thousand_partitions_cost_what_happens_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = TaskHarness(1_000, monkeypatch)
    del harness.source.logs[7]  # 999 are done soon; then the task waits for one of them
    results = harness.copy()
    assert Counter(each.outcome for each in results) == {Outcome.COMPLETE: 999, Outcome.FAILED: 1}
    assert harness.steps < 20 * 1_000
    assert harness.turns < 200


def test_a_limited_rate_is_waited_for_asleep(harness: TaskHarness) -> None:
    size = made(0).size
    began = harness.clock.now()
    results = harness.copy(max_bytes_per_second=10 * size)
    assert {each.outcome for each in results} == {Outcome.COMPLETE}
    assert harness.clock.now() - began >= 1_900, "40 batches at 10 a second, of which 20 come at once"
    assert harness.turns < 500


def keep_the_first(record: Record) -> Record | None:
    return record._replace(value=b"changed") if record.offset == 0 else None


def test_a_flow_s_transform_is_applied(harness: TaskHarness) -> None:
    """It was loaded, and never called: records were copied as they are."""
    results = harness.copy(transform=f"{__name__}:keep_the_first")
    assert {each.outcome for each in results} == {Outcome.COMPLETE}
    assert all([one.value for one in sent] == [b"changed"] for sent in harness.target.sent.values())
    assert results[0].skipped == {"dropped": 1}


@pytest.mark.parametrize(
    ("held", "after_ms", "wakes"), [(999_999, 10, True), (999_999, 9, False), (100_000, 10, False)]
)
def test_who_waits_for_memory_is_woken_by_an_acknowledgement(held: int, after_ms: int, wakes: bool) -> None:
    """Where nobody was refused room, or all were asked just now, nobody waits, and the task sleeps on."""
    clock = FakeClock()
    clients = cast("Any", SimpleNamespace(consumer=Source(clock, {}), lookups=None))
    backoff = Backoff(100, 1_000, random.Random(1))
    wake_event = threading.Event()
    task = Task(
        clients,
        CopyPolicy(),
        TIMES,
        clock,
        backoff,
        buffer_memory=1_000_000,
        max_partition_bytes=1_000,
        wake_event=wake_event,
    )
    try:
        task.source_budget.took(held)
        task.source_budget.may_take(1_000, 1_000)
        clock.advance(after_ms)
        task.on_batch_answered(cast("Any", SimpleNamespace(awaits_acknowledgement=False)), failed=False)
        assert wake_event.is_set() == wakes
    finally:
        task.close()


@pytest.fixture
def followed(harness: TaskHarness) -> TaskHarness:
    harness.end = OPEN_END
    return harness


def test_what_is_followed_is_copied_until_the_epoch_ends_and_nothing_new_is_no_failure(followed: TaskHarness) -> None:
    """For many times as long as a source may be silent."""
    began = followed.clock.unix_ms()
    followed.source.later[3] = [(followed.clock.now() + 40_000, made(2))]
    results = followed.copy(until_ms=began + 60_000)
    assert {(each.outcome, each.error) for each in results} == {(Outcome.COMPLETE, None)}
    assert [each.end for each in results] == [3 if partition == 3 else 2 for partition in range(20)]
    assert followed.target.committed[3] == 3, "committed, too"
    assert began + 60_000 <= followed.clock.unix_ms() <= began + 61_000
    assert followed.source.calls["last_heard"] < 60
    assert followed.turns < 1_000
    assert followed.steps < 1_000


def test_who_waits_with_nothing_to_fetch_is_idle(followed: TaskHarness) -> None:
    """Also before the first record: its broker holds its first answer back until there is one."""
    began = followed.clock.unix_ms()
    followed.target.committed = dict.fromkeys(range(20), 2)
    results = followed.copy(until_ms=began + 60_000)
    for each in results:
        assert each.story is not None
        assert each.story.phases["idle"] >= 55_000, each.story.phases
        assert each.story.phases.get("fetching", 0) == 0
        assert (each.story.lag_before, each.story.lag_after) == (0, 0)


def test_a_followed_source_that_answers_no_more_fails_its_partition_alone(followed: TaskHarness) -> None:
    followed.source.dead = {7}
    results = followed.copy(until_ms=followed.clock.unix_ms() + 60_000)
    failed = [each for each in results if each.outcome is not Outcome.COMPLETE]
    assert [each.partition for each in failed] == [7]
    assert failed[0].error == f"t-7: nothing came from the source for {TIMES.stall_ms} ms: no route"
    assert failed[0].end == 2, "and keeps what was copied"
    assert 2 <= failed[0].retries <= 4


def test_a_followed_source_that_comes_back_is_followed_on(followed: TaskHarness) -> None:
    now = followed.clock.now()
    followed.source.dead, followed.source.back_ms = {7}, now + 20_000
    followed.source.later[7] = [(now + 50_000, made(2))]
    results = followed.copy(until_ms=followed.clock.unix_ms() + 60_000)
    assert {(each.outcome, each.error) for each in results} == {(Outcome.COMPLETE, None)}
    assert (results[7].end, results[7].records) == (3, 3)
    assert results[7].retries


def orders(**changes: Any) -> RunControl:
    return RunControl(**{"run": "run-1", "host": "h", "since_ms": 1, **changes})


@pytest.mark.parametrize("told", [orders(stop=True), orders(epoch=4), orders(run="run-2")])
def test_an_epoch_ends_early_in_order_when_it_is_told_to(followed: TaskHarness, told: RunControl) -> None:
    began = followed.clock.unix_ms()
    followed.lookups.control, followed.lookups.control_from = told, 1
    results = followed.copy(until_ms=began + 60_000, run="run-1", epoch=3)
    assert {each.outcome for each in results} == {Outcome.COMPLETE}
    assert all(each.end == each.records == followed.target.committed[each.partition] for each in results), (
        "what was sent"
    )
    assert followed.clock.unix_ms() <= began + 2_000


@pytest.mark.parametrize("told", [None, orders(), orders(epoch=3)])
def test_an_epoch_goes_on_while_nobody_tells_it_otherwise_and_asks_once_a_second(
    followed: TaskHarness, told: RunControl | None
) -> None:
    began = followed.clock.unix_ms()
    followed.lookups.control = told
    followed.copy(until_ms=began + 60_000, run="run-1", epoch=3)
    assert followed.clock.unix_ms() >= began + 60_000
    assert 50 <= followed.lookups.control_reads <= 61


def test_an_epoch_that_is_told_to_end_waits_for_who_does_not_answer_only_so_long(followed: TaskHarness) -> None:
    began = followed.clock.unix_ms()
    followed.target.silent = {5}
    followed.lookups.control = orders(stop=True)
    results = followed.copy(until_ms=began + 60_000, run="run-1", epoch=3, wind_up_ms=500)
    assert {each.partition for each in results if each.outcome is Outcome.UNFINISHED} <= {5}
    assert followed.clock.unix_ms() <= began + 3_000


def test_nobody_is_asked_for_orders_where_nobody_gives_them(harness: TaskHarness) -> None:
    harness.copy()
    assert harness.lookups.control_reads == 0
