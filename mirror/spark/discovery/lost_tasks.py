"""Knows which tasks of a job are lost, by what they report. Pure: times are monotonic ms.

Spark runs a task again at once if its process dies and there is a free slot, and else not before an executor comes
back: the other tasks of a stream never free theirs. Of a host that has vanished Spark learns only after two minutes
(``spark.network.timeout``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.relay.model.reports import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.reports import TaskState

LOST_AFTER_MS: Final = 15_000
"""A task that has reported every 3 s, and reports nothing for so long beside others, is lost.

If it reports again in the same attempt, it was only slow, as its host may be for hours: from then on it takes twice as
long until a task is lost. To move its partitions is work for the tasks that are left, which must not seem lost by it.
"""
_LONGEST_MS: Final = 120_000
"""By then Spark knows of a host that has vanished."""
BEGINS_WITHIN_MS: Final = 60_000
"""So long a task may be silent before its first report, and if it was not lost when an outage began, after that.

Its executor may start later than others, and its writer waits for up to 15 s between two attempts.
"""
_OUTAGE_MS: Final = 7_000
"""If no task reports for so long, reports do not arrive: the time until the next one is no silence of any task."""


# Invariant: A task is lost if it alone is silent, and its partitions go to others until it reports again; an outage of
#   the target loses no task.
# Test: tests/spark/discovery/test_lost_tasks.py::test_an_outage_of_the_target_loses_no_task
# Test: tests/spark/discovery/test_lost_tasks.py::test_a_task_that_was_lost_before_an_outage_stays_lost
# Test: tests/spark/discovery/test_lost_tasks.py::test_a_task_that_fails_is_lost_until_it_reports_that_it_copies
# Test: tests/spark/discovery/
#   test_assigner.py::test_the_partitions_of_a_lost_task_are_given_to_the_others_and_back_once_it_reports_again
class TaskWatch:
    """The tasks of one job of one run. A task that is lost stays so until it reports."""

    def __init__(self, run: str, job: int, tasks: int, now: int) -> None:
        self._job: Final = run, job
        self._seen: Final = dict.fromkeys(range(tasks), now)
        """When each has reported last, or the job has begun, on a clock that stands still during outages."""
        self._steady: Final = set[int]()
        """Those that have reported since the job began, and since the last outage unless they were lost then."""
        self._failed: Final = set[int]()
        self._reported_ms = now
        """When the last report of any task has arrived."""
        self._outages_ms = 0
        """How long outages have lasted, but for one that lasts."""
        self._lost_after_ms = LOST_AFTER_MS
        self._last: Final = dict[int, tuple[int, int]]()
        """The attempt and the time of each one's last report."""

    def see(self, states: Iterable[TaskState], now: int) -> None:
        """Take what tasks have reported of themselves. A report that is read again says nothing.

        One that fails is lost at once: it copies nothing until Spark has begun it again.
        """
        for state in states:
            sign = state.attempt, state.seen_ms
            if (state.run, state.job) != self._job or self._last.get(state.task) == sign:
                continue
            if now - self._reported_ms >= _OUTAGE_MS:
                self._steady.difference_update(self.live(now))
                self._outages_ms += now - self._reported_ms - _OUTAGE_MS
            self._reported_ms = now
            if self._was_slow(state, now):
                for lost in self._seen.keys() - self.live(now):
                    self._seen[lost] = self._clock(now) - _LONGEST_MS
                self._lost_after_ms = min(_LONGEST_MS, 2 * self._lost_after_ms)
            change = self._failed.add if state.stopping.startswith(FAILED) else self._failed.discard
            change(state.task)
            self._seen[state.task] = self._clock(now)
            self._last[state.task] = sign
            self._steady.add(state.task)

    def live(self, now: int) -> set[int]:
        """Return the tasks that are not lost: while no task reports, the answer stays the same."""
        clock_ms, lost_ms = self._clock(now), self._lost_after_ms
        begins_ms = max(BEGINS_WITHIN_MS, lost_ms)
        return {
            task
            for task, seen_ms in self._seen.items()
            if task not in self._failed and clock_ms - seen_ms < (lost_ms if task in self._steady else begins_ms)
        }

    def _was_slow(self, state: TaskState, now: int) -> bool:
        """Whether a task that seems lost lives: it has not failed, nor was it begun again."""
        if state.task in self._failed or state.task in self.live(now):
            return False
        return state.attempt == self._last.get(state.task, (None, 0))[0]

    def _clock(self, now: int) -> int:
        """Return the time without that of outages."""
        return min(now, self._reported_ms + _OUTAGE_MS) - self._outages_ms
