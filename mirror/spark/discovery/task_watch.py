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
"""A task that has reported every 3 s, and reports nothing for so long beside others, is lost."""
BEGINS_WITHIN_MS: Final = 60_000
"""So long a task has for its first report after the job has begun, or after an outage in which no task could report.

Its executor may start later than others, and its writer waits for up to 15 s between two attempts.
"""
_OUTAGE_MS: Final = 7_000
"""If no task reports for so long, reports do not arrive."""


class TaskWatch:
    """The tasks of one job of one run."""

    def __init__(self, run: str, job: int, tasks: int, now: int) -> None:
        self._job: Final = run, job
        self._seen: Final = dict.fromkeys(range(tasks), now)
        """When each has reported last; at first, and after an outage, when reports could begin to arrive."""
        self._steady: Final = set[int]()
        """Those that have reported since then."""
        self._reported_ms = now
        """When the last report of any task has arrived."""
        self._last: Final = dict[int, tuple[int, int]]()

    def see(self, states: Iterable[TaskState], now: int) -> None:
        """Take what tasks have reported of themselves. A report that is read again says nothing.

        One that fails copies nothing until Spark has begun it again: others have its partitions then.
        """
        for state in states:
            sign = state.attempt, state.seen_ms
            if (state.run, state.job) != self._job or self._last.get(state.task) == sign:
                continue
            if now - self._reported_ms >= _OUTAGE_MS:
                self._steady.clear()
                self._seen.update(dict.fromkeys(self._seen, now))
            self._reported_ms = now
            if not state.stopping.startswith(FAILED):
                self._seen[state.task] = now
            self._last[state.task] = sign
            self._steady.add(state.task)

    def live(self, now: int) -> set[int]:
        """Return the tasks that are not lost: all of them while no task reports."""
        if now - self._reported_ms >= _OUTAGE_MS:
            return set(self._seen)
        return {
            task
            for task, seen_ms in self._seen.items()
            if now - seen_ms < (LOST_AFTER_MS if task in self._steady else BEGINS_WITHIN_MS)
        }
