"""The rows from ``mirror-ranges`` to ``mirror``: each is a range, and the task and epoch that copy it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from mirror.relay.model.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.spark.ledger.plan import Plan

_RANGE_FIELDS: Final = [field.name for field in fields(Range)]
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
"""The columns of :class:`TaskSpec`, then those of :class:`mirror.relay.model.ranges.Range`."""


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


_SPEC_FIELDS: Final = [field.name for field in fields(TaskSpec)]


@dataclass
class TaskPartition(InputPartition):
    """One task and its rows, with the columns of :data:`ROW_SCHEMA`."""

    rows: list[Row]


class TaskRows:
    """The part of a reader that runs in the tasks. Only this part is sent to them: it needs no planning code."""

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Return the task's rows; none for the partition (value None) that Spark adds if a plan has no task."""
        return iter(partition.rows if isinstance(partition, TaskPartition) else ())

    def __reduce__(self) -> tuple[type[TaskRows], tuple[()]]:
        """Pickle this part alone: Spark sends a reader only to the tasks."""
        return TaskRows, ()


def partitions_of(
    plan: Plan, *, run: str = "", until_ms: int | None = None, renew_ms: int = 0, trace: str = ""
) -> list[TaskPartition]:
    """Return one partition for each task of ``plan``."""
    tasks = len(plan.tasks)
    specs = [TaskSpec(task, tasks, run, plan.epoch, until_ms, renew_ms, trace) for task in range(tasks)]
    return [
        TaskPartition([(*astuple(spec), *astuple(range_)) for range_ in ranges])
        for spec, ranges in zip(specs, plan.tasks, strict=True)
    ]


def read(row: Mapping[str, Any]) -> tuple[TaskSpec, Range]:
    """Split a row, given by column names, into the task and the range."""
    return TaskSpec(**{name: row[name] for name in _SPEC_FIELDS}), Range(**{name: row[name] for name in _RANGE_FIELDS})
