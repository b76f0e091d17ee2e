"""The Spark session of a job, and the connector for anybody's own."""

from __future__ import annotations

import os
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from mirror.spark.ranges_source import RangesSource
from mirror.spark.sink import MirrorSink

DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, four attempts; ``local[N]`` alone never retries a task."""


def session() -> SparkSession:
    """The session of this job, with the connector."""
    # SparkConf knows what spark-submit was told only once the gateway to the JVM is there.
    SparkContext._ensure_initialized()  # noqa: SLF001  (PySpark's own SparkSession.builder calls it so)
    if python := SparkConf().get("spark.pyspark.python"):
        # What spark-submit does, and nobody for a script that starts Spark itself: PySpark looks nowhere else.
        os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.appName("mirror")
    # What spark-submit takes when nobody says otherwise.
    if SparkConf().get("spark.master", "local[*]") == "local[*]":
        builder = builder.master(DEFAULT_MASTER)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Teach ``spark`` the formats ``mirror-ranges`` and ``mirror``."""
    spark.dataSource.register(RangesSource)
    spark.dataSource.register(MirrorSink)
