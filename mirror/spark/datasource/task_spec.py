"""The tasks of an epoch, as the driver or Spark's planning process gives them to the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.relay.model.ranges import Range

if TYPE_CHECKING:
    from mirror.spark.ledger.plan import Plan


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task of an epoch."""

    task: int
    """The task's number, from 0."""
    tasks: int
    """The number of tasks in the epoch."""
    run: str
    """The id of the run, or "" if it has no control commands."""
    epoch: int
    until_ms: int | None
    """The end of the epoch in ms since 1970, or None if it ends with its ranges."""
    renew_ms: int
    """The age at which progress is committed again."""
    trace: str = ""
    """The epoch's trace parent (W3C)."""


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A task and what it copies."""

    spec: TaskSpec
    ranges: list[Range]


def tasks_of(
    plan: Plan, *, run: str = "", until_ms: int | None = None, renew_ms: int = 0, trace: str = ""
) -> list[CopyTask]:
    """Return the tasks of ``plan``; for the other arguments see :class:`TaskSpec`."""
    count = len(plan.tasks)
    return [
        CopyTask(TaskSpec(task, count, run, plan.epoch, until_ms, renew_ms, trace), ranges)
        for task, ranges in enumerate(plan.tasks)
    ]
