"""Spark data source ``mirror-ranges``: it plans a flow, and its rows are the ranges to copy.

It copies nothing, so that Spark may read it as often as it likes. Planning happens once, on the driver's host, when
Spark asks for the partitions; one partition is one task with its rows in it.
"""

from __future__ import annotations

import traceback
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from mirror.client import Admin
from mirror.relay.ranges import Range
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger import Ledger, PlanningError
from mirror.spark.options import SOURCE_FORMAT, FlowOptions
from mirror.spark.plan import Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TYPES: Final = {
    "partition": IntegerType(),
    "start": LongType(),
    "end": LongType(),
    "stuck_since_ms": LongType(),
}
_NULLABLE: Final = frozenset({"stuck_since_ms"})

ROW_SCHEMA: Final = StructType(
    [
        StructField("task", IntegerType(), nullable=False),
        StructField("tasks", IntegerType(), nullable=False),
        *(
            StructField(each.name, _TYPES.get(each.name, StringType()), each.name in _NULLABLE)
            for each in fields(Range)
        ),
    ]
)
"""A row: the task's number and how many tasks there are, then the columns of :class:`mirror.relay.ranges.Range`."""


@dataclass
class TaskPartition(InputPartition):
    """One task and its rows, as :data:`ROW_SCHEMA` says."""

    rows: list[tuple[int | str | None, ...]]


class RangesSource(DataSource):
    """``spark.read.format("mirror-ranges")`` with the options of :class:`FlowOptions` and ``parallelism``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_FORMAT

    def schema(self) -> StructType:
        """See :data:`ROW_SCHEMA`."""
        return ROW_SCHEMA

    def reader(self, schema: StructType) -> RangesReader:  # noqa: ARG002  (the schema is always ours)
        """The batch reader."""
        return RangesReader(FlowOptions.from_spark(self.options), int(self.options["parallelism"]))


class RangesReader(DataSourceReader):
    """Plans once, in :meth:`partitions`; what it planned, or why it could not, is in the ledger."""

    def __init__(self, options: FlowOptions, parallelism: int) -> None:
        self.options: Final = options
        self.parallelism: Final = parallelism

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per task, on the driver's host. Raises what planning raised, after noting it in the ledger."""
        ledger = Ledger(self.options.ledger)
        try:
            plan = self._plan()
        except Exception as error:
            ledger.write_error(PlanningError(str(error) or repr(error), traceback.format_exc()))
            raise
        ledger.write_plan(plan)
        tasks = len(plan.tasks)
        return [
            TaskPartition([(task, tasks, *astuple(each)) for each in ranges]) for task, ranges in enumerate(plan.tasks)
        ]

    def _plan(self) -> Plan:
        config, flow = self.options.load()
        with (
            Admin(config.clusters[flow.source].client_options()) as source,
            Admin(config.clusters[flow.target].client_options()) as target,
        ):
            return make_plan(flow, source, target, self.parallelism, wall_ms=SystemClock().wall())

    def read(self, partition: InputPartition) -> Iterator[tuple[int | str | None, ...]]:
        """The task's rows. Spark hands a partition of its own (value None) where the plan has no task: no rows."""
        return iter(partition.rows if isinstance(partition, TaskPartition) else ())
