"""Spark data source ``mirror-ranges``: it plans a flow, and its rows are the ranges to copy.

It copies nothing, so that Spark may read it as often as it likes. Planning happens on the driver's host, when Spark
asks for the partitions; one partition is one task with its rows in it.
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

    Spark makes one in several short-lived processes, of which only one plans: only that one loads what planning needs.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_FORMAT

    def schema(self) -> StructType:
        """See :data:`ROW_SCHEMA`."""
        return ROW_SCHEMA

    def reader(self, schema: StructType) -> RangesReader:  # noqa: ARG002  (the schema is always ours)
        """The batch reader."""
        from mirror.spark.datasource.batch_reader import RangesReader

        return RangesReader(FlowOptions.from_spark(self.options))

    def streamReader(self, schema: StructType) -> RangesStreamReader:  # noqa: N802, ARG002  (PySpark's signature)
        """The streaming reader."""
        from mirror.spark.datasource.stream_reader import RangesStreamReader

        return RangesStreamReader(FlowOptions.from_spark(self.options))
