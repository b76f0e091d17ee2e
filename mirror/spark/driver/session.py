"""The Spark context of a job."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError

from mirror.causes import LEAST_FILES, OPEN_FILES
from mirror.errors import FlowError, brief
from mirror.spark.driver.launch.host_user import USER_NAME, has_name
from mirror.spark.driver.launch.spark_versions import check_java
from mirror.spark.driver.launch.submission import DEFAULT_MASTER, LOOPBACK, SAFE_PATH, is_local
from mirror.spark.driver.output.error_report import error_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DAEMON_SETTING: Final = "spark.python.daemon.module"
DAEMON_MODULE: Final = "mirror.spark.worker_daemon"
SAFE_PATH_SETTING: Final = f"spark.executorEnv.{SAFE_PATH}"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_LONG_NAME: Final = f".{'probe':_<45}"
"""Longer than the names of Spark, which have 42 bytes: the path of a socket has at most 107."""
_SOCKET_PREFIX: Final = "mirror-spark-"
_PY_FILES: Final = ("spark.submit.pyFiles", "spark.yarn.dist.pyFiles")
_EXECUTORS_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
_SPECULATION: Final = "spark.speculation"
_MAX_FAILURES: Final = "spark.task.maxFailures"
TASK_FAILURES: Final = 100
"""How often each task of a stream may be lost before its job is."""
RESERVED_SLOTS: Final = 32
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:\s*,\s*(\d+))?\])?")


def start_context() -> SparkContext:
    """Return the context of a run, without a session: its SQL classes take a second to load.

    Raises FlowError if Spark cannot be started (no master, a wrong setting).
    """
    with _clear_errors():
        return SparkContext.getOrCreate(_conf())


def start_stream_context() -> SparkContext:
    """Return the context of a stream, whose jobs live until they are to stop. Raises FlowError as the above."""
    with _clear_errors():
        conf = _conf()
        given = dict(conf.getAll())
        # Of a container Spark counts the processors that it is allowed to use, and not those of the host.
        cores = int(SparkContext._jvm.java.lang.Runtime.getRuntime().availableProcessors())  # type: ignore[union-attr]  # noqa: SLF001
        return SparkContext.getOrCreate(conf.setAll(list(stream_settings(given, cores).items())))


def hadoop_configuration() -> Any:
    """Return Hadoop's ``Configuration`` as a job has it, by which file systems are reached; no context is started.

    Raises FlowError as the above.
    """
    with _clear_errors():
        conf = _conf()
        util = SparkContext._jvm.org.apache.spark.deploy.SparkHadoopUtil  # type: ignore[union-attr]  # noqa: SLF001
        return util.get().newConfiguration(conf._jconf)  # noqa: SLF001 - Java's


def stream_settings(given: Mapping[str, str], cores: int) -> dict[str, str]:
    """Return the settings of a stream that the ``given`` ones lack.

    Flows share the slots fairly. A task may be lost many times: each of its attempts fences the one before, and a job
    lives for months. A local master has slots in reserve, for flows that are added: a task of a stream never frees
    its own. ``cores`` are those that Spark may use here.
    """
    settings = {
        name: value
        for name, value in {"spark.scheduler.mode": "FAIR", _MAX_FAILURES: str(TASK_FAILURES)}.items()
        if name not in given
    }
    if found := _LOCAL.fullmatch(given.get("spark.master", "")):
        slots = cores if found[1] == "*" else int(found[1] or 1)
        failures = max(int(found[2] or 1), TASK_FAILURES)
        settings["spark.master"] = f"local[{slots + RESERVED_SLOTS},{failures}]"
        settings.setdefault("spark.default.parallelism", given.get("spark.default.parallelism", str(slots)))
    return settings


def reserves_slots(context: SparkContext) -> bool:
    """Whether Spark has slots for flows that are added, beside those of :func:`slots_of`."""
    return str(context.master).startswith("local")


def slots_of(context: SparkContext) -> int:
    """Return the number of task slots. Before a cluster's executors have registered, Spark reports two."""
    if not str(context.master).startswith("local"):
        tracker = context._jsc.sc().statusTracker()  # noqa: SLF001  (PySpark's own tracker has no executors)
        until = time.monotonic() + _EXECUTORS_TIMEOUT_S
        while len(tracker.getExecutorInfos()) < 2 and time.monotonic() < until:  # noqa: PLR2004 - the driver is one
            time.sleep(_POLL_S)
    return int(context.defaultParallelism)


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    logged = _log_size()
    try:
        yield
    except Py4JJavaError as error:
        raise FlowError(f"Spark could not be started: {'; '.join(error_lines(error))}") from error
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):  # the method that returns the condition has another name before 4.0
            raise
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise FlowError(start_failure(jvm_words(logged), most_files)) from error


def start_failure(words: str, most_files: int) -> str:
    """Return the line about a JVM that ended with these ``words``, and could open ``most_files`` (-1: any number)."""
    line = f"Spark's JVM did not start{f': {words}' if words else ', its stderr says why'}"
    if not 0 <= most_files < LEAST_FILES:
        return line
    return f"{line}; it may open {most_files:,} files, and needs up to {LEAST_FILES:,}: {OPEN_FILES.words}"


def _log_size() -> int:
    """Return the size of the file that this process's stderr, and that of the JVM, goes to; 0 if it is no file."""
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


def jvm_words(since: int, log: Path = Path("/proc/self/fd/2")) -> str:
    """Return the line in which the JVM says why it ended, from the bytes of its ``log`` behind ``since``."""
    try:
        if not log.is_file():
            return ""
        text = log.read_bytes()[since:].decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return brief(next((line for line in lines if "Exception" in line or "Error" in line), lines[-1] if lines else ""))


def _conf() -> SparkConf:
    """Return the settings of spark-submit, with those that this job adds."""
    os.environ.setdefault(SAFE_PATH, "1")
    # SparkConf has the settings of spark-submit only once the gateway to the JVM exists.
    SparkContext._ensure_initialized()  # noqa: SLF001  (PySpark's own SparkSession.builder calls it so)
    of_jvm = SparkContext._jvm.java.lang.System.getProperty  # type: ignore[union-attr]  # noqa: SLF001
    release = of_jvm("java.specification.version").removeprefix("1.")  # 1.8, 11, 17
    check_java(pyspark.__version__, int(release), of_jvm("java.home"))
    if not has_name():
        # Otherwise Hadoop's login fails: it takes the name from the passwd entry.
        users = SparkContext._jvm.org.apache.hadoop.security.UserGroupInformation  # type: ignore[union-attr]  # noqa: SLF001
        users.setLoginUser(users.createRemoteUser(USER_NAME))
    conf = SparkConf()
    settings = dict(conf.getAll())
    refuse_speculation(settings)
    if python := settings.get("spark.pyspark.python"):
        # spark-submit does this. For a script that starts Spark itself, PySpark only reads this variable.
        os.environ["PYSPARK_PYTHON"] = python
    conf.setAppName("mirror").setAll(list(worker_settings(settings).items()))
    # spark-submit's own default is replaced, because it never retries a task.
    if settings.get("spark.master", "local[*]") == "local[*]":
        conf.setMaster(DEFAULT_MASTER)
    if is_local(settings.get("spark.master", DEFAULT_MASTER)):
        conf.setAll(list(local_only_settings(settings).items()))
        conf.setAll(list(socket_settings(settings).items()))
    return conf


def socket_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings with which Spark talks to its Python workers on Unix sockets, which Spark 4.1 and later have.

    Every user of the host can connect to the TCP ports that they replace. Spark does not ask who connects to a socket:
    they are in a folder that only this user may enter, which is removed at the end. For a local master only: on a
    cluster the path of a temporary folder may be too long for a socket. Settings that the user has ``given`` are kept.
    There are none, so that Spark uses TCP, if neither the temporary folder nor ``/tmp`` can hold sockets: it may not be
    writable, have too long a path, or be on a file system without them.
    """
    if given.keys() & {UNIX_SOCKETS, SOCKET_FOLDER}:
        return {}
    for parent in (None, "/tmp"):  # noqa: S108 - the folder within is private (mkdtemp)
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=parent)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            if _has_sockets(Path(folder)):
                return {UNIX_SOCKETS: "true", SOCKET_FOLDER: folder}
            Path(folder).rmdir()
    return {}


def _has_sockets(folder: Path) -> bool:
    """Return whether a socket can be made in the folder, under a name as long as those of Spark."""
    probe = folder / _LONG_NAME
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(probe))
        probe.unlink()
    except OSError:
        return False
    return True


def worker_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which Python workers are forked from a process that has imported this package.

    Spark starts that process with ``python -m``, which would search the current folder first: a file ``mirror.py``
    there, or another checkout, would be imported instead. Transforms search it last (``load_transform``).

    Spark starts the process without the files of ``--py-files``: a job whose package is among them keeps Spark's own.
    Settings that the user has ``given`` are kept.
    """
    brought = any(given.get(name) for name in _PY_FILES)
    defaults = {SAFE_PATH_SETTING: "1"} | ({} if brought else {DAEMON_SETTING: DAEMON_MODULE})
    return {name: value for name, value in defaults.items() if name not in given}


def local_only_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings with which no other host and no other user of this host can connect to a local master.

    By default Spark opens its web page, which has no login and can end jobs, and its RPC ports to the network. Settings
    that the user has ``given`` are kept.
    """
    defaults = {"spark.ui.enabled": "false", "spark.authenticate": "true"}
    if "spark.driver.host" not in given and "spark.driver.bindAddress" not in given:
        # Both, because files are fetched from the advertised address, even within one JVM.
        defaults |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return {name: value for name, value in defaults.items() if name not in given}


# Invariant: Tasks are never run twice at once on purpose: both attempts would fence each other.
# Test: tests/spark/driver/test_session.py::test_a_job_refuses_tasks_that_begin_a_second_time_while_the_first_one_runs
def refuse_speculation(settings: Mapping[str, str]) -> None:
    """Raise FlowError if Spark would begin tasks a second time."""
    if settings.get(_SPECULATION, "false").lower() == "true":
        raise FlowError(
            f"{_SPECULATION}=true begins tasks a second time that seem slow: both would copy the same partitions, and"
            " fence each other; remove the setting"
        )
