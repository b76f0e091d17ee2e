"""Hosts without a writable /tmp, users without a passwd entry, and a JVM that does not start."""

from __future__ import annotations

import errno
import os
import pwd
import tempfile
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from mirror.causes import OPEN_FILES
from mirror.errors import FlowError
from mirror.spark.driver import session
from mirror.spark.driver.launch import host_user
from mirror.spark.driver.launch.host_user import java_options, temporary_folder
from mirror.spark.driver.launch.submission import SAFE_PATH, Submission

TMP = host_user._JAVA_TEMPORARY
REFUSED = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2.5.2/local
\tat org.apache.ivy.util.Checks.checkAbsolute(Checks.java:48)
\tat org.apache.ivy.plugins.repository.file.FileRepository.setBaseDir(FileRepository.java:137)
2026-11-27T04:41:22.891Z INFO ShutdownHookManager: Shutdown hook called
"""


def test_a_usual_host_needs_no_options() -> None:
    assert java_options({"HOME": "/nowhere"}, named=True, temporary=TMP) == []


def test_java_writes_where_python_does() -> None:
    assert java_options({}, named=True, temporary="/scratch") == ["-Djava.io.tmpdir=/scratch"]


@pytest.mark.parametrize("home", [None, "", "relative", "/nowhere"])
def test_a_user_without_a_name_and_a_home_has_the_temporary_folder(home: str | None, tmp_path: Path) -> None:
    environ = {} if home is None else {"HOME": home}
    assert java_options(environ, named=False, temporary=TMP) == [f"-Duser.home={TMP}"]
    assert java_options({"HOME": str(tmp_path)}, named=False, temporary=TMP) == [f"-Duser.home={tmp_path}"]


def test_a_child_gets_the_options_and_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    base = {"SPARK_SUBMIT_OPTS": "-Duser.home=/mine", "HOME": "/nowhere"}
    made = Submission([], "local", tmp_path).environment(base, {})
    options = made["SPARK_SUBMIT_OPTS"].split()
    assert f'"-Djava.io.tmpdir={tmp_path}"' in options
    assert options.index(f'"-Duser.home={tmp_path}"') < options.index("-Duser.home=/mine"), "the user's own is the last"
    assert made["TMPDIR"] == str(tmp_path)


def test_a_host_without_any_writable_folder_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(FlowError, match="set TMPDIR to one"):
        temporary_folder()


def test_a_jvm_that_does_not_start_is_reported_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def exits() -> None:
        os.write(2, REFUSED.encode())
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setenv(SAFE_PATH, "1")  # start_context sets it: other tests of this process start modules of tests
    monkeypatch.setattr(SparkContext, "_ensure_initialized", exits)
    os.write(2, b"java.lang.Exception: of an earlier run\n")
    with pytest.raises(FlowError) as failed:
        session.start_context()
    assert str(failed.value) == (
        'Spark\'s JVM did not start: Exception in thread "main" java.lang.IllegalArgumentException: basedir must be'
        " absolute: ?/.ivy2.5.2/local"
    )
    assert "basedir" in capfd.readouterr().err


@pytest.mark.parametrize(("most_files", "named"), [(256, True), (1_024, False), (-1, False)])
def test_a_jvm_that_may_open_too_few_files_says_that_a_class_is_missing(most_files: int, *, named: bool) -> None:
    words = 'Exception in thread "main" java.lang.NoClassDefFoundError: org/apache/spark/deploy/SparkSubmitUtils$'
    line = session.start_failure(words, most_files)
    assert line.startswith(f"Spark's JVM did not start: {words}")
    assert line.endswith("; it may open 256 files, and needs up to 1,024: " + OPEN_FILES.words) is named
