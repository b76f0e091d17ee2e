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
class JobTerms:
    """What the tasks of a job have in common that live until they are to stop, or their ranges are copied."""

    generation: int
    """Which of the flow's runs this is."""
    refresh_ms: int
    """How often the rules of the topics are read again."""
    period_ms: int
    """How long a period is: what telemetry has as one span of a partition."""
    first_period: int | None
    """The first period of the run, in periods since 1970: its number in the ledger is 1. None: it has no periods."""


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A task and what it copies."""

    spec: TaskSpec
    ranges: list[Range]
    terms: JobTerms | None = None
    """None: the task ends with its ranges, or at a time."""


def tasks_of(
    plan: Plan,
    *,
    run: str = "",
    until_ms: int | None = None,
    renew_ms: int = 0,
    trace: str = "",
    terms: JobTerms | None = None,
) -> list[CopyTask]:
    """Return the tasks of ``plan``; for the other arguments see :class:`TaskSpec` and :class:`CopyTask`."""
    count = len(plan.tasks)
    return [
        CopyTask(TaskSpec(task, count, run, plan.epoch, until_ms, renew_ms, trace), ranges, terms)
        for task, ranges in enumerate(plan.tasks)
    ]
