"""Errors of the driver's scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from pyspark.errors import PythonException

from mirror.spark.driver.batch_job import Interrupted
from mirror.spark.driver.output.error_report import error_lines, interruptions_kept


@contextlib.contextmanager
def raising_at_its_end() -> Iterator[None]:
    """As PySpark's SCCallSiteSync does when the JVM has gone."""
    try:
        yield
    finally:
        raise ConnectionRefusedError("the JVM has gone")


def test_an_interruption_is_raised_although_another_error_replaces_it() -> None:
    with pytest.raises(Interrupted) as found, interruptions_kept(), raising_at_its_end():
        raise Interrupted(15)
    assert found.value.signum == 15


def test_an_error_that_replaces_an_error_is_raised_as_it_is() -> None:
    with pytest.raises(ConnectionRefusedError), interruptions_kept(), raising_at_its_end():
        raise ValueError("of the job")
    with pytest.raises(Interrupted), interruptions_kept():
        raise Interrupted(2)


TRACEBACK = """Traceback (most recent call last):
  File "worker.py", line 90, in read_command
    command = serializer._read_with_length(file)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ModuleNotFoundError: No module named 'mirror'
"""
ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times"
PYTHON = "org.apache.spark.api.python.PythonException: "


class OfTheJvm(Exception):
    """As a Py4JJavaError, whose text is the Java exception's."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.java_exception = text


@pytest.mark.parametrize(
    "error",
    [
        OfTheJvm(f"{ABORTED}, most recent failure: {PYTHON}{TRACEBACK}\n\tat org.apache.spark"),
        OfTheJvm(f"{PYTHON}[PYTHON_EXCEPTION] An exception was thrown: {TRACEBACK} SQLSTATE: 38000"),
        PythonException(f"An exception was thrown from the Python worker:\n{TRACEBACK}"),
    ],
    ids=["Spark 3.5", "Spark 4.3", "with a session"],
)
def test_an_error_of_a_python_worker_is_that_of_its_python(error: Exception) -> None:
    assert error_lines(error) == ["Spark: a Python worker failed: ModuleNotFoundError: No module named 'mirror'"]


def test_another_error_of_the_jvm_is_its_first_line() -> None:
    text = f"{ABORTED}: Python worker exited unexpectedly\n\nDriver stacktrace:\n\tat org.apache.spark"
    assert error_lines(OfTheJvm(text)) == [f"Spark: {ABORTED}: Python worker exited unexpectedly"]
