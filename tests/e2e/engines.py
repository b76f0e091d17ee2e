"""Programs whose positions are moved: HDFS with checkpoints on it, programs of Kafka Streams, Flink and Iceberg."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from mirror.sandbox.fetch import KAFKA_VERSION, class_path, fetch, pinned_jars
from mirror.sandbox.folders import cache_folder
from mirror.sandbox.java import find_java
from tests import jvm

_HERE: Final = Path(__file__).parent
_HADOOP: Final = "3.5.0"
"""That of PySpark's jars."""
_SPARK_KAFKA: Final = "4.2.0"
"""The newest that Maven Central has for Scala 2.13; it works with the suite's Spark."""
_FLINK: Final = "1.20.1"
_ICEBERG: Final = "1.9.2"
_START: Final = "return OffsetsInitializer.earliest();"
"""Of FlinkCounts.java: where the job starts."""
_OPENED: Final = ("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED")
"""What Flink needs on Java 17."""
_STOP_WITHIN_S: Final = 60.0


def _jars(name: str, version: str) -> list[Path]:
    """Those of a file ``NAME.xml``, which are downloaded the first time."""
    home = cache_folder() / f"{name.replace('_', '-')}-{version}"
    return fetch(home, ivy=_HERE / f"{name}.xml", pinned=pinned_jars(_HERE / f"{name}.sha256"), what=name)


def spark_kafka_jars() -> list[Path]:
    """Spark's Kafka source."""
    return _jars("spark_kafka", _SPARK_KAFKA)


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Run HDFS during the block; yields its address, ``hdfs://HOST:PORT``."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    of_spark = sorted(Path(spec.submodule_search_locations[0], "jars").glob("*.jar"))
    jars = [*_jars("hdfs", _HADOOP), *of_spark]
    with _running("Hdfs", folder, jars, [str(folder / "hdfs")]) as out:
        address = out.readline().strip()
        assert address.startswith("hdfs://"), (folder / "Hdfs.log").read_text(encoding="utf-8")
        yield address


@contextlib.contextmanager
def word_counts(folder: Path, *arguments: str) -> Iterator[None]:
    """Run the application during the block; it ends in order."""
    with _running("WordCounts", folder, [*_jars("kafka_streams", KAFKA_VERSION), *fetch()], arguments):
        yield


@contextlib.contextmanager
def flink_counts(folder: Path, *arguments: str, start: str = _START) -> Iterator[None]:
    """Run the job during the block; it stops with a savepoint, whose path is in the file ``savepoint``.

    ``start`` is the Java that returns where it starts.
    """
    program = (_HERE / "java" / "FlinkCounts.java").read_text(encoding="utf-8")
    assert _START in program
    source = folder / "FlinkCounts.java"
    source.write_text(program.replace(_START, start), encoding="utf-8")
    with _running("FlinkCounts", folder, _jars("flink", _FLINK), arguments, source, _OPENED):
        yield


def flink_offsets(savepoint: str, uid: str) -> str:
    """Run jobs/FlinkOffsets.java; return what it prints."""
    program = _HERE.parents[1] / "jobs" / "FlinkOffsets.java"
    return _printed(*_OPENED, "-cp", class_path(_jars("flink", _FLINK)), program, savepoint, uid)


def iceberg_sink_home() -> Path:
    """The ``plugin.path`` of a worker of Kafka Connect that has the Iceberg sink."""
    return _jars("iceberg_sink", _ICEBERG)[0].parents[1]


def iceberg_table(folder: Path, *arguments: str) -> str:
    """Run IcebergTable.java, which has Iceberg's library read or change a table; return what it prints."""
    jars = _jars("iceberg_sink", _ICEBERG)
    classes = jvm.compiled(_HERE / "java" / "IcebergTable.java", folder, class_path(jars))
    return _printed("-cp", class_path([classes, *jars]), "IcebergTable", *arguments)


def _printed(*options: str | Path) -> str:
    """Run Java to its end; return its stdout."""
    command = [find_java().path, *jvm.PLAIN, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_STOP_WITHIN_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def _running(
    name: str,
    folder: Path,
    jars: list[Path],
    arguments: Sequence[str],
    source: Path | None = None,
    options: Sequence[str] = (),
) -> Iterator[IO[str]]:
    """Run a Java program until its stdin ends; yields its stdout. Its stderr is in ``NAME.log``."""
    classes = jvm.compiled(source or _HERE / "java" / f"{name}.java", folder, class_path(jars))
    command = [f"{find_java().path}", *jvm.PLAIN, *options, "-cp", class_path([classes, *jars]), name, *arguments]
    with (folder / f"{name}.log").open("a", encoding="utf-8") as log:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert child.stdout is not None
        yield child.stdout
        child.communicate(timeout=_STOP_WITHIN_S)
        assert child.returncode == 0, (folder / f"{name}.log").read_text(encoding="utf-8")
    finally:
        with child:
            child.kill()
