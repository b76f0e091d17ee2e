"""Which tasks of a job are lost, by what they report of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.relay.model.reports import FAILED, TaskState
from mirror.relay.task import beginning
from mirror.spark.discovery.lost_tasks import BEGINS_WITHIN_MS, LOST_AFTER_MS, TaskWatch

EVERY_MS = 3_000


def state(task: int, seen_ms: int, *, attempt: int = 0, run: str = "run-1", job: int = 1) -> TaskState:
    return TaskState(
        run=run,
        job=job,
        task=task,
        attempt=attempt,
        host="h",
        pid=1,
        since_ms=0,
        seen_ms=seen_ms,
        version=0,
        partitions=1,
        stopping="",
    )


def watch_of(tasks: int, until_ms: int = 30_000) -> TaskWatch:
    """All tasks of a job report each 3 s."""
    watch = TaskWatch("run-1", 1, tasks, 0)
    for now in range(0, until_ms + 1, EVERY_MS):
        watch.see([state(task, now) for task in range(tasks)], now)
    return watch


def test_a_task_that_stops_to_report_beside_another_one_is_lost() -> None:
    watch = watch_of(2)
    end_ms = 30_000 + LOST_AFTER_MS
    for now in range(30_000, end_ms, EVERY_MS):
        watch.see([state(0, now), state(1, 30_000)], now)
        assert watch.live(now) == {0, 1}
    assert watch.live(end_ms) == {0}, "its last report was only read again"
    watch.see([state(1, end_ms, attempt=1)], end_ms)
    assert watch.live(end_ms) == {0, 1}


def test_a_task_that_was_only_slow_doubles_the_time_until_one_is_lost() -> None:
    """A machine without a free core would have the partitions of its tasks moved to and fro for ever."""
    watch, now = watch_of(2), 30_000
    for lost_ms in (15_000, 30_000, 60_000, 120_000, 120_000):
        end_ms = now + lost_ms
        while now < end_ms:
            assert watch.live(now) == {0, 1}
            watch.see([state(0, now)], now)
            now += 1_000
        assert watch.live(now) == {0}
        watch.see([state(1, now)], now)
        assert watch.live(now) == {0, 1}


def test_a_task_that_is_lost_stays_so_when_another_one_was_only_slow() -> None:
    watch, end_ms = watch_of(3), 30_000 + LOST_AFTER_MS
    for now in range(30_000, end_ms + 1, 1_000):
        watch.see([state(0, now)], now)
    assert watch.live(end_ms) == {0}
    for now in range(end_ms, end_ms + 200_000, 1_000):
        watch.see([state(0, now), state(1, now)], now)
        assert watch.live(now) == {0, 1}


def test_a_task_that_was_begun_again_was_not_slow() -> None:
    watch = watch_of(2)
    for now in range(30_000, 60_000, 1_000):
        watch.see([state(0, now)], now)
    watch.see([state(1, 60_000, attempt=1)], 60_000)
    for now in range(60_000, 60_000 + LOST_AFTER_MS, 1_000):
        watch.see([state(0, now)], now)
        assert watch.live(now) == {0, 1}
    assert watch.live(60_000 + LOST_AFTER_MS) == {0}


def test_a_task_that_fails_is_lost_until_it_reports_that_it_copies() -> None:
    """It may live for a few seconds each time, and not for long enough to be silent for 15 s."""
    watch = watch_of(2)
    watch.see([replace(state(1, 31_000), stopping=f"{FAILED}no login")], 31_000)
    assert watch.live(31_000) == {0}
    watch.see([state(1, 32_000, attempt=1)], 32_000)
    assert watch.live(32_000) == {0, 1}
    watch.see([replace(state(1, 33_000, attempt=1), stopping=f"{FAILED}no login")], 33_000)
    assert watch.live(33_000) == {0}


def test_a_task_that_fails_before_it_has_copied_is_lost() -> None:
    watch = TaskWatch("run-1", 1, 2, 0)
    watch.see([replace(state(1, 3_000), stopping=f"{FAILED}no login")], 3_000)
    assert watch.live(3_000) == {0}


def test_one_whose_executor_starts_late_has_more_time() -> None:
    watch = TaskWatch("run-1", 1, 2, 0)
    for now in range(0, BEGINS_WITHIN_MS, EVERY_MS):
        watch.see([state(0, now)], now)
        assert watch.live(now) == {0, 1}
    assert watch.live(BEGINS_WITHIN_MS) == {0}


@pytest.mark.parametrize("outage_ms", [8_000, 15_000, 300_000])
def test_an_outage_of_the_target_loses_no_task(outage_ms: int) -> None:
    """The writer of a task waits for up to 15 s between two attempts, so that some report before others."""
    watch = watch_of(3)
    assert watch.live(30_000 + outage_ms - 1) == {0, 1, 2}
    back_ms = 30_000 + outage_ms
    late = {0: back_ms, 1: back_ms + 3_000, 2: back_ms + 27_000}
    for now in range(back_ms, back_ms + 60_000, 1_000):
        watch.see([state(task, now // EVERY_MS) for task, since_ms in late.items() if now >= since_ms], now)
        assert watch.live(now) == {0, 1, 2}


def test_a_task_that_an_outage_has_ended_is_lost_after_it() -> None:
    watch = watch_of(2)
    for now in range(100_000, 100_000 + BEGINS_WITHIN_MS + 1, EVERY_MS):
        watch.see([state(0, now)], now)
    assert watch.live(100_000 + BEGINS_WITHIN_MS) == {0}


@pytest.mark.parametrize("outage_ms", [8_000, 300_000])
def test_a_task_that_was_lost_before_an_outage_stays_lost(outage_ms: int) -> None:
    watch = watch_of(2)
    lost_ms = 30_000 + LOST_AFTER_MS
    for now in range(30_000, lost_ms + 1, EVERY_MS):
        watch.see([state(0, now)], now)
    assert watch.live(lost_ms) == {0}
    back_ms = lost_ms + outage_ms
    assert watch.live(back_ms) == {0}, "nothing is new"
    for now in range(back_ms, back_ms + 60_000, EVERY_MS):
        watch.see([state(0, now)], now)
        assert watch.live(now) == {0}
    watch.see([state(1, back_ms, attempt=1)], back_ms + 60_000)
    assert watch.live(back_ms + 60_000) == {0, 1}


def test_a_task_that_has_failed_before_an_outage_stays_lost() -> None:
    watch = watch_of(2)
    watch.see([replace(state(1, 31_000), stopping=f"{FAILED}no login")], 31_000)
    watch.see([state(0, 100_000)], 100_000)
    assert watch.live(100_000) == {0}


def test_a_task_that_was_silent_before_outages_gets_no_time_again_after_each() -> None:
    """The other one reports for 3 s, and then for 11 s not: of these, the first 7 s count."""
    watch = watch_of(2)
    for now in range(31_000, 30_000 + 2 * BEGINS_WITHIN_MS, 1_000):
        watch.see([state(0, now)] if now % 14_000 in {0, 3_000} else [], now)
        assert watch.live(now) == {0, 1} or now - 30_000 >= BEGINS_WITHIN_MS
    assert watch.live(30_000 + 2 * BEGINS_WITHIN_MS) == {0}


def test_an_outage_that_follows_another_one_loses_no_task() -> None:
    """Only one task has reported between them."""
    watch = watch_of(2)
    watch.see([state(0, 100_000)], 100_000)
    watch.see([state(0, 500_000)], 500_000)
    assert watch.live(500_000) == {0, 1}


def test_an_outage_that_is_too_short_to_be_one_loses_no_task() -> None:
    """The last report of a task is up to 3 s older than that of another one, and its next one up to 5 s later."""
    watch = watch_of(2)
    watch.see([state(0, 33_000)], 32_900)
    for now in range(39_800, 44_900, 1_000):
        watch.see([state(0, now)], now)
        assert watch.live(now) == {0, 1}


def test_without_any_report_nothing_is_known() -> None:
    assert TaskWatch("run-1", 1, 2, 0).live(10 * BEGINS_WITHIN_MS) == {0, 1}
    watch = watch_of(2)
    for now in range(30_000, 300_000, 3_000):
        watch.see([state(0, now, run="run-0"), state(1, now, job=2)], now)
    assert watch.live(300_000) == {0, 1}, "those of other jobs say nothing"


def test_a_task_that_has_waited_for_a_cluster_begins_before_it_is_lost() -> None:
    """It pauses between two attempts, each of which waits for some seconds."""
    assert beginning._BACKOFF_MAX_MS <= BEGINS_WITHIN_MS / 2
