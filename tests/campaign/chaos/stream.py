"""The stream of a round: `mirror stream` on a standalone Spark cluster, its processes, and their clocks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from mirror.sandbox.java import find_java
from mirror.sandbox.ports import HOST
from mirror.sandbox.process import _GUARD
from tests import jvm
from tests.campaign.chaos.wall_clock import WallClock
from tests.e2e.site import MARK, Site, command_of, is_forked
from tests.e2e.standalone import SECURED, Standalone
from tests.polling import eventually

CHECKOUT: Final = Path(__file__).parents[3]
CORES: Final = 2
"""The cores of each executor."""
EXECUTORS: Final = 2
SHUTDOWN_S: Final = 40
"""A quarter of it is what an epoch's end waits for copies that still open, which takes seconds on a busy machine."""
STOPS_WITHIN_S: Final = SHUTDOWN_S + 30.0
"""``shutdown-timeout-ms``, and the time that Spark needs to end."""
GONE_WITHIN_S: Final = 30.0
_SCRIPT: Final = "jobs/stream.py"
_WORKER: Final = "pyspark.worker"
_OFTEN: Final = f"""period-ms = 10000
refresh-ms = 3000
commit-interval-ms = 1000
commit-min-interval-ms = 500
shutdown-timeout-ms = {SHUTDOWN_S * 1000}"""
_TIMEOUTS: Final = {"request.timeout.ms": 8_000, "default.api.timeout.ms": 30_000}


class Stream:
    """A stream of two flows, which differ in ``on-gap``. The campaign starts it, and kills it at times."""

    def __init__(self, folder: Path, executors: Standalone, faketime: Path | None, marker: str, by: str) -> None:
        """``by``: how the first flow copies exactly once; the other one, which skips gaps, does so in transactions."""
        folder.mkdir(parents=True)
        self.clocks: Final = (
            ()
            if faketime is None
            else (WallClock(folder / "driver-clock", faketime), WallClock(folder / "workers-clock", faketime))
        )
        """The clock of the driver, and that of planners and workers; none where no clock can be stepped."""
        self.site: Final = Site(folder)
        self.executors: Final = executors
        self._fail: Final = f"fail-{marker}"
        self._skip: Final = f"skip-{marker}"
        self._by: Final = by
        self.output: Final = folder / "output.txt"
        self._java_home: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._seen: Final = set[psutil.Process]()
        """Every process of the stream that was ever seen."""

    @property
    def flows(self) -> tuple[str, str]:
        """The flow with ``on-gap = "fail"``, and the one with ``on-gap = "skip"``."""
        return self._fail, self._skip

    def configure(
        self, source: Mapping[str, object], target: Mapping[str, object], fail: Sequence[str], skip: Sequence[str]
    ) -> None:
        """Write the configuration: the keys of both clusters, and the topics of both flows."""
        flows = {}
        for name, topics, on_gap, by in ((self._fail, fail, "fail", self._by), (self._skip, skip, "skip", "auto")):
            own = f'[flows.{name}.producer]\n"delivery.timeout.ms" = 20000\n'
            ends = f'source = "a"\ntarget = "b"\ntopics = {json.dumps(list(topics))}'
            flows[name] = f'{ends}\non-gap = "{on_gap}"\nexactly-once-by = "{by}"\n{_OFTEN}\n{own}'
        keys = {"a": {**source, **_TIMEOUTS}, "b": {**target, **_TIMEOUTS}}
        self.site.write({name: str(cluster["bootstrap.servers"]) for name, cluster in keys.items()}, flows, **keys)
        conf = self.site.folder / "conf"
        conf.mkdir()
        self._java_home = self.clocks[0].java_home(find_java().path) if self.clocks else None
        settings = "".join(f"{key} {value}\n" for key, value in self._settings().items())
        (conf / "spark-defaults.conf").write_text(settings, encoding="utf-8")

    def _settings(self) -> dict[str, object]:
        python = self.clocks[1].python() if self.clocks else sys.executable
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.cores": CORES,
            "spark.cores.max": EXECUTORS * CORES,
            "spark.default.parallelism": EXECUTORS * CORES,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(jvm.SPARK),
            "spark.executorEnv.PYTHONPATH": CHECKOUT,
            "spark.pyspark.python": python,
            "spark.ui.enabled": "false",
            **SECURED,
        }

    # --- start and end

    def start(self) -> None:
        """Start it, as a scheduler does at the beginning and after a kill."""
        # The kernel kills it with the campaign.
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid())]
        base = [*guard, sys.executable, "-m", "mirror.cli", "stream", "--config", str(self.site.config)]
        environ = {**os.environ, MARK: str(self.site.folder), "PYTHONPATH": str(CHECKOUT)}
        environ |= {"SPARK_CONF_DIR": str(self.site.folder / "conf"), "SPARK_SUBMIT_OPTS": " ".join(jvm.SPARK)}
        if self.clocks:
            own = self.clocks[0].environ
            path = os.pathsep.join((own["PYTHONPATH"], str(CHECKOUT)))
            environ |= {**own, "PYTHONPATH": path, "JAVA_HOME": str(self._java_home)}
        with self.output.open("ab") as output:
            self._child = subprocess.Popen(
                [*base, "--report-dir", str(self.site.report), "--master", self.executors.url],
                cwd=self.site.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, *, alone: bool) -> None:
        """SIGKILL `mirror stream` ``alone``, which its script has to notice, or all processes of the driver."""
        child = self._running()
        if alone:
            child.kill()
            child.wait()
            eventually(
                lambda: not self.site.processes(),
                within_s=GONE_WITHIN_S,
                every_s=0.2,
                what="the end of a killed driver",
            )
        else:
            self._kill_all()

    def stop(self) -> int:
        """SIGTERM it and return its exit status. AssertionError where it takes too long, or leaves a process."""
        self.roles()
        child = self._running()
        child.send_signal(signal.SIGTERM)
        try:
            status = child.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            msg = f"the stream does not end {STOPS_WITHIN_S:.0f} s after SIGTERM"
            raise AssertionError(msg) from error
        until = f"{GONE_WITHIN_S:.0f} s after the stream's end there are still"
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.left(), within_s=GONE_WITHIN_S, every_s=0.2)
        assert not self.left(), f"{until} {[' '.join(command_of(process))[:200] for process in self.left()]}"
        return status

    def left(self) -> list[psutil.Process]:
        """Return the processes of the stream that are alive, of all that were ever seen."""
        seen = {process for process in self._seen if process.is_running() and _alive(process)}
        return list(seen | set(self.site.processes()) | set(self.executors.executors()))

    def end(self) -> None:
        """Kill all processes of the driver, with which the executors end."""
        self._kill_all()

    def _kill_all(self) -> None:
        self.site.kill()
        if self._child is not None:
            self._child.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._child is not None
        self.check()
        return self._child

    def check(self) -> None:
        """Raise AssertionError where it has ended by itself."""
        status = self._child.poll() if self._child is not None else None
        assert status is None, f"the stream has ended by itself, with {status}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the end of its output."""
        return " | ".join(self.output.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])

    # --- processes

    def roles(self) -> list[tuple[str, psutil.Process]]:
        """Return its processes with their roles."""
        found = [(self._role(process), process) for process in self.site.processes()]
        for executor in self.executors.executors():
            found.append(("executor", executor))
            found += [
                ("worker" if is_forked(process, _WORKER) else "daemon", process) for process in _descendants(executor)
            ]
        self._seen.update(process for _, process in found)
        return found

    def _role(self, process: psutil.Process) -> str:
        command = command_of(process)
        if self._child is not None and process.pid == self._child.pid:
            return "mirror stream"
        if any(word.endswith(_SCRIPT) for word in command):
            return "driver's script"
        if any("java" in word for word in command[:1]):
            return "driver's JVM"
        return "planner"

    def has_executors(self) -> bool:
        self.check()
        return len(self.executors.executors()) == EXECUTORS

    def copying(self) -> list[psutil.Process]:
        """Return the Python workers of the executors."""
        return [process for role, process in self.roles() if role == "worker"]

    def missing(self) -> list[str]:
        """Return a line for each role with another number of processes than it should have."""
        roles = [role for role, _ in self.roles()]
        wanted = {"mirror stream": 1, "driver's script": 1, "driver's JVM": 1, "executor": EXECUTORS}
        wrong = [f"{roles.count(role)} x {role}, not {n}" for role, n in wanted.items() if roles.count(role) != n]
        most = EXECUTORS * CORES * 2  # A task has a process that reads ranges, and one that copies them.
        workers = roles.count("worker")
        return wrong + ([] if 1 <= workers <= most else [f"{workers} x worker, not 1 to {most}"])

    # --- results

    def results(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the summary's results by topic and partition."""
        summary = json.loads((self.site.report / "summary.json").read_text(encoding="utf-8"))
        return {
            (result["topic"], result["partition"]): result for flow in summary["flows"] for result in flow["partitions"]
        }


def _descendants(process: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield from process.children(recursive=True)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
