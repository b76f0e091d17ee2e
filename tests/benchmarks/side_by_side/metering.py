"""CPU and memory of a copier by the roles of its processes, and the brokers' CPU, ten times a second.

Roles of ``mirror run``: ``copying`` (the Python processes of Spark's tasks), ``planning`` (those that Spark starts for
its driver, to plan and to hear of results), ``spark`` (the JVM), ``driver`` (the command and the driver's script). All
processes of any other copier are ``copying``. CPU seconds are user and system time, of ended processes too, as they
were last seen. Resident memory is the sum over processes at one moment; pages that forked processes share count in
each. Proportional memory (Linux's PSS), read once a second, counts each page once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

EVERY_S: Final = 0.1
_SHARES_EACH: Final = 10
"""Samples: to add up the pages of a large process takes the kernel 10 ms."""
COPYING: Final = "copying"
PLANNING: Final = "planning"
SPARK: Final = "spark"
DRIVER: Final = "driver"
_TASKS: Final = "pyspark.worker"
_DAEMON: Final = "pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Sample:
    """At ``at`` (monotonic seconds): CPU seconds so far and resident bytes by role, brokers' CPU seconds by side."""

    at: float
    cpu: Mapping[str, float]
    resident: Mapping[str, int]
    brokers: Mapping[str, float]
    proportional: Mapping[str, int] = field(default_factory=dict)


class Meter(threading.Thread):
    """Samples until :meth:`stop`. ``brokers``: side -> process ids. ``roles``: whether it has several processes."""

    def __init__(self, root: int, brokers: Mapping[str, Iterable[int]], *, roles: bool) -> None:
        super().__init__(name="meter", daemon=True)
        self._root = psutil.Process(root)
        self._roles = roles
        self._brokers = {side: [psutil.Process(pid) for pid in pids] for side, pids in brokers.items()}
        self._seen: dict[psutil.Process, tuple[str, float]] = {}
        self._over = threading.Event()
        self.samples: Final = list[Sample]()

    def run(self) -> None:
        while True:
            self.take_sample()
            if self._over.wait(EVERY_S):
                return

    def stop(self) -> None:
        """Take a last sample, unless the thread has ended."""
        self._over.set()
        self.join()

    def family(self) -> list[psutil.Process]:
        """All processes of the copier that were ever seen."""
        return list(self._seen)

    def take_sample(self) -> Sample:
        """Take a sample now, add it to :attr:`samples`, and return it."""
        resident: dict[str, int] = defaultdict(int)
        proportional: dict[str, int] = defaultdict(int)
        shares = len(self.samples) % _SHARES_EACH == 0
        for process in self._processes():
            try:
                with process.oneshot():
                    times, size = process.cpu_times(), process.memory_info().rss
                    role = self._role(process)  # again each time: a shell's process becomes Java's
            except psutil.Error:
                continue
            self._seen[process] = (role, times.user + times.system)
            resident[role] += size
            if shares:
                with contextlib.suppress(psutil.Error):
                    proportional[role] += process.memory_full_info().pss
        cpu: dict[str, float] = defaultdict(float)
        for role, seconds in self._seen.values():
            cpu[role] += seconds
        sample = Sample(time.monotonic(), dict(cpu), dict(resident), self.brokers_cpu(), dict(proportional))
        self.samples.append(sample)
        return sample

    def brokers_cpu(self) -> dict[str, float]:
        return {
            side: sum(times.user + times.system for times in (one.cpu_times() for one in processes))
            for side, processes in self._brokers.items()
        }

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _role(self, process: psutil.Process) -> str:
        if not self._roles:
            return COPYING
        if process.name().startswith("java"):
            return SPARK
        words = process.cmdline()
        if not words and process in self._seen:  # it is about to end
            return self._seen[process][0]
        if _TASKS in words:
            return COPYING
        return PLANNING if _DAEMON in words or any(word.startswith("pyspark.sql.worker") for word in words) else DRIVER


def at(samples: Sequence[Sample], kind: str, role: str, when: float) -> float:
    """The value that a growing figure had at ``when``, on the line between the two samples around it."""
    before = 0.0, samples[0].at
    for sample in samples:
        value = getattr(sample, kind).get(role, 0.0)
        if sample.at >= when:
            if sample.at == before[1]:
                return float(value)
            share = (when - before[1]) / (sample.at - before[1])
            return float(before[0] + (value - before[0]) * min(1.0, max(0.0, share)))
        before = value, sample.at
    return float(before[0])


def figures(samples: Sequence[Sample], first: float, done: float, end: float) -> dict[str, Any]:
    """What a run's results say of CPU and memory: up to ``end``, and between ``first`` and ``done``."""
    roles = sorted({role for sample in samples for role in sample.cpu})
    sides = samples[0].brokers

    def within(kind: str, role: str) -> float:
        return round(at(samples, kind, role, done) - at(samples, kind, role, first), 3)

    def peaks(kind: str) -> dict[str, float]:
        every: list[Mapping[str, int]] = [getattr(sample, kind) for sample in samples]
        found = {role: max(one.get(role, 0) for one in every) for role in roles}
        found["all"] = max(sum(one.values()) for one in every)
        return {role: round(size / 1e6, 1) for role, size in found.items()}

    return {
        "cpu_seconds": {role: round(at(samples, "cpu", role, end), 3) for role in roles},
        "cpu_seconds_copying": {role: within("cpu", role) for role in roles},
        "broker_cpu_seconds": {side: within("brokers", side) for side in sides},
        "peak_rss_mb": peaks("resident"),
        "peak_pss_mb": peaks("proportional"),
    }
