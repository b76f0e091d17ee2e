"""What was measured, as ``results.json`` has it. Pure: nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results.json"
EARLIER: Final = HERE / "earlier"
"""Files of the same form, of other commits: they are published for what results.json lacks."""

COPIERS: Final[Mapping[str, str]] = {
    "mirror-exactly-once": "mirror, exactly once",
    "mirror-at-least-once": "mirror, at least once",
    "mirrormaker-tuned": "MirrorMaker 2, tuned",
    "mirrormaker-exactly-once": "MirrorMaker 2, tuned, exactly once",
    "mirrormaker-default": "MirrorMaker 2, defaults",
    "plain-spark": "plain Spark",
    "confluent-loop": "confluent-kafka, a loop",
    "kafka-python": "kafka-python, a loop",
    "null-copier": "null copier",
    "fetch-alone": "fetch alone",
    "produce-alone": "produce alone",
}
"""By name, in the order of tables; what they are called there."""
CEILINGS: Final = frozenset({"null-copier", "fetch-alone", "produce-alone"})
"""Not copiers that anybody could use, but what there is to reach."""
STREAMS: Final[Mapping[str, str]] = {
    "mirror-exactly-once": "mirror, exactly once",
    "mirrormaker-low-latency": "MirrorMaker 2, tuned for latency, exactly once",
    "mirrormaker-exactly-once": "MirrorMaker 2, defaults, exactly once",
    "plain-spark": "plain Spark, micro-batches",
    "plain-spark-real-time": "plain Spark, real-time mode, 5 minutes",
    "plain-spark-real-time-shortest": "plain Spark, real-time mode, 5 seconds",
}
"""The streams that are measured, by name; there MirrorMaker 2 has none of the settings for large copies."""

AT_LEAST_ONCE: Final = frozenset(name for name in STREAMS if name.startswith("plain-spark"))
"""Streams that may write records twice."""

_GROUPS_MS: Final = 1_000
"""The shortest interval at which positions of groups are copied, which each copier has."""
OTHERS: Final = ("idle", "loads", "latency", "recovery", "groups", "losses", "quiet")
"""The sections beside the workloads."""


class UnpublishableError(Exception):
    """The rows of a results file do not belong to one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of data. ``bytes`` are those of its batches on the wire."""

    title: str
    partitions: int
    brokers: int
    replicas: int
    records: int
    bytes: int
    batches: int
    mirrormaker_heap_gb: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One copy of a workload. CPU is in seconds by role, over the whole life and while it copied; memory in MB."""

    workload: str
    copier: str
    round: int
    whole_seconds: float
    startup_seconds: float
    copy_seconds: float
    cpu_seconds: Mapping[str, float]
    cpu_seconds_copying: Mapping[str, float]
    broker_cpu_seconds: Mapping[str, float]
    peak_rss_mb: Mapping[str, float]
    records: int
    bytes: float
    """Its share of the workload's, where it copied a part only."""
    equal: bool | None
    difference: str | None
    failed: str | None
    load_before: float

    @property
    def dropped(self) -> str | None:
        """Why this run counts in no figure: it failed, or its copy is not known to be equal; None where it counts."""
        if self.failed is not None:
            return f"failed: {self.failed}"
        if self.equal is False:
            return f"not equal to the source: {self.difference}"
        return None if self.difference is None else f"not compared: {self.difference}"

    @property
    def megabytes_per_second(self) -> float:
        """Of batches at the source, from the first record at the target to the last."""
        return self.bytes / 1e6 / self.copy_seconds

    @property
    def whole_megabytes_per_second(self) -> float:
        """Of batches at the source, from the start of the copier's process to the last record."""
        return self.bytes / 1e6 / self.whole_seconds

    @property
    def records_per_second(self) -> float:
        """The same, counted in records."""
        return self.records / self.copy_seconds

    def cpu_per_gb(self, *roles: str) -> float:
        """CPU seconds a GB, while it copied, of these roles; of all of them without any."""
        spent = self.cpu_seconds_copying
        return sum(spent.get(role, 0.0) for role in roles or spent) / (self.bytes / 1e9)

    def whole_cpu_per_gb(self, *roles: str) -> float:
        """The same over the whole life of its processes, start-up included."""
        spent = self.cpu_seconds
        return sum(spent.get(role, 0.0) for role in roles or spent) / (self.bytes / 1e9)

    @property
    def broker_cpu_per_gb(self) -> float:
        """CPU seconds a GB of all brokers, while it copied."""
        return sum(self.broker_cpu_seconds.values()) / (self.bytes / 1e9)

    @property
    def copying_mb(self) -> float:
        """The largest resident size that its copying processes had together."""
        return self.peak_rss_mb["copying"]


@dataclass(frozen=True, slots=True)
class Results:
    """All of it. ``latency``, ``idle`` and the like are lists of figures by their names.

    ``commit`` is the one that all rows were measured on; ``kernels`` are those of all its invocations, in their order.
    """

    commit: str
    machine: Mapping[str, Any]
    kernels: tuple[str, ...]
    versions: Mapping[str, str]
    date: str
    workloads: Mapping[str, Workload]
    runs: tuple[Run, ...]
    idle: tuple[Mapping[str, Any], ...]
    loads: tuple[Mapping[str, Any], ...]
    latency: tuple[Mapping[str, Any], ...]
    recovery: tuple[Mapping[str, Any], ...]
    groups: tuple[Mapping[str, Any], ...]
    quiet: tuple[Mapping[str, Any], ...]
    losses: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, path: Path = RESULTS) -> Self:
        """From the file that ``make bench`` writes. Raises UnpublishableError."""
        return cls.of(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From that file's content. Raises UnpublishableError where its rows are not of one unchanged commit."""
        workloads = {
            name: Workload(**{key: one[key] for key in Workload.__slots__ if key in one})
            for name, one in sorted(document["workloads"].items())
        }
        runs = tuple(_run(one, workloads[one["workload"]]) for one in document["runs"])
        others = {name: tuple(document.get(name, ())) for name in OTHERS}
        invocations = document["invocations"]
        commit, first = _one_commit(invocations), invocations[0]
        kernels = tuple(dict.fromkeys(one["machine"]["kernel"] for one in invocations))
        date = first["started"][:10]
        return cls(commit, first["machine"], kernels, first["versions"], date, workloads, runs, **others)

    @property
    def counted_latency(self) -> tuple[Mapping[str, Any], ...]:
        """The rounds of latency in which each record arrived."""
        return tuple(entry for entry in self.latency if latency_dropped(entry) is None)

    @property
    def counted_recovery(self) -> tuple[Mapping[str, Any], ...]:
        """The rounds of recovery in which each record arrived, and of an exactly-once stream only once."""
        return tuple(entry for entry in self.recovery if recovery_dropped(entry) is None)

    def of_groups(self, copier: str, figure: str) -> dict[int, float]:
        """One figure of its copying of groups' positions at the interval that all have, by round."""
        return {
            one["round"]: one[figure]
            for one in self.groups
            if one["copier"] == copier and one["interval_ms"] == _GROUPS_MS and not one.get("failed")
        }

    def of_copier(self, workload: str, copier: str) -> list[Run]:
        """Its runs that count, by round."""
        found = [run for run in self.runs if (run.workload, run.copier) == (workload, copier) and run.dropped is None]
        return sorted(found, key=lambda run: run.round)

    def values(self, workload: str, copier: str, figure: Callable[[Run], float]) -> dict[int, float]:
        """One figure of its runs, by round."""
        return {run.round: figure(run) for run in self.of_copier(workload, copier)}


def recovery_dropped(entry: Mapping[str, Any]) -> str | None:
    """Why a round of recovery does not count; None where it does."""
    if entry.get("failed"):
        return f"failed: {entry['failed']}"
    if entry["drained"] is None:
        return "it had not caught up when its time was over"
    kinds = ("missing",) if entry["copier"] in AT_LEAST_ONCE else ("missing", "doubled")
    wrong = [f"{entry[key]:,.0f} records were {key}" for key in kinds if entry[key]]
    return " and ".join(wrong) or None


def latency_dropped(entry: Mapping[str, Any]) -> str | None:
    """Why a round of latency does not count; None where it does."""
    if entry.get("failed"):
        return f"failed: {entry['failed']}"
    return f"{entry['missing']:,.0f} records had not arrived at its end" if entry["missing"] else None


def _one_commit(invocations: Sequence[Mapping[str, Any]]) -> str:
    commits = {one["commit"] for one in invocations}
    if len(commits) != 1 or not all(one["clean"] for one in invocations):
        found = ", ".join(f"{one['commit'][:12]}{'' if one['clean'] else ' with changed files'}" for one in invocations)
        msg = f"rows of one unchanged commit can be published, and these are of {found}: measure again, on one commit"
        raise UnpublishableError(msg)
    (commit,) = commits
    return str(commit)


def _run(one: Mapping[str, Any], workload: Workload) -> Run:
    own: dict[str, Any] = {key: one.get(key) for key in Run.__slots__ if key != "bytes"}
    return Run(**own, bytes=workload.bytes * (one["records"] or 0) / workload.records)
