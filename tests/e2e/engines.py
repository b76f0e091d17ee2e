"""Programs whose positions are moved: HDFS with checkpoints on it, and an application of Kafka Streams."""

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
def _running(name: str, folder: Path, jars: list[Path], arguments: Sequence[str]) -> Iterator[IO[str]]:
    """Run a Java program until its stdin ends; yields its stdout. Its stderr is in ``NAME.log``."""
    classes = jvm.compiled(_HERE / "java" / f"{name}.java", folder, class_path(jars))
    command = [f"{find_java().path}", *jvm.PLAIN, "-cp", class_path([classes, *jars]), name, *arguments]
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
