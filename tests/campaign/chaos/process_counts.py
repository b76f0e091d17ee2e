"""Threads, sockets and children of processes by role, and which of them have become more than before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import psutil


@dataclass(frozen=True, slots=True)
class Count:
    """The counts of one process, or the maxima of several."""

    threads: int = 0
    sockets: int = 0
    children: int = 0

    def most(self, other: Count) -> Count:
        """Return the maxima of both."""
        return Count(*(max(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))


Counts = Mapping[str, Count]
"""By the role of the processes."""

ALLOWED: Final = Count(threads=6, sockets=24, children=1)
"""What a process may have more than before the faults. Pools of connections grow while that helps: up to eight to each
of three brokers for Produce requests, and those that are set apart."""


ALLOWED_JVM: Final = Count(threads=32, sockets=24, children=8)
"""The same of Spark's JVMs: they have three threads for each Python process. An executor has another daemon, and other
workers, after one was killed."""
CACHED: Final = "block-manager-"
"""How the names of threads of two of Spark's pools begin. The pools have up to 128 threads each: they grow by dozens
when the data of many epochs is removed at once, and shrink after a minute without work."""
JVMS: Final = frozenset({"driver's JVM", "executor"})


def count(process: psutil.Process) -> Count:
    """Return the present counts; psutil.Error where the process has ended."""
    with process.oneshot():
        return Count(_threads(process), len(process.net_connections(kind="inet")), len(process.children()))


def _threads(process: psutil.Process) -> int:
    if process.name() != "java":
        return int(process.num_threads())
    names = list[str]()
    for thread in process.threads():
        with contextlib.suppress(OSError):  # The thread has ended.
            names.append(Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8"))
    return sum(not name.startswith(CACHED) for name in names)


def counted(roles: Iterable[tuple[str, psutil.Process]]) -> dict[str, Count]:
    """Return the maxima of each role, without processes that have ended."""
    found = dict[str, Count]()
    for role, process in roles:
        with contextlib.suppress(psutil.Error):
            found[role] = count(process).most(found.get(role, Count()))
    return found


def most(*several: Counts) -> dict[str, Count]:
    """Return the maxima of each role in any of ``several``."""
    found = dict[str, Count]()
    for counts in several:
        for role, counted_once in counts.items():
            found[role] = counted_once.most(found.get(role, Count()))
    return found


def excess(before: Counts, after: Counts, allowed: Count = ALLOWED, of_jvms: Count = ALLOWED_JVM) -> list[str]:
    """Return a line for each role that has more than it had and is allowed, or that did not exist."""
    wrong = [f"{role} was not there before" for role in after if role not in before]
    for role, now in after.items():
        for field in fields(now):
            had, has = getattr(before.get(role, now), field.name), getattr(now, field.name)
            if has > had + getattr(of_jvms if role in JVMS else allowed, field.name):
                wrong.append(f"{role} has {has} {field.name}, and had {had}")
    return wrong
