"""What the tasks of a live job report of themselves and of their partitions, and how much of it is new. Pure.

A report has the counts since its copy began, and not since the report before: reports may be lost (compaction keeps the
last one of each partition), repeated, or read in another order than they were made, and the counts still add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.model.ranges import RangeResult
from mirror.wire.integers import INT32_MAX

COPYING: Final = "copying"
"""The state of a partition while it is copied."""
SETTLED: Final = "settled"
"""The state of a partition that its task has released: the task writes nothing of it any more, nor commits progress."""

FAILED: Final = "it failed: "
"""How :attr:`TaskState.stopping` begins if the task is to be begun again."""
NO_TASK: Final = INT32_MAX
"""The task of what the driver reports of a partition: why it cannot be given to one, or what one has returned."""
MOST_SETTLED: Final = 1_000
"""Of so many partitions that it has settled a task keeps its report: the driver has read the earlier ones long ago."""
_MAX_COPIES: Final = 4
"""So many copies of a partition may report at the same time: an owner, and attempts that do not know their end yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """A task of a live job. Times are ms since 1970."""

    run: str
    """The run and the ``job`` of it that the task belongs to."""
    job: int
    task: int
    """Its number in the job."""
    attempt: int
    """Spark's number of this attempt at the task: 0, 1, ..."""
    host: str
    pid: int
    since_ms: int
    """When this attempt began."""
    seen_ms: int
    """When it reported this."""
    version: int
    """Up to which version it has applied the changes of assignments."""
    partitions: int
    """How many it owns."""
    stopping: str = ""
    """Why it is about to end; "": it is not."""


class CopyId(NamedTuple):
    """Names one copy of a partition; a later one is greater, whatever the clocks of the hosts say."""

    job: int
    taken: int
    attempt: int
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition, as the task that owns it sees it."""

    target: TopicPartition
    run: str
    """The run and the ``job`` of it that the task belongs to."""
    job: int
    task: int
    attempt: int
    """Spark's number of this attempt at the task."""
    taken: int
    """Up to which version the task had applied the changes of assignments when it took the partition."""
    state: str
    """:data:`COPYING`, :data:`SETTLED`, or the value of an ``Outcome``."""
    sequence: int
    """Rises with each report of this copy."""
    version: int
    """The version of the assignments that this follows: the one that has released it if it is settled."""
    result: RangeResult
    """What came of this copy since it was taken, without the timeline."""

    @property
    def copy_id(self) -> CopyId:
        """Which copy this is a report of."""
        return CopyId(self.job, self.taken, self.attempt, self.task)


class LastReports:
    """The last report of each partition that a task has, and of the last ones that it has settled."""

    def __init__(self) -> None:
        self._current: Final = dict[TopicPartition, PartitionReport]()
        self._settled: Final = dict[TopicPartition, PartitionReport]()

    def take(self, report: PartitionReport) -> None:
        """Keep ``report`` in place of the one before."""
        self._current.pop(report.target, None)
        self._settled.pop(report.target, None)
        if report.state != SETTLED:
            self._current[report.target] = report
            return
        self._settled[report.target] = report
        if len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]

    def all(self) -> list[PartitionReport]:
        """Return them."""
        return [*self._settled.values(), *self._current.values()]


# Invariant: Reports add up to the last results, however they are lost, repeated and ordered.
# Test: tests/relay/model/
#   test_reports.py::test_the_deltas_add_up_to_the_last_results_however_reports_are_lost_repeated_and_ordered
class ReportedCounts:
    """Counts the reports of one run, each once, in whichever order and however often they are read."""

    def __init__(self, run: str) -> None:
        self._run: Final = run
        self._last: dict[TopicPartition, dict[CopyId, PartitionReport]] = {}

    def latest(self, target: TopicPartition) -> PartitionReport | None:
        """Return the last report of the latest copy of ``target``; None if nothing was counted."""
        copies = self._last.get(target)
        return copies[max(copies)] if copies else None

    def take(self, report: PartitionReport) -> RangeResult | None:
        """Return what ``report`` adds, with the state of the partition's latest copy; None if it adds nothing.

        Reports of other runs add nothing, and neither do those of copies before the last :data:`_MAX_COPIES` ones, nor
        those of tasks that have copied nothing of a partition that they settle: these do not know its source.
        """
        if report.run != self._run or not report.result.topic:
            return None
        copies = self._last.setdefault(report.target, {})
        before = copies.get(report.copy_id)
        if before is not None and report.sequence <= before.sequence:
            return None
        copies[report.copy_id] = report
        if len(copies) > _MAX_COPIES:
            oldest = min(copies)
            del copies[oldest]
            if oldest == report.copy_id:
                return None
        added = report.result if before is None else difference(before.result, report.result)
        latest = copies[max(copies)].result
        counts = {name: getattr(added, name) for name in _COUNTS}
        return added if latest is report.result else replace(latest, start=latest.end, **counts)


_COUNTS: Final = (
    *("records", "batches", "bytes", "seconds", "retries"),
    *("skipped", "deep", "gaps", "aside", "failures", "expiries", "target_losses"),
)


def difference(before: RangeResult, now: RangeResult) -> RangeResult:
    """Return what ``now`` counts and ``before``, an earlier result of the same copy, does not."""
    return replace(
        now,
        start=before.end,
        records=now.records - before.records,
        batches=now.batches - before.batches,
        bytes=now.bytes - before.bytes,
        seconds=now.seconds - before.seconds,
        retries=now.retries - before.retries,
        skipped=_difference_by_key(before.skipped, now.skipped),
        deep=_difference_by_key(before.deep, now.deep),
        gaps=_difference_by_key(before.gaps, now.gaps),
        aside=_difference_by_key(before.aside, now.aside),
        failures=_difference_by_key(before.failures, now.failures),
        expiries=_added(before.expiries, now.expiries),
        target_losses=_added(before.target_losses, now.target_losses),
    )


def _difference_by_key(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {key: count - before.get(key, 0) for key, count in now.items() if count != before.get(key, 0)}


def _added(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of ``now`` that are new: a report has only the last ones of a copy."""
    return [record for record in now if record not in before]
