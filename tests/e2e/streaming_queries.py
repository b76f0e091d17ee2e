"""Queries of Spark Structured Streaming that read Kafka, as a program: its argument is a :class:`Plan` as JSON.

Each query processes what there is and ends; a failure is what the test asks for, and ends it, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.engines import spark_kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROOT: Final = Path(__file__).parents[2]
_WITHIN_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Which queries run, on which cluster."""

    servers: str
    topics: tuple[str, ...]
    """One source for each."""
    folder: str
    """Where their outputs are."""
    checkpoints: str
    """The folder of their checkpoints, each with the name of the query."""
    queries: tuple[str, ...]
    """"files" writes a file sink, "batches" a file for each batch, "counts" keeps state."""
    fail_in: int = -1
    """The batch that "batches" writes, and in which it fails then."""


def run_queries(plan: Plan) -> None:
    """Run the program to its end."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(asdict(plan))],
        cwd=plan.folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_WITHIN_S,
    )
    assert done.returncode == 0, done.stderr[-5000:]


def _main(plan: Plan) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(map(str, spark_kafka_jars()))).config(
        "spark.sql.shuffle.partitions", "2"
    )
    spark = builder.getOrCreate()
    for name in plan.queries:
        checkpoint = f"{plan.checkpoints}/{name}"
        writer = _WRITERS[name](spark, plan).option("checkpointLocation", checkpoint).trigger(availableNow=True)
        try:
            writer.start().awaitTermination()
        except StreamingQueryException:
            if name != "batches" or plan.fail_in < 0:
                raise
    if "files" in plan.queries:  # Spark leaves out what no batch has committed
        values = sorted(int(row.value) for row in spark.read.text(f"{plan.folder}/files").collect())
        Path(plan.folder, "files.json").write_text(json.dumps(values), encoding="utf-8")
    spark.stop()


def _records(spark: SparkSession, plan: Plan) -> DataFrame:
    def read(topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": plan.servers, "subscribe": topic, "startingOffsets": "earliest"}
        options["kafka.isolation.level"] = "read_committed"
        found = spark.readStream.format("kafka").options(**options).load()
        return found.selectExpr("cast(key as string) key", "cast(value as string) value")

    first, *others = map(read, plan.topics)
    for other in others:
        first = first.union(other)
    return first


def _files(spark: SparkSession, plan: Plan) -> Any:
    return _records(spark, plan).select("value").writeStream.format("text").option("path", f"{plan.folder}/files")


def _batches(spark: SparkSession, plan: Plan) -> Any:
    def write(batch: DataFrame, number: int) -> None:
        values = sorted(int(row.value) for row in batch.collect())
        folder = Path(plan.folder, "batches")
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.json").write_text(json.dumps(values), encoding="utf-8")
        if number == plan.fail_in:
            raise RuntimeError("as the test asks")

    return _records(spark, plan).writeStream.foreachBatch(write)


def _counts(spark: SparkSession, plan: Plan) -> Any:
    def write(batch: DataFrame, _: int) -> None:
        path = Path(plan.folder, "counts.json")
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found = {row["key"]: row["count"] for row in batch.collect()}
        path.write_text(json.dumps(known | found), encoding="utf-8")

    counts = _records(spark, plan).groupBy("key").count()
    return counts.writeStream.outputMode("update").foreachBatch(write)


_WRITERS: Final = {"files": _files, "batches": _batches, "counts": _counts}

if __name__ == "__main__":
    _main(Plan(**json.loads(sys.argv[1])))
