"""The Spark session of a job, and the connector for anybody's own."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from mirror.spark.datasource.sink import MirrorSink
from mirror.spark.datasource.source import RangesSource
from mirror.spark.driver.submission import LOOPBACK, is_local

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, four attempts; ``local[N]`` alone never retries a task."""
_FILE_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session() -> SparkSession:
    """The session of this job, with the connector."""
    # SparkConf knows what spark-submit was told only once the gateway to the JVM is there.
    SparkContext._ensure_initialized()  # noqa: SLF001  (PySpark's own SparkSession.builder calls it so)
    told = dict(SparkConf().getAll())
    if python := told.get("spark.pyspark.python"):
        # What spark-submit does, and nobody for a script that starts Spark itself: PySpark looks nowhere else.
        os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.appName("mirror")
    # What spark-submit takes when nobody says otherwise.
    if told.get("spark.master", "local[*]") == "local[*]":
        builder = builder.master(DEFAULT_MASTER)
    if is_local(told.get("spark.master", DEFAULT_MASTER)):
        for name, value in closed_to_others(told).items():
            builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def closed_to_others(given: Mapping[str, str]) -> dict[str, str]:
    """Settings by which a local master can be reached from no other host, and by no other user of this one.

    By default Spark opens its web page, which knows no user and can end jobs, and its RPC ports to the network. The
    settings that a user has ``given`` stand.
    """
    ours = {"spark.ui.enabled": "false", "spark.authenticate": "true"}
    if "spark.driver.host" not in given and "spark.driver.bindAddress" not in given:
        # Both: files are fetched from the advertised address, even within one JVM.
        ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return {name: value for name, value in ours.items() if name not in given}


def register(spark: SparkSession) -> None:
    """Teach ``spark`` the formats ``mirror-ranges`` and ``mirror``."""
    spark.dataSource.register(RangesSource)
    spark.dataSource.register(MirrorSink)


def spare_checkpoints(spark: SparkSession) -> None:
    """Have Spark take no pains with what a stream's checkpoint does not need: between two epochs nothing is copied.

    It is thrown away with its run. By default each file has another one with its checksum, and is given its mode by a
    process of its own (measured, machine loaded: 190 ms between two epochs instead of 45).
    """
    spark.conf.set("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
    with contextlib.suppress(Py4JError):  # another Spark may have it elsewhere
        spark.sparkContext._jvm.java.lang.Class.forName(_FILE_MANAGER)  # type: ignore[union-attr]  # noqa: SLF001
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", _FILE_MANAGER)
