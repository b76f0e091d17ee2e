"""The copiers, each as its documents run it where a process may be lost, and what of each can be lost.

Each runs under a supervisor that starts again at once what has ended. All of them run in the job's network namespace:
call everything but :meth:`Copier.kill` within it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from mirror.sandbox import process
from mirror.sandbox.fetch import class_path
from mirror.sandbox.java import find_java
from mirror.sandbox.node import render
from tests.benchmarks.bench_latency import Load
from tests.benchmarks.loss.clients import GROUP, PARTITIONS, TOPIC
from tests.benchmarks.mirrormaker import LOGGING, NO_LINGER, mirrormaker_jars, properties
from tests.benchmarks.plain_spark import command as plain_spark
from tests.benchmarks.side_by_side.mirrormaker_settings import java
from tests.campaign.measurements.stream import Stream, spark_settings
from tests.e2e.site import is_forked
from tests.e2e.standalone import Standalone, standalone

_ROOT: Final = Path(__file__).parents[3]
_GUARD: Final = _ROOT / "mirror" / "sandbox" / "die_with_owner.py"
_EXECUTORS: Final = 2
_WORKER: Final = "pyspark.worker"
_BUSY_S: Final = 5.0
_STOP_S: Final = 30.0
_PERIOD_MS: Final = 600_000
SWITCH: Final = "move"
QUIET_S: Final = 5
"""``quiet-seconds`` of the switch."""
NODES: Final = 2
"""Of MirrorMaker 2: with one, each loss is one of all."""
SYNC_S: Final = 1
"""How often MirrorMaker 2 writes positions of groups."""


class NotApplicableError(Exception):
    """The copier has no such part."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a copier works. ``source`` and ``target``: addresses behind the links."""

    source: str
    target: str
    folder: Path
    replicas: int


class Copier(ABC):
    """One that runs."""

    @abstractmethod
    def start(self) -> None:
        """Start its processes."""

    @abstractmethod
    def keep(self) -> None:
        """Start again what has ended, as a supervisor does."""

    @abstractmethod
    def stop(self) -> None:
        """End it; no process is left."""

    @abstractmethod
    def victims(self, part: str) -> list[psutil.Process]:
        """Return the processes of ``part``: "worker", "executor" or "driver". Raises NotApplicableError."""

    def kill(self, part: str) -> float:
        """SIGKILL the processes of ``part``; return when (monotonic seconds)."""
        found = self.victims(part)
        if not found:
            raise AssertionError(f"there is no {part} to kill")
        at = time.monotonic()
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(found, timeout=30)
        return at


class Mirror(Copier):
    """`mirror stream` on a standalone cluster of Spark with two executors of one core."""

    def __init__(self, place: Place, spark: Standalone) -> None:
        self._spark: Final = spark
        load = Load(place.source, place.target, place.folder, PARTITIONS, _PERIOD_MS)
        lines = ['naming = "identity"', "[flows.f.groups]", f'[switches.{SWITCH}]\nflows = ["f"]']
        lines += [f"quiet-seconds = {QUIET_S}", "deadline-seconds = 300"]
        self._stream: Final = Stream(load, lines, spark, None)
        self.config: Final = place.folder / "mirror.toml"

    def start(self) -> None:
        self._stream.start()

    def keep(self) -> None:
        if not self._stream.running:
            self._stream.start()

    def stop(self) -> None:
        self._stream.stop()

    def victims(self, part: str) -> list[psutil.Process]:
        executors = self._spark.executors()
        if part == "executor":
            return [_busiest(executors)]
        if part == "worker":
            workers = [one for each in executors for one in _with_children(each) if is_forked(one, _WORKER)]
            return [_busiest(workers)]
        return _with_children(psutil.Process(self._stream.pid))


class MirrorMaker(Copier):
    """Two nodes of MirrorMaker 2 with exactly-once support, tuned for latency and for short waits after a loss."""

    def __init__(self, place: Place) -> None:
        self._place: Final = place
        self._nodes: Final[list[subprocess.Popen[bytes]]] = []

    def settings(self) -> dict[str, str]:
        """Return the properties of each node."""
        place = self._place
        found = properties(place.source, place.target, TOPIC, exactly_once=True, tasks=PARTITIONS) | NO_LINGER
        found = {key: str(place.replicas) if "replication.factor" in key else one for key, one in found.items()}
        flow = "a->b."
        found |= {
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            f"{flow}emit.checkpoints.enabled": "true",
            f"{flow}emit.checkpoints.interval.seconds": str(SYNC_S),
            f"{flow}sync.group.offsets.enabled": "true",
            f"{flow}sync.group.offsets.interval.seconds": str(SYNC_S),
            f"{flow}refresh.groups.interval.seconds": "5",
            f"{flow}groups": GROUP,
            f"{flow}sync.topic.acls.enabled": "false",
            # 300 s by default, for which the tasks of a node that was lost are not assigned to another one.
            "b.scheduled.rebalance.max.delay.ms": "0",
        }
        return found

    def start(self) -> None:
        file = self._place.folder / "mm2.properties"
        file.write_text(render(self.settings()), encoding="ascii")
        for _ in range(NODES):
            self._nodes.append(self._node())

    def _node(self) -> subprocess.Popen[bytes]:
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        words: list[str | Path] = [find_java().path, *java(PARTITIONS), LOGGING]
        words += ["-cp", class_path(mirrormaker_jars()), main]
        return launch([*words, self._place.folder / "mm2.properties"], self._place.folder / "mm2.log")

    def keep(self) -> None:
        for number, node in enumerate(self._nodes):
            if node.poll() is not None:
                self._nodes[number] = self._node()

    def stop(self) -> None:
        end(self._nodes)
        self._nodes.clear()

    def victims(self, part: str) -> list[psutil.Process]:
        if part == "worker":
            raise NotApplicableError("its tasks are threads of its nodes")
        found = [psutil.Process(node.pid) for node in self._nodes]
        return [_busiest(found)] if part == "executor" else found


class PlainSpark(Copier):
    """A query of Spark alone, on a cluster like ours; micro-batches without a pause."""

    def __init__(self, place: Place, spark: Standalone) -> None:
        self._place: Final = place
        self._spark: Final = spark
        self._environ: Final = {"SPARK_CONF_DIR": str(spark_settings(place.folder, spark)), "PYTHONPATH": str(_ROOT)}
        checkpoint = str(place.folder / "checkpoint")
        self._command: Final = plain_spark.command(
            plain_spark.PlainSpark(
                place.source, place.target, TOPIC, TOPIC, checkpoint, plain_spark.MICRO_BATCHES, spark.url
            )
        )
        self._driver: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._driver = [launch(self._command, self._place.folder / "spark.log", self._environ)]

    def keep(self) -> None:
        if self._driver and self._driver[0].poll() is not None:
            self.start()

    def stop(self) -> None:
        end(self._driver)
        self._driver = []

    def victims(self, part: str) -> list[psutil.Process]:
        if part == "worker":
            raise NotApplicableError("its tasks are threads of its executors")
        if part == "executor":
            return [_busiest(self._spark.executors())]
        return _with_children(psutil.Process(self._driver[0].pid))


def launch(words: Sequence[str | Path], log: Path, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program that ends with this thread, however that ends; its output is appended to ``log``."""
    guarded = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *map(str, words)]
    with log.open("ab") as output:
        return subprocess.Popen(
            guarded, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(environ or {})}
        )


def end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM, and SIGKILL after 30 s; what they have started ends with them."""
    families = [one for child in children if child.poll() is None for one in _with_children(psutil.Process(child.pid))]
    for child in children:
        child.terminate()
    until = time.monotonic() + _STOP_S
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
        child.kill()
        child.wait()
    for one in families:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def _with_children(one: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [one, *one.children(recursive=True)]
    return [one]


def _busiest(processes: Sequence[psutil.Process]) -> psutil.Process:
    """The one that has used the most CPU in the next seconds, with what it has started: one that copies."""
    assert processes, "there is no such process"
    before = [_cpu_s(one) for one in processes]
    time.sleep(_BUSY_S)
    used = [_cpu_s(one) - was for one, was in zip(processes, before, strict=True)]
    return processes[used.index(max(used))]


def _cpu_s(one: psutil.Process) -> float:
    total = 0.0
    for each in _with_children(one):
        with contextlib.suppress(psutil.Error):
            times = each.cpu_times()
            total += times.user + times.system
    return total


@contextlib.contextmanager
def spark_cluster(folder: Path) -> Iterator[Standalone]:
    """A standalone cluster in the namespace that this thread is in: in a process of its own, which is in it whole."""
    command = [sys.executable, "-m", "tests.benchmarks.loss.spark_cluster", str(folder), str(_EXECUTORS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, "the cluster of Spark does not start"
        yield _standalone(folder, json.loads(line))
        child.communicate()


def _standalone(folder: Path, said: Mapping[str, Any]) -> Standalone:
    def found(pid: int) -> process.Process:
        return process.Process(pid, process.start_time(pid) or "")

    return Standalone(
        folder, said["port"], said["ui_port"], found(said["master"]), [found(pid) for pid in said["workers"]]
    )


def serve(folder: Path, executors: int) -> None:
    """Run such a cluster until the end of standard input."""
    with standalone(folder, executors) as cluster:
        pids = {"master": cluster.master.pid, "workers": [worker.pid for worker in cluster.workers]}
        sys.stdout.write(json.dumps({"port": cluster.port, "ui_port": cluster.ui_port, **pids}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
