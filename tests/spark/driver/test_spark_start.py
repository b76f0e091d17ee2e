"""Spark beside the driver's own work. A child that waits for the end of its input stands for the JVM."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from mirror.errors import FlowError
from mirror.spark.driver import spark_start
from mirror.spark.driver.batch_job import Interrupted, _interrupt
from mirror.spark.driver.spark_start import SparkStart

OBEDIENT = "import sys; sys.stdin.read()"
DEAF = "import signal; signal.pause()"
IGNORANT = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


class Context:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def context() -> Context:
    return Context()


def starting(start: Callable[[], object]) -> SparkStart:
    return SparkStart(cast("Callable[[], SparkContext]", start))


@contextlib.contextmanager
def jvm(monkeypatch: pytest.MonkeyPatch, program: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=child))
        try:
            yield child
        finally:
            child.kill()


def test_a_block_that_ends_stops_spark_and_waits_for_its_jvm(monkeypatch: pytest.MonkeyPatch, context: Context) -> None:
    """A JVM that is killed meanwhile would leave its folders, and half of an archive of its classes."""
    with jvm(monkeypatch, OBEDIENT) as child:
        with starting(lambda: context) as spark:
            found: Any = spark.context()
            assert found is context
            assert not context.stopped
        assert context.stopped
        assert child.returncode == 0


def test_a_block_that_raises_ends_the_jvm_and_waits_for_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    try:
        with jvm(monkeypatch, DEAF) as child:
            with pytest.raises(FlowError, match="refused"), starting(never.wait):
                raise FlowError("refused")
            assert child.returncode == -15
    finally:
        never.set()


def test_a_context_that_could_not_be_started_raises_its_error_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise FlowError("Spark could not be started: no master")

    monkeypatch.setattr(SparkContext, "_gateway", None)
    with starting(fail) as spark, pytest.raises(FlowError, match="no master"):
        spark.context()


def test_a_jvm_that_does_not_exit_is_an_error(monkeypatch: pytest.MonkeyPatch, context: Context) -> None:
    monkeypatch.setattr(spark_start, "_EXIT_WITHIN_S", 0.1)
    with jvm(monkeypatch, DEAF), pytest.raises(FlowError, match="did not exit within 0 s"), starting(lambda: context):
        pass
    assert context.stopped


def test_a_script_of_spark_submit_leaves_the_jvm_alone(monkeypatch: pytest.MonkeyPatch, context: Context) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=None))
    with starting(lambda: context):
        pass
    assert context.stopped


def test_a_jvm_that_ignores_the_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_start, "_TERMINATED_WITHIN_S", 0.1)
    with jvm(monkeypatch, IGNORANT) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        spark_start.terminate_jvm()
        assert child.returncode == -9


def test_a_signal_ends_the_tasks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM ignores SIGINT; what the tasks copied after the summary would not be in it."""
    handlers = list[int]()
    monkeypatch.setattr("mirror.spark.driver.batch_job.signal.signal", lambda signum, _: handlers.append(signum))
    with jvm(monkeypatch, DEAF) as child:
        with pytest.raises(Interrupted):
            _interrupt(2, None)
        assert child.returncode == -15
    assert handlers
