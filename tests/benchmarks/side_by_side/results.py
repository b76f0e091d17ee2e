"""The raw results: ``unpublished.json``, written after every run, whole or not at all.

It becomes results.json, of which the documents are made, once nothing is left (:mod:`.publish`). Until then it may be
committed as it is.

``invocations`` has one entry for each start of the benchmark: the commit that was measured and whether the work tree
had other changes, the arguments, the machine, the versions, the time (UTC). Every other entry names its own by number
(``invocation``, from 0), and has the seconds that it took with all that belongs to it (``took_s``). All of one file
belong to one commit, that of the first start. Later starts may have another one, if what is measured is the same there:
documents, results and tests may differ (:func:`differences`).

``runs`` has one entry for each attempt at a workload, copier and round, with what :mod:`.running` measured: wall time
in seconds (``whole_seconds``, ``startup_seconds``, ``copy_seconds``), CPU seconds by role over the whole life and
within the copy, the brokers' within the copy, peak memory in MB, ``records`` and ``bytes`` that were to be copied,
``equal`` (None: not compared), ``difference`` (why it is not equal, or could not be compared), ``failed`` (None, or
why). A failed attempt stays in the file beside the one that replaces it. ``latency`` is in ms, ``idle`` and
``recovery`` in seconds; ``groups``, ``quiet`` and ``losses`` have what bench_groups.py, bench_quiet_partitions.py and
bench_losses.py measure, ``loads`` what bench_latency.py does at loads of few and of many partitions.
``workloads`` says what was at the source, and which copiers take no part, with the reason.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.java import find_java
from mirror.version import VERSION
from tests.benchmarks.brokers import VERSION as BROKERS
from tests.benchmarks.mirrormaker import VERSION as MIRRORMAKER
from tests.benchmarks.side_by_side.figures import OTHERS, RESULTS

FILE: Final = Path(__file__).with_name("unpublished.json")
_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = {
    "spark": "pyspark",
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
}
MEASURED: Final = (
    *("mirror", "pyproject.toml", "requirements.txt", "tests/benchmarks", "tests/campaign/measurements", "tests/e2e"),
    *("tests/releases", "tests/jvm.py", "tests/polling.py", "tests/topic_creation.py", "tests/alignment/permissions"),
)
"""What has an influence on what is measured, but for what the next ones name."""
_PUBLISHING: Final = ("page", "picture", "publish", "statistics", "targets", "verdicts", "written")
_UNMEASURED: Final = (
    *("*.md", "*.svg", "*.j2", "*/test_*.py", "*/sample_results.py", "tests/benchmarks/*.json"),
    *(f"tests/benchmarks/*/{module}.py" for module in _PUBLISHING),
)
"""Documents, what makes them, results, and tests."""
TRIES: Final = 2
"""What has failed so often is not measured again."""


class OtherCommitError(Exception):
    """The rows in the file are of another commit, on which something else was measured."""


class Results:
    """The file, and what is in it, which new entries join if they are of the same commit.

    Raises OtherCommitError if they are not, unless ``replace``: then these rows are dropped.
    """

    def __init__(self, path: Path, invocation: Mapping[str, Any], *, replace: bool) -> None:
        self._path = path
        self.seconds: Final = _durations(read(RESULTS)) | _durations(read(path))
        """How long a measurement took, by section and copier: the median, also of another commit."""
        found = rows(path)
        if not _goes_on(found.get("invocations", ()), invocation):
            if path.exists() and not replace:
                raise OtherCommitError(_refusal(path, found["invocations"][0]["commit"]))
            found = {}
        empty: dict[str, Any] = {"invocations": [], "workloads": {}, "runs": [], **{name: [] for name in OTHERS}}
        self.document: Final[dict[str, Any]] = {**empty, **found}
        self.document["invocations"].append(dict(invocation))
        self._number: Final = len(self.document["invocations"]) - 1

    def workload(self, key: str, entry: Mapping[str, Any]) -> None:
        self.document["workloads"][key] = dict(entry)
        self._write()

    def add(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Append to ``kind``, "runs" or one of OTHERS: beside earlier attempts at the same, which failed."""
        self.document[kind].append({**entry, "invocation": self._number})
        self._write()

    def has(self, kind: str, **values: Any) -> bool:
        """Whether ``kind`` has an entry with these values that did not fail, or as many as are tried."""
        found = [entry for entry in self.document[kind] if values.items() <= entry.items()]
        return len(found) >= TRIES or any(not entry.get("failed") for entry in found)

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self._path)


def read(path: Path) -> dict[str, Any]:
    """What is in the file; nothing if there is none."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def rows(path: Path) -> dict[str, Any]:
    """What is in the file, or in the published one if there is no unpublished one."""
    return read(RESULTS if path == FILE and not path.exists() else path)


def begin(path: Path, invocation: dict[str, Any]) -> dict[str, Any]:
    """Return the results in ``path``, or new ones of this ``invocation``.

    Raises OtherCommitError if they are of another commit, or of a tree with changes.
    """
    if not (found := read(path)):
        return {"measured": invocation, "runs": []}
    commit = found["measured"]["commit"]
    if not invocation["clean"] or (commit != invocation["commit"] and differences(commit)):
        raise OtherCommitError(_refusal(path, commit))
    return found


def is_done(run: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether ``run`` is among ``runs``, and has not failed."""
    return any(run.items() <= done.items() and "failed" not in done for done in runs)


def _goes_on(earlier: Sequence[Mapping[str, Any]], now: Mapping[str, Any]) -> bool:
    """Whether all is of one unchanged commit."""
    states = {(one["commit"], one["clean"]) for one in (*earlier, now)}
    return states == {(now["commit"], True)} or not earlier


def _durations(document: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    took: dict[tuple[str, str], list[float]] = {}
    for kind in ("runs", *OTHERS):
        for one in document.get(kind, ()):
            if "took_s" in one:
                took.setdefault((one.get("workload", kind), one.get("copier", "")), []).append(one["took_s"])
    return {key: statistics.median(values) for key, values in took.items()}


def differences(commit: str, root: Path = _ROOT) -> list[str]:
    """The files that may have an influence on what is measured and are not those of ``commit``."""
    paths = ["--", *MEASURED, *(f":(exclude){path}" for path in _UNMEASURED)]
    try:
        changed = _git("diff", "--name-only", commit, *paths, root=root)
    except subprocess.CalledProcessError:
        return [f"commit {commit[:12]}, which git has not"]
    return [*changed.splitlines(), *_git("ls-files", "--others", "--exclude-standard", *paths, root=root).splitlines()]


def _refusal(path: Path, commit: str) -> str:
    changed = differences(commit) or ["files that were changed then"]
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return (
        f"{path.name} is of commit {commit[:12]}, and what is measured has changed since:"
        f" {', '.join(changed[:3])}{more};"
        f" go on there with the file (git worktree add FOLDER {commit[:12]}), or drop its rows by --replace"
    )


def measured_commit(path: Path) -> str:
    """The commit whose code is measured: that of the results in ``path`` if nothing differs from it, otherwise HEAD."""
    if found := rows(path):
        commit = str(found["invocations"][0]["commit"])
        if not differences(commit):
            return commit
    return _git("rev-parse", "HEAD")


def invocation(seed: int, arguments: Sequence[str], commit: str = "") -> dict[str, Any]:
    """This start of the benchmark: ``commit`` (by default HEAD), arguments, machine, versions, now (UTC)."""
    commit = commit or _git("rev-parse", "HEAD")
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = {name: importlib.metadata.version(package) for name, package in _PACKAGES.items()}
    return {
        "commit": commit,
        "clean": not differences(commit),
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
            "kafka": BROKERS,
            "mirrormaker": MIRRORMAKER,
            "python": platform.python_version(),
            "java": _java(),
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
    }


def _git(*arguments: str, root: Path = _ROOT) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _java() -> str:
    result = subprocess.run([str(find_java().path), "-version"], capture_output=True, text=True, check=True).stderr
    return result.partition('"')[2].partition('"')[0]
