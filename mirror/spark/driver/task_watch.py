"""Knows which tasks of a job run, by what they report. Pure: times are monotonic ms.

A task whose process dies waits for a free slot: Spark runs it again at once if there is one, and else not before an
executor comes back. The other tasks of a stream never free theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.reports import TaskState

SILENT_AFTER_MS: Final = 60_000
"""A task reports every 10 s. As long as this it may wait for its target, or be started again."""
_FRESH_MS: Final = 20_000
"""Another task has reported within this time: so reports arrive."""


class TaskWatch:
    """The tasks of one job of one run."""

    def __init__(self, run: str, job: int, tasks: int, now: int) -> None:
        self._job: Final = run, job
        self._seen: Final = dict.fromkeys(range(tasks), now)
        """When each was known to run last; at first, when the job began."""
        self.all: Final = set(self._seen)
        """The numbers of all tasks."""
        self._last: Final = dict[int, tuple[int, int]]()

    def see(self, states: Iterable[TaskState], now: int) -> None:
        """Take what tasks have reported of themselves. A report that is read again says nothing."""
        for state in states:
            sign = state.attempt, state.seen_ms
            if (state.run, state.job) == self._job and self._last.get(state.task) != sign:
                self._last[state.task] = sign
                self._seen[state.task] = now

    def silent(self, now: int) -> set[int]:
        """Return the tasks that do not run; none while no task reports, since then it is the reports that fail."""
        if not any(task in self._last and now - seen_ms < _FRESH_MS for task, seen_ms in self._seen.items()):
            return set()
        return {task for task, seen_ms in self._seen.items() if now - seen_ms >= SILENT_AFTER_MS}
