"""The files of a checkpoint on the file systems that Spark reaches, such as ``s3a://`` and ``hdfs://``, by its JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]  # ships no types
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from mirror.errors import FlowError, brief
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.session import hadoop_configuration


class HadoopFiles:
    """What :class:`mirror.positions.files.Files` asks for. A path without a scheme is one of this host."""

    def __init__(self) -> None:
        """Start the JVM, with the settings of ``spark-defaults.conf``. Raises FlowError."""
        self._configuration: Final = hadoop_configuration()
        self._jvm: Final[Any] = SparkContext._jvm  # noqa: SLF001 - PySpark has no public way to the JVM

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        path, system = self._at(folder)
        with _clear_errors(folder):
            try:
                return sorted(status.getPath().getName() for status in system.listStatus(path))
            except Py4JJavaError as error:
                if self._is_missing(error):
                    return []
                raise

    def walk(self, folder: str) -> Iterable[str]:
        """Yield the files below a folder."""
        path, system = self._at(folder)
        with _clear_errors(folder):
            above = len(system.makeQualified(path).toUri().getPath().rstrip("/")) + 1
            found = system.listFiles(path, True)
            while found.hasNext():
                yield found.next().getPath().toUri().getPath()[above:]

    def read(self, path: str) -> bytes | None:
        """Return a file's content."""
        at, system = self._at(path)
        with _clear_errors(path):
            try:
                stream = system.open(at)
            except Py4JJavaError as error:
                if self._is_missing(error):
                    return None
                raise
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, path: str, content: bytes) -> None:
        """Write a file."""
        self._write(path, content, replaces=False)

    def replace(self, path: str, content: bytes) -> None:
        """Write a file in place of another one, which an object store does at once, others in two steps."""
        self._write(path, content, replaces=True)

    def copy(self, source: str, target: str) -> None:
        """Copy a file by way of this host."""
        (at, system), (to, other) = self._at(source), self._at(target)
        with _clear_errors(target):
            self._jvm.org.apache.hadoop.fs.FileUtil.copy(system, at, other, to, False, self._configuration)

    def _write(self, path: str, content: bytes, *, replaces: bool) -> None:
        at, system = self._at(path)
        with _clear_errors(path):
            stream = system.create(at, replaces)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()

    def _at(self, path: str) -> tuple[Any, Any]:
        with _clear_errors(path):
            at = self._jvm.org.apache.hadoop.fs.Path(path if "://" in path else Path(path).absolute().as_uri())
            return at, at.getFileSystem(self._configuration)

    def _is_missing(self, error: Py4JJavaError) -> bool:
        return bool(is_instance_of(SparkContext._gateway, error.java_exception, "java.io.FileNotFoundException"))  # noqa: SLF001


@contextlib.contextmanager
def _clear_errors(path: str) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise FlowError(f"{path}: {brief('; '.join(error_lines(error)))}") from error
