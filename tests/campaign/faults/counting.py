"""Threads, sockets and children of processes by what they are, and what they have more of than before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import psutil


@dataclass(frozen=True, slots=True)
class Count:
    """Of one process; or the most that any of several has."""

    threads: int = 0
    sockets: int = 0
    children: int = 0

    def most(self, other: Count) -> Count:
        """Of both, each by itself."""
        return Count(*(max(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)))


Counts = Mapping[str, Count]
"""By the process' role."""

ALLOWED: Final = Count(threads=6, sockets=24, children=1)
"""What may be there once more after harm. Pools of connections grow while that helps: to each of three brokers one of
eight for produces, and those set apart."""


ALLOWED_JVM: Final = Count(threads=32, sockets=24, children=8)
"""The same of Spark's processes: three threads stand by each Python process that it keeps. An executor has another
daemon, and its workers, after one was killed."""
CACHED: Final = "block-manager-"
"""How the names of two pools of Spark's begin, of up to 128 threads each: they grow by dozens when what many epochs
left behind is cleaned at once, and shrink after an idle minute."""
JVMS: Final = frozenset({"driver's JVM", "executor"})


def count(process: psutil.Process) -> Count:
    """Of now; psutil.Error where it has ended."""
    with process.oneshot():
        return Count(_threads(process), len(process.net_connections(kind="inet")), len(process.children()))


def _threads(process: psutil.Process) -> int:
    if process.name() != "java":
        return int(process.num_threads())
    names = list[str]()
    for each in process.threads():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append(Path(f"/proc/{process.pid}/task/{each.id}/comm").read_text(encoding="utf-8"))
    return sum(not name.startswith(CACHED) for name in names)


def counted(roles: Iterable[tuple[str, psutil.Process]]) -> dict[str, Count]:
    """The most of each role; those that end meanwhile are not counted."""
    found = dict[str, Count]()
    for role, process in roles:
        with contextlib.suppress(psutil.Error):
            found[role] = count(process).most(found.get(role, Count()))
    return found


def most(*several: Counts) -> dict[str, Count]:
    """Of each role, at any time."""
    found = dict[str, Count]()
    for each in several:
        for role, one in each.items():
            found[role] = one.most(found.get(role, Count()))
    return found


def excess(before: Counts, after: Counts, allowed: Count = ALLOWED, of_jvms: Count = ALLOWED_JVM) -> list[str]:
    """Where a role has more than it had and is allowed, or was not there at all."""
    wrong = [f"{role} was not there before" for role in after if role not in before]
    for role, one in after.items():
        for each in fields(one):
            was, now = getattr(before.get(role, one), each.name), getattr(one, each.name)
            if now > was + getattr(of_jvms if role in JVMS else allowed, each.name):
                wrong.append(f"{role} has {now} {each.name}, and had {was}")
    return wrong
