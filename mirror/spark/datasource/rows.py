"""The rows from ``mirror-ranges`` to ``mirror``: each is a range, and the task and epoch that copy it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from mirror.relay.model.ranges import Range
from mirror.spark.datasource.task_spec import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.spark.datasource.task_spec import CopyTask

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
_NULLABLE: Final = frozenset({"stuck_since_ms", "sick_since_ms", "source_epoch", "first", "progress"})

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


def partitions_of(tasks: Iterable[CopyTask]) -> list[TaskPartition]:
    """Return one partition for each task."""
    return [TaskPartition([(*astuple(task.spec), *astuple(range_)) for range_ in task.ranges]) for task in tasks]


def read(row: Mapping[str, Any]) -> tuple[TaskSpec, Range]:
    """Split a row, given by column names, into the task and the range."""
    return TaskSpec(**{name: row[name] for name in _SPEC_FIELDS}), Range(**{name: row[name] for name in _RANGE_FIELDS})
