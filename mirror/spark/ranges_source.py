"""Spark data source ``mirror-ranges``: it plans a flow, and its rows are the ranges to copy.

It copies nothing, so that Spark may read it as often as it likes. Planning happens once, on the driver's host, when
Spark asks for the partitions; one partition is one task with its rows in it.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from mirror.client import Admin
from mirror.runtime.clock import SystemClock
from mirror.spark.history import history_of
from mirror.spark.ledger import Ledger, PlanningError
from mirror.spark.options import SOURCE_FORMAT, FlowOptions
from mirror.spark.plan import Plan, make_plan
from mirror.spark.rows import ROW_SCHEMA, Row, TaskPartition, partitions_of
from mirror.spark.stream_source import RangesStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType


class RangesSource(DataSource):
    """``spark.read.format("mirror-ranges")``, or ``readStream``, with the options of :class:`FlowOptions`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_FORMAT

    def schema(self) -> StructType:
        """See :data:`ROW_SCHEMA`."""
        return ROW_SCHEMA

    def reader(self, schema: StructType) -> RangesReader:  # noqa: ARG002  (the schema is always ours)
        """The batch reader."""
        return RangesReader(FlowOptions.from_spark(self.options))

    def streamReader(self, schema: StructType) -> RangesStreamReader:  # noqa: N802, ARG002  (PySpark's signature)
        """The streaming reader."""
        return RangesStreamReader(FlowOptions.from_spark(self.options))


class RangesReader(DataSourceReader):
    """Plans once, in :meth:`partitions`; what it planned, or why it could not, is in the ledger."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per task, on the driver's host. Raises what planning raised, after noting it in the ledger."""
        ledger = Ledger(self.options.ledger)
        try:
            plan = self._plan()
        except Exception as error:
            ledger.write_error(PlanningError(str(error) or repr(error), traceback.format_exc()))
            raise
        ledger.write_plan(plan)
        return partitions_of(plan, run=self.options.run)

    def _plan(self) -> Plan:
        config, flow = self.options.load()
        with (
            Admin(config.clusters[flow.source].client_options()) as source,
            Admin(config.clusters[flow.target].client_options()) as target,
        ):
            return make_plan(
                flow,
                source,
                target,
                self.options.parallelism,
                wall_ms=SystemClock().wall(),
                history=history_of(flow, self.options.ledger.parent),
            )

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The task's rows. Spark hands a partition of its own (value None) where the plan has no task: no rows."""
        return iter(partition.rows if isinstance(partition, TaskPartition) else ())
