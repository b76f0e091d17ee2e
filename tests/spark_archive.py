"""Has a JVM write an archive of the classes that Spark loads (JEP 350), so that the tests' many sessions start quickly.

    python tests/spark_archive.py FILE

With it a session starts in 5 instead of 9 s of CPU. What it was made with (the JVM, Spark's jars) has to be the same:
otherwise a JVM does without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from tests import jvm

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class Reader(DataSourceReader, DataSourceStreamReader):
    """One row; of a stream, one epoch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"epoch": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"epoch": 1}

    def partitions(self, *_: Any) -> list[InputPartition]:
        return [InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (int(partition.value),)

    def commit(self, *_: Any) -> None:
        """Nothing to do."""


class Writer(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Reads what it is to write."""

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        for batch in iterator:
            batch.to_pylist()
        return WriterCommitMessage()

    def commit(self, *_: Any) -> None:
        """Nothing to do."""

    def abort(self, *_: Any) -> None:
        """Nothing to do."""


class Rehearsal(DataSource):
    """Source and sink, batch and stream, as the mirror's are."""

    @classmethod
    def name(cls) -> str:
        return "rehearsal"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: Any) -> Reader:
        del schema
        return Reader()

    def streamReader(self, schema: Any) -> Reader:  # noqa: N802
        del schema
        return Reader()

    def writer(self, schema: Any, overwrite: bool) -> Writer:
        del schema, overwrite
        return Writer()

    def streamWriter(self, schema: Any, overwrite: bool) -> Writer:  # noqa: N802
        del schema, overwrite
        return Writer()


def rehearse() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.dataSource.register(Rehearsal)
    spark.read.format("rehearsal").load().write.format("rehearsal").mode("append").save()
    with tempfile.TemporaryDirectory() as folder:
        stream = spark.readStream.format("rehearsal").load().writeStream.format("rehearsal")
        query = stream.option("checkpointLocation", folder).start()
        query.processAllAvailable()
        query.stop()
    spark.stop()


def main(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    options = " ".join([*jvm.PLAIN, *jvm.archiving(part)])
    submit = Path(sys.executable).with_name("spark-submit")
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable, "REHEARSE": "1"}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment.pop("SPARK_HOME", None)
    path = f"{Path(__file__).parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    subprocess.run([submit, __file__], env={**environment, "PYTHONPATH": path}, check=True, capture_output=True)
    part.rename(archive)


if __name__ == "__main__":
    if os.environ.get("REHEARSE"):
        rehearse()
    else:
        main(Path(sys.argv[1]))
