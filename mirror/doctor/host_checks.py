"""Checks of this host: Java, Spark, user, name, memory, cores, files and disks. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mirror import causes
from mirror.causes import Cause
from mirror.doctor.facts import HostFacts
from mirror.doctor.findings import HOST, Finding, Severity, of_cause, of_line

_GB: Final = 1_000_000_000
LEAST_FREE_BYTES: Final = _GB
_JVM_BYTES: Final = 1_400_000_000
"""Spark's JVM: a heap of 1 GB at most (``spark.driver.memory``), and what it takes beside that."""
IMPORTS_BYTES: Final = 100_000_000
"""A worker process after its imports."""
_FILES_OF_WORKER: Final = 200


@dataclass(frozen=True, slots=True)
class Needs:
    """What the flows of a configuration need of a host."""

    worker_bytes: int
    """The memory of a worker process at most: that of the flow that needs most."""
    connections: int
    """What a worker process opens at most."""

    def memory_bytes(self, slots: int) -> int:
        """Return what Spark and the workers in ``slots`` need at most."""
        return _JVM_BYTES + slots * self.worker_bytes


def check_host(facts: HostFacts, needs: Needs) -> list[Finding]:
    """Return what is found, one line for each check."""
    return [one for check in _CHECKS for one in check(facts, needs)]


def _java(facts: HostFacts, _: Needs) -> Iterator[Finding]:
    if facts.java_error:
        severity = Severity.ERROR if facts.spark else Severity.NOTE
        yield of_line(severity, HOST, facts.java_error, causes.JAVA)
    else:
        yield _ok(facts.java)


def _spark(facts: HostFacts, _: Needs) -> Iterator[Finding]:
    if not facts.spark:
        # Without the extra, this host is one for the other commands.
        yield _of(Severity.NOTE, "PySpark is not installed", causes.SPARK)
    elif facts.release_warning:
        yield of_line(Severity.WARNING, HOST, facts.release_warning, causes.RELEASES)
    else:
        yield _ok(f"PySpark {facts.spark}")


def _user(facts: HostFacts, _: Needs) -> Iterator[Finding]:
    if not facts.has_name:
        yield _of(Severity.NOTE, f"user {facts.user_id} has no passwd entry", causes.USER_NAME)


def _name(facts: HostFacts, _: Needs) -> Iterator[Finding]:
    if facts.host_name_error:
        what = f"the host's own name {facts.host_name} is not found: {facts.host_name_error}"
        yield _of(Severity.WARNING, what, causes.OWN_NAME)


def slots_of(facts: HostFacts) -> int:
    """Return how many tasks Spark runs at once with a local master: Java counts parts of a core as one."""
    return facts.cores if facts.core_limit is None else max(1, min(facts.cores, math.ceil(facts.core_limit)))


def _cores(facts: HostFacts, _: Needs) -> Iterator[Finding]:
    limit = facts.core_limit
    if limit is not None and limit < facts.cores:
        severity = Severity.WARNING if limit < 1 else Severity.NOTE
        yield _of(severity, f"its container may use {limit:g} of {facts.cores} cores", causes.CORES)


def _memory(facts: HostFacts, needs: Needs) -> Iterator[Finding]:
    limits = [one for one in (facts.memory_bytes, facts.memory_limit) if one]
    if not limits:
        return
    there, slots = min(limits), slots_of(facts)
    needed = needs.memory_bytes(slots)
    if needed > there:
        what = f"{there / _GB:.1f} GB of memory, and {slots} tasks may need {needed / _GB:.1f} GB with Spark's JVM"
        yield _of(Severity.WARNING, what, causes.MEMORY)
    else:
        yield _ok(f"{there / _GB:.1f} GB of memory for {slots} tasks, which need {needed / _GB:.1f} GB at most")


def _files(facts: HostFacts, needs: Needs) -> Iterator[Finding]:
    soft, hard = facts.open_files
    if 0 <= hard < causes.LEAST_FILES:
        what = f"a process may open {hard:,} files, and needs up to {causes.LEAST_FILES:,}"
        yield _of(Severity.ERROR, what, causes.OPEN_FILES)
    needed = _FILES_OF_WORKER + needs.connections
    if 0 <= soft < needed:
        what = f"a process may open {soft:,} files, and a worker needs up to {needed:,}"
        yield _of(Severity.WARNING, what, causes.WORKER_FILES)


def _folders(facts: HostFacts, _: Needs) -> Iterator[Finding]:
    if facts.temporary_error:
        yield of_line(Severity.ERROR, HOST, facts.temporary_error, causes.TEMPORARY)
    for folder, free in facts.disks.items():
        if isinstance(free, str):
            yield _of(Severity.ERROR, f"{folder} cannot be written: {free}", causes.FOLDER)
        elif free < LEAST_FREE_BYTES:
            yield _of(Severity.WARNING, f"{folder} has {free / _GB:.2f} GB left", causes.DISK)


_CHECKS: Final[tuple[Callable[[HostFacts, Needs], Iterator[Finding]], ...]] = (
    _java,
    _spark,
    _user,
    _name,
    _cores,
    _memory,
    _files,
    _folders,
)


def _of(severity: Severity, what: str, cause: Cause) -> Finding:
    return of_cause(severity, HOST, what, cause)


def _ok(what: str) -> Finding:
    return Finding(Severity.OK, HOST, what)
