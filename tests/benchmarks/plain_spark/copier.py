"""Copies a topic as Spark alone does; its argument is a :class:`.command.PlainSpark` as JSON.

A program for this task would be no longer. Keys, values, headers and partitions are kept; the sink has no column for
timestamps (KafkaRowWriter), and writes at least once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def main(asked: Mapping[str, Any]) -> None:
    """Run the query until it ends, or until the process is stopped."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("plain-spark")
    for key, value in asked["session"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    records = spark.readStream.format("kafka").options(**asked["reading"]).load()
    copied = records.select("key", "value", "headers", "partition")
    writer = copied.writeStream.format("kafka").options(**asked["writing"])
    trigger = asked["trigger"]
    if "realTime" in trigger:
        writer = writer.outputMode("update")  # real-time mode has no other
    writer.trigger(**trigger).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
