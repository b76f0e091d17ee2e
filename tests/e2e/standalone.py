"""A standalone Spark cluster on this machine: a real master, and workers on loopback addresses of their own.

Spark takes each address for a host, so that it spreads executors over them and runs a speculative attempt beside its
original, which it never does on one host.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import pyspark

from mirror.sandbox import process
from mirror.sandbox.java import find_java
from mirror.sandbox.ports import HOST, free_ports
from tests import jvm
from tests.polling import eventually

EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
SPARK_HOME: Final = Path(pyspark.__file__).parent
_SECRET: Final = "standalone-cluster-secret"
SECURED: Final = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": _SECRET,
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""As config/standalone has it, and the secret: settings of master, workers and jobs."""
_OPENED: Final = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch")
"""Packages of java.base that Spark reaches into."""
_UP_WITHIN_S: Final = 60.0
_STOP_WITHIN_S: Final = 10.0
_PORT_ATTEMPTS: Final = 3


@dataclass
class Standalone:
    """A running cluster: ``url`` is what to give as ``--master``, ``ui_port`` where the master tells of itself."""

    folder: Path
    port: int
    ui_port: int
    master: process.Process
    workers: list[process.Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs that are alive."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [each for each in psutil.Process(worker.pid).children() if runs(each, EXECUTOR)]
        return found


def runs(one: psutil.Process, main_class: str) -> bool:
    try:
        return main_class in one.cmdline()
    except psutil.Error:
        return False


@contextlib.contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[Standalone]:
    """A master and ``workers`` workers of ``cores`` cores and 1 GB each, with all their files in ``folder``.

    Stopped by their process ids at the block's end, however that comes; the kernel kills them with this process.
    """
    started = list[process.Process]()
    try:
        master = _start_master(folder, started)
        for number in range(1, workers + 1):
            # Any port will do: only the master uses it.
            host = ["--host", f"127.0.0.{number}", "--port", "0", "--webui-port", "0"]
            size = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            command = daemon(WORKER, *host, *size, master.url)
            master.workers.append(_launch(command, folder / f"worker-{number}.log", started))
        eventually(lambda: _alive(master) == workers, within_s=_UP_WITHIN_S, what=f"{workers} workers in {folder}")
        yield master
    finally:
        process.stop(reversed(started), _STOP_WITHIN_S)


def _start_master(folder: Path, started: list[process.Process]) -> Standalone:
    log = folder / "master.log"
    for _ in range(_PORT_ATTEMPTS):
        port, ui_port = free_ports(2)
        command = daemon(MASTER, "--host", HOST, "--port", str(port), "--webui-port", str(ui_port))
        made = Standalone(folder, port, ui_port, _launch(command, log, started))
        eventually(partial(_begun, made), within_s=_UP_WITHIN_S, what="a master")
        if made.master.alive():
            return made
        # Somebody else may have taken the port in between.
    raise AssertionError(f"the master does not start; its log:\n{log.read_text(encoding='utf-8')}")


def _begun(cluster: Standalone) -> bool:
    return not cluster.master.alive() or _alive(cluster) == 0


def _alive(cluster: Standalone) -> int | None:
    return alive_workers(HOST, cluster.ui_port)


def alive_workers(address: str, ui_port: int) -> int | None:
    """How many workers the master has whose page is at that address; None while it does not answer."""
    connection = http.client.HTTPConnection(address, ui_port, timeout=10)
    try:
        connection.request("GET", "/json/")
        return int(json.loads(connection.getresponse().read())["aliveworkers"])
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def daemon(main_class: str, *arguments: str, spark_home: Path = SPARK_HOME) -> list[str]:
    """Return the command line of a master or worker of the Spark in ``spark_home``."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    # The next port would do for Spark, but not for the processes that were given this one.
    # Its REST server would want a port that is always the same.
    fixed = ["-Dspark.port.maxRetries=0", "-Dspark.master.rest.enabled=false"]
    options = [*jvm.SPARK, "-Xmx256m", *fixed, *(f"-D{name}={value}" for name, value in SECURED.items()), *opened]
    return [str(find_java().path), *options, "-cp", f"{spark_home}/jars/*", main_class, *arguments]


def daemon_environment(spark_home: Path) -> dict[str, str]:
    """Return what sbin/spark-daemon.sh would have set for the Spark in ``spark_home``, which is this one."""
    (core,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
    scala = core.name.partition("_")[2].partition("-")[0]  # as load-spark-env.sh would say
    return {"SPARK_HOME": str(spark_home), "SPARK_SCALA_VERSION": scala}


def _launch(command: Sequence[str], log: Path, started: list[process.Process]) -> process.Process:
    environment = shutil.which("env", path=os.defpath)
    assert environment is not None
    # This process's settings of Spark are meant for drivers.
    cleared = [environment, "-u", "SPARK_LOCAL_IP", "-u", "SPARK_CONF_DIR", "-u", "SPARK_SUBMIT_OPTS"]
    own = [*cleared, *(f"{key}={value}" for key, value in daemon_environment(SPARK_HOME).items())]
    launched = process.launch([*own, *command], output=log, outlives_owner=False)
    started.append(launched)
    return launched
