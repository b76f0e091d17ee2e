"""A standalone Spark cluster whose master, workers and drivers are on hosts that share nothing (tests.e2e.hosts).

A host has an operating system, Python, a JVM and Spark. What else it needs of the mirror is what its documents say
(jobs/README.md, "On a cluster"): a driver's host gets the unpacked environment and the jobs; a worker's host nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tests import jvm
from tests.e2e.hosts import Host, Network, network
from tests.e2e.standalone import (
    EXECUTOR,
    MASTER,
    SECURED,
    SPARK_HOME,
    WORKER,
    alive_workers,
    daemon,
    daemon_environment,
    runs,
)
from tests.polling import eventually

CHECKOUT: Final = Path(__file__).parents[2]
SPARK: Final = Path("/opt/spark")
MIRROR: Final = Path("/opt/mirror")
"""Where a driver's host has what was installed there: `dist` and `jobs`."""
ARCHIVE: Final = "mirror-env.tar.gz"
LOG: Final = "driver.log"
DRIVERS: Final = ("driver1", "driver2")
WORKERS: Final = ("worker1", "worker2", "worker3")
_PORT: Final = 7077
_UI_PORT: Final = 8080
_UP_WITHIN_S: Final = 120.0


@dataclass
class SparkHosts:
    """The cluster, and the network in which its hosts are."""

    network: Network
    master: Host
    files: Mapping[str, str]
    """What each worker's host has of its own, by path."""
    workers: dict[str, Host] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://{self.master.name}:{_PORT}"

    def add_workers(self, *names: str) -> None:
        """Boot hosts, start a worker of one core on each, and wait until the master knows them."""
        for name in names:
            self._add_worker(name)
        eventually(lambda: self.alive() == len(self.workers), within_s=_UP_WITHIN_S, what=f"workers on {names}")

    def _add_worker(self, name: str) -> None:
        host = self.network.add(name, {SPARK_HOME: SPARK})
        for path, text in self.files.items():
            host.write(path, text)
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(host.inner_home / "work")]
        words = daemon(WORKER, "--host", name, "--webui-port", "0", *size, self.url, spark_home=SPARK)
        host.launch(*words, environ=daemon_environment(SPARK))
        self.workers[name] = host

    def alive(self) -> int | None:
        """How many workers the master has; None while it does not answer."""
        return alive_workers(self.master.address, _UI_PORT)

    def lose(self, name: str) -> None:
        """SIGKILL all processes of a worker's host."""
        self.workers.pop(name).kill()

    def add_driver(self, name: str) -> Host:
        """Boot a host from which jobs are submitted: the environment is unpacked in its user's home."""
        dist, jobs = CHECKOUT / "dist", CHECKOUT / "jobs"
        host = self.network.add(name, {SPARK_HOME: SPARK, dist: MIRROR / "dist", jobs: MIRROR / "jobs"})
        script = f"mkdir environment && tar xzf {MIRROR}/dist/{ARCHIVE} -C environment && cp {MIRROR}/dist/{ARCHIVE} ."
        subprocess.run(host.command("/bin/sh", "-c", script), check=True, capture_output=True)
        return host

    def submit(self, host: Host, job: str, *arguments: str, settings: Mapping[str, object]) -> list[str]:
        """Return the command line that submits jobs/``job`` from ``host``, as jobs/README.md has it.

        What it prints on stderr, with Spark's log, is in ``host.home / LOG``: nothing reads a pipe while it runs.
        """
        own = {
            "spark.driver.host": host.name,
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(jvm.PLAIN),
            "spark.driver.extraJavaOptions": " ".join(jvm.PLAIN),
            **SECURED,
            **settings,
        }
        text = (CHECKOUT / "config/standalone/spark-defaults.conf").read_text(encoding="utf-8")
        host.write("spark-defaults.conf", text + "".join(f"{key} {value}\n" for key, value in own.items()))
        logged = ["/bin/sh", "-c", f'exec "$@" 2> {LOG}', "sh"]
        submit = [
            *logged,
            str(SPARK / "bin/spark-submit"),
            "--properties-file",
            "spark-defaults.conf",
            "--master",
            self.url,
        ]
        job_words = [f"{MIRROR}/jobs/{job}.py", "--config", "mirror.toml", *arguments]
        return host.command(*submit, *job_words, environ={"SPARK_HOME": str(SPARK)})

    def executors(self) -> dict[str, list[psutil.Process]]:
        """The executors' JVMs by worker."""
        found = {name: [one for one in host.processes() if runs(one, EXECUTOR)] for name, host in self.workers.items()}
        return {name: each for name, each in found.items() if each}


def pack() -> None:
    """Make what `make dist` makes; again only where the lock or the sources have changed."""
    # What it needs of the installation is here: these tests run in it.
    installed = f"--old-file={Path(sys.prefix) / '.installed'}"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    subprocess.run(["make", "--silent", installed, f"VENV={sys.prefix}", "dist"], cwd=CHECKOUT, env=environ, check=True)


@contextlib.contextmanager
def spark_hosts(folder: Path, files: Mapping[str, str], workers: int = 2) -> Iterator[SparkHosts]:
    """A master and ``workers`` workers of one core and 1 GB each, on a host each; each worker's has ``files``."""
    with network(folder, ["master", *WORKERS, *DRIVERS]) as net:
        master = net.add("master", {SPARK_HOME: SPARK})
        words = daemon(
            MASTER, "--host", "master", "--port", str(_PORT), "--webui-port", str(_UI_PORT), spark_home=SPARK
        )
        master.launch(*words, environ=daemon_environment(SPARK))
        made = SparkHosts(net, master, files)
        eventually(lambda: made.alive() == 0, within_s=_UP_WITHIN_S, what="a master")
        made.add_workers(*WORKERS[:workers])
        yield made
