"""The tasks of a job, as the driver gives them to the workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.relay.model.ranges import Range
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.spark.ledger.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task of a job."""

    run: str
    """The id of the run, or "" if it has no control record: its tasks end with their ranges."""
    job: int
    """The number of the job in the run."""
    task: int = 0
    """The task's number, from 0."""
    tasks: int = 1
    """The number of tasks in the job."""
    renew_ms: int = 0
    """The age at which progress is committed again; 0: never."""
    generation: int = 0
    """Which of the flow's runs this is."""
    refresh_ms: int = 0
    """How often the rules of the topics are read again; 0: never."""
    period_ms: int = FOREVER_MS
    """How long a period is: what telemetry has as one span of a partition."""
    first_period: int | None = None
    """The first period of the run, in periods since 1970: its number in the ledger is 1. None: it has no periods."""
    trace: str = ""
    """The trace parent (W3C) of the job, or of its first period."""


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A task and what it copies."""

    spec: TaskSpec
    ranges: list[Range]


def tasks_of(plan: Plan, of_job: TaskSpec) -> list[CopyTask]:
    """Return the tasks of ``plan``; ``of_job`` is what they have in common."""
    count = len(plan.tasks)
    return [CopyTask(replace(of_job, task=task, tasks=count), ranges) for task, ranges in enumerate(plan.tasks)]
