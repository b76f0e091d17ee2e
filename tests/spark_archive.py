"""Has a JVM write an archive of the classes that Spark loads (JEP 350), so that the tests' many sessions start quickly.

    python tests/spark_archive.py FILE

With it a session starts in 5 instead of 9 s of CPU. What it was made with (the JVM, Spark's jars) has to be the same:
otherwise a JVM does without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests import jvm


def rehearse() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
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
