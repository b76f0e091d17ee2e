"""The raw results: ``results.json``, written after every run, whole or not at all.

``invocations`` has one entry for each start of the benchmark: the commit that was measured and whether the work tree
had other changes, the arguments, the machine, the versions, the time (UTC). Every other entry names its own by number
(``invocation``, from 0). All of one file belong to one commit: :class:`Results` refuses to resume another one's.

``runs`` has one entry for each attempt at a workload, copier and round, with what :mod:`.running` measured: wall time
in seconds (``whole_seconds``, ``startup_seconds``, ``copy_seconds``), CPU seconds by role over the whole life and
within the copy, the brokers' within the copy, peak memory in MB, ``records`` and ``bytes`` that were to be copied,
``equal`` (None: not compared), ``difference`` (why it is not equal, or could not be compared), ``failed`` (None, or
why). A failed attempt stays in the file beside the one that replaces it. ``latency`` is in ms, ``idle`` and
``recovery`` in seconds; ``groups``, ``quiet`` and ``losses`` have what bench_groups.py, bench_quiet_partitions.py and
bench_losses.py measure.
``workloads`` says what was at the source, and which copiers take no part, with the reason.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.fetch import KAFKA_VERSION
from mirror.sandbox.java import find_java
from mirror.version import VERSION
from tests.benchmarks.side_by_side.figures import OTHERS

FILE: Final = Path(__file__).with_name("results.json")
_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = {
    "spark": "pyspark",
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
}
_WRITTEN: Final = (
    "README.md",
    "tests/README.md",
    "tests/benchmarks/RESULTS.md",
    "tests/benchmarks/LATENCY.md",
    "tests/benchmarks/latency_table/results.json",
    "*.svg",
    "tests/benchmarks/side_by_side/results.json",
    "tests/benchmarks/results-plain-spark.json",
    "tests/benchmarks/LOSS.md",
    "tests/benchmarks/loss/results.json",
    "tests/benchmarks/WIDE_AREA.md",
    "tests/benchmarks/wide_area/results.json",
)
"""What the benchmarks themselves write: a change of these does not change what is measured."""


class OtherCommitError(Exception):
    """The file was measured on another commit, and is nowhere else."""


class Results:
    """The file, and what is in it, which new entries join if it is of the same commit, and replace otherwise.

    Raises OtherCommitError rather than lose what git does not have, unless ``replace``.
    """

    def __init__(self, path: Path, invocation: Mapping[str, Any], *, replace: bool) -> None:
        self._path = path
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not replace else {}
        if not _goes_on(found.get("invocations", ()), invocation):
            _require_in_git(path, found, invocation)
            found = {}
        empty: dict[str, Any] = {"invocations": [], "workloads": {}, "runs": [], **{name: [] for name in OTHERS}}
        self.document: Final[dict[str, Any]] = {**empty, **found}
        self.document["invocations"].append(dict(invocation))
        self._number: Final = len(self.document["invocations"]) - 1

    def workload(self, key: str, entry: Mapping[str, Any]) -> None:
        self.document["workloads"][key] = dict(entry)
        self._write()

    def has(self, workload: str, copier: str, number: int) -> bool:
        """Whether that run is there and did not fail."""
        return any(_key(run) == (workload, copier, number) and run["failed"] is None for run in self.document["runs"])

    def add(self, run: Mapping[str, Any]) -> None:
        """Beside earlier attempts at the same run, which failed."""
        self.add_other("runs", run)

    def has_other(self, kind: str, **values: Any) -> bool:
        """Whether ``kind`` (one of :data:`OTHERS`) has an entry with these values that did not fail."""
        return any(values.items() <= entry.items() and not entry.get("failed") for entry in self.document[kind])

    def add_other(self, kind: str, entry: Mapping[str, Any]) -> None:
        self.document[kind].append({**entry, "invocation": self._number})
        self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self._path)


def _key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return run["workload"], run["copier"], run["round"]


def _goes_on(earlier: Sequence[Mapping[str, Any]], now: Mapping[str, Any]) -> bool:
    """Whether all is of one unchanged commit."""
    states = {(one["commit"], one["clean"]) for one in (*earlier, now)}
    return states == {(now["commit"], True)} or not earlier


def _require_in_git(path: Path, found: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if found and not _in_git(path):
        earlier = found["invocations"][0]
        states = " and ".join(f"{one['commit'][:12]}{'' if one['clean'] else ' (changed)'}" for one in (earlier, now))
        msg = f"{path.name} has rows that git has not, and they and the new ones are of {states}: --replace them"
        raise OtherCommitError(msg)


def _in_git(path: Path) -> bool:
    """Whether HEAD has the file as it is."""
    place = ["git", "-C", str(path.parent)]
    known = subprocess.run([*place, "ls-files", "--error-unmatch", path.name], capture_output=True, check=False)
    same = subprocess.run([*place, "diff", "--quiet", "HEAD", "--", path.name], capture_output=True, check=False)
    return not known.returncode and not same.returncode


def invocation(seed: int, arguments: Sequence[str]) -> dict[str, Any]:
    """This start of the benchmark: commit, arguments, machine, versions, now (UTC)."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = {name: importlib.metadata.version(package) for name, package in _PACKAGES.items()}
    return {
        "commit": _git("rev-parse", "HEAD"),
        "clean": not _git("status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in _WRITTEN)),
        "arguments": list(arguments),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gb": round(size / 1e9, 1),
            "cpu": _cpu(),
            "kernel": platform.release(),
        },
        "versions": {
            "mirror": VERSION,
            **versions,
            "kafka": KAFKA_VERSION,
            "python": platform.python_version(),
            "java": _java(),
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _java() -> str:
    result = subprocess.run([str(find_java().path), "-version"], capture_output=True, text=True, check=True).stderr
    return result.partition('"')[2].partition('"')[0]
