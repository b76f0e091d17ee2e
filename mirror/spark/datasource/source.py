"""Spark data source ``mirror-ranges``: plans a flow, and returns the ranges to copy as rows.

It copies nothing, so Spark may read it any number of times. It plans on the driver's host, when Spark requests the
partitions. Each partition is a task, and contains the task's rows. The readers are in modules of their own, so that
Spark's short-lived processes stay small (0.3 instead of 1.2 s of CPU).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from mirror.spark.datasource.options import SOURCE_FORMAT, FlowOptions
from mirror.spark.datasource.rows import ROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mirror.spark.datasource.batch_reader import RangesReader
    from mirror.spark.datasource.stream_reader import RangesStreamReader


class RangesSource(DataSource):
    """``spark.read.format("mirror-ranges")``, or ``readStream``, with the options of :class:`FlowOptions`.

    Spark creates one in several short-lived processes. Only the process that plans imports the planning code.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOURCE_FORMAT

    def schema(self) -> StructType:
        """Return :data:`ROW_SCHEMA`."""
        return ROW_SCHEMA

    def reader(self, schema: StructType) -> RangesReader:  # noqa: ARG002  (the schema is fixed)
        """Return the batch reader."""
        from mirror.spark.datasource.batch_reader import RangesReader

        return RangesReader(FlowOptions.from_spark(self.options))

    def streamReader(self, schema: StructType) -> RangesStreamReader:  # noqa: N802, ARG002  (PySpark's signature)
        """Return the streaming reader."""
        from mirror.spark.datasource.stream_reader import RangesStreamReader

        return RangesStreamReader(FlowOptions.from_spark(self.options))
