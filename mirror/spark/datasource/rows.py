"""The rows that travel from ``mirror-ranges`` to ``mirror``: a range each, and which task of which epoch it is for."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from mirror.relay.model.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.spark.ledger.plan import Plan

_RANGE_FIELDS: Final = [each.name for each in fields(Range)]
_TYPES: Final = {
    "partition": IntegerType(),
    "start": LongType(),
    "end": LongType(),
    "source_end": LongType(),
    "source_epoch": LongType(),
    "first": LongType(),
    "stuck_since_ms": LongType(),
    "sick_since_ms": LongType(),
}
_NULLABLE: Final = frozenset({"stuck_since_ms", "sick_since_ms", "source_epoch", "first"})

Row = tuple[int | str | None, ...]

ROW_SCHEMA: Final = StructType(
    [
        StructField("task", IntegerType(), nullable=False),
        StructField("tasks", IntegerType(), nullable=False),
        StructField("run", StringType(), nullable=False),
        StructField("epoch", LongType(), nullable=False),
        StructField("until_ms", LongType(), nullable=True),
        StructField("renew_ms", LongType(), nullable=False),
        StructField("trace", StringType(), nullable=False),
        *(StructField(name, _TYPES.get(name, StringType()), name in _NULLABLE) for name in _RANGE_FIELDS),
    ]
)
"""A row: what :class:`TaskSpec` says, then the columns of :class:`mirror.relay.model.ranges.Range`."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task is for: number ``task`` of ``tasks`` of ``epoch`` of ``run`` ("": a run that nobody gives orders).

    The epoch ends at ``until_ms`` (ms since 1970; None: with its ranges); progress that is older than ``renew_ms`` is
    committed anew. ``trace`` is the epoch's trace parent (W3C).
    """

    task: int
    tasks: int
    run: str
    epoch: int
    until_ms: int | None
    renew_ms: int
    trace: str = ""


_ERRAND_FIELDS: Final = [each.name for each in fields(TaskSpec)]


@dataclass
class TaskPartition(InputPartition):
    """One task and its rows, as :data:`ROW_SCHEMA` says."""

    rows: list[Row]


class TaskRows:
    """The part of a reader that works in the tasks. It travels alone: to hand out rows needs nothing of planning."""

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The task's rows. Spark hands a partition of its own (value None) where the plan has no task: no rows."""
        return iter(partition.rows if isinstance(partition, TaskPartition) else ())

    def __reduce__(self) -> tuple[type[TaskRows], tuple[()]]:
        """Spark sends a reader to the tasks, and nowhere else."""
        return TaskRows, ()


def partitions_of(
    plan: Plan, *, run: str = "", until_ms: int | None = None, renew_ms: int = 0, trace: str = ""
) -> list[TaskPartition]:
    """One for each task of ``plan``."""
    tasks = len(plan.tasks)
    errands = [TaskSpec(task, tasks, run, plan.epoch, until_ms, renew_ms, trace) for task in range(tasks)]
    return [
        TaskPartition([(*astuple(errand), *astuple(each)) for each in ranges])
        for errand, ranges in zip(errands, plan.tasks, strict=True)
    ]


def read(row: Mapping[str, Any]) -> tuple[TaskSpec, Range]:
    """The two halves of a row, by column names."""
    return TaskSpec(**{name: row[name] for name in _ERRAND_FIELDS}), Range(
        **{name: row[name] for name in _RANGE_FIELDS}
    )
