"""The raw results: ``results.json``, written after every run, whole or not at all.

``runs`` has one entry for each workload, copier and round, with what :mod:`.running` measured: wall time in seconds
(``whole_seconds``, ``startup_seconds``, ``copy_seconds``), CPU seconds by role over the whole life and within the copy,
the brokers' within the copy, peak memory in MB, ``records`` and ``bytes`` that were to be copied, ``equal`` (None: not
compared), ``failed`` (None, or why). ``latency`` is in ms, ``idle`` in seconds. ``workloads`` says what was at the
source, and who has no part, with the reason.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.fetch import KAFKA_VERSION
from mirror.sandbox.java import find_java

FILE: Final = Path(__file__).with_name("results.json")
_PACKAGES: Final = {
    "mirror": "kafka-spark-mirror",
    "spark": "pyspark",
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
}


class Results:
    """The file, and what is in it."""

    def __init__(self, path: Path, head: Mapping[str, Any], *, resume: bool) -> None:
        self._path = path
        found = json.loads(path.read_text(encoding="utf-8")) if resume and path.exists() else {}
        empty: dict[str, Any] = {"workloads": {}, "runs": [], "latency": [], "idle": []}
        self.told: Final[dict[str, Any]] = {**head, **empty, **found}

    def workload(self, key: str, told: Mapping[str, Any]) -> None:
        self.told["workloads"][key] = dict(told)
        self._write()

    def has(self, workload: str, copier: str, number: int) -> bool:
        """Whether that run is there and did not fail."""
        return any(_key(run) == (workload, copier, number) and run["failed"] is None for run in self.told["runs"])

    def add(self, run: Mapping[str, Any]) -> None:
        """In place of an earlier try of the same run."""
        self.told["runs"] = [one for one in self.told["runs"] if _key(one) != _key(run)] + [dict(run)]
        self._write()

    def has_other(self, kind: str, **values: Any) -> bool:
        """Whether ``kind`` (``latency`` or ``idle``) has an entry with these values."""
        return any(values.items() <= one.items() for one in self.told[kind])

    def add_other(self, kind: str, told: Mapping[str, Any]) -> None:
        self.told[kind].append(dict(told))
        self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self._path)


def _key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return run["workload"], run["copier"], run["round"]


def head(seed: int) -> dict[str, Any]:
    """Of this machine, these versions, today."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = {name: importlib.metadata.version(package) for name, package in _PACKAGES.items()}
    return {
        "machine": {
            "cores": os.cpu_count(),
            "memory_gb": round(size / 1e9, 1),
            "cpu": _cpu(),
            "kernel": platform.release(),
        },
        "versions": {**versions, "kafka": KAFKA_VERSION, "python": platform.python_version(), "java": _java()},
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
    }


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _java() -> str:
    told = subprocess.run([str(find_java().path), "-version"], capture_output=True, text=True, check=True).stderr
    return told.partition('"')[2].partition('"')[0]
