"""Lines about partitions that begin to fail, and are copied again, as the tasks of a live job report them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import brief, named
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import COPYING, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.client import TopicPartition
    from mirror.relay.model.reports import PartitionReport, TaskState

_FAILING: Final = frozenset({Outcome.FAILED.value, Outcome.EXPIRED.value})
_LIVED_MS: Final = 60_000
"""A task that has lived for so long, and then fails with the same error as before, is reported again."""
_HEALTHY: Final = frozenset({COPYING, Outcome.COMPLETE.value})


class FailureLines:
    """Says each failure once, until its partition is copied again."""

    def __init__(self, run: str) -> None:
        self._run: Final = run
        self._failing: Final[dict[TopicPartition, tuple[int, int, int]]] = {}
        """The copy of each failing partition that has reported the last failure."""
        self._again: dict[str, None] = {}
        self._failed_tasks: Final = dict[int, str]()
        """The last error of each task that has failed, and has not lived for long since."""

    def failed(self, reports: Iterable[PartitionReport]) -> list[str]:
        """Return a line for each error with which partitions begin to fail. Of other runs, nothing."""
        failed: dict[str, dict[str, None]] = {}
        for report in reports:
            if report.run != self._run:
                continue
            name = f"{report.result.topic}-{report.result.partition}"
            copy = report.task, report.attempt, report.taken
            known = self._failing.get(report.target)
            if report.state in _FAILING:
                self._failing[report.target] = copy
                if known is None:
                    self._again.pop(name, None)
                    failed.setdefault(brief(report.result.error or "no reason is known"), {})[name] = None
                continue
            # A new copy, of a partition that was given away, is healthy until it has tried.
            has_tried = copy == known or report.result.end > report.result.start
            if known is not None and report.state in _HEALTHY and has_tried:
                del self._failing[report.target]
                self._again[name] = None
        return [f"{named('partition', list(names))} not copied: {error}" for error, names in failed.items()]

    def failed_tasks(self, states: Iterable[TaskState]) -> list[str]:
        """Return a line for each task of the run that has failed: another one only once it fails with another error."""
        lines = []
        for state in (one for one in states if one.run == self._run):
            error = brief(state.stopping.removeprefix(FAILED))
            if not state.stopping.startswith(FAILED):
                if state.seen_ms - state.since_ms >= _LIVED_MS:
                    self._failed_tasks.pop(state.task, None)
            elif self._failed_tasks.get(state.task) != error:
                self._failed_tasks[state.task] = error
                lines.append(f"task {state.task} on host {state.host} failed, and Spark begins it again: {error}")
        return lines

    def recovered(self) -> list[str]:
        """Return the line about the partitions that are copied again, since the last call."""
        again, self._again = list(self._again), {}
        return [f"{named('partition', again)} copied again"] if again else []
