"""How much memory a worker process takes for a copy, as the kernel saw it (Linux): no sample misses a peak."""

from __future__ import annotations

import multiprocessing
import re
import resource
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from mirror.client import Admin, Consumer, Producer
from mirror.relay.copy import copy_ranges
from mirror.relay.policy import CopyPolicy
from mirror.relay.ranges import Range

KILOBYTE: Final = 1024
PER_PARTITION: Final = 50 * KILOBYTE
_PROCESSES: Final = multiprocessing.get_context("spawn")
"""Not forked: a child would begin with all that its parent holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to copy, with which options.

    ``largest`` is the largest batch: what is fetched, and what is held, may each be over by one.
    """

    ranges: list[Range]
    source: dict[str, Any]
    target: dict[str, Any]
    policy: CopyPolicy = field(default_factory=CopyPolicy)
    largest: int = 0

    @property
    def allowed(self) -> int:
        """Bytes beyond what a process takes that has made its clients."""
        bounds = int(self.source["fetch.max.bytes"]) + int(self.target["buffer.memory"])
        return bounds + 2 * self.largest + PER_PARTITION * len(self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Resident bytes ``before`` and at the ``peak``; what came of it, and the seconds of CPU that it took."""

    before: int
    peak: int
    allowed: int
    copied: int
    cpu_s: float
    outcomes: list[str]
    errors: list[str]


def measure(order: Order) -> Told:
    """In a process of its own."""
    ours, theirs = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_work, args=(order, theirs))
    process.start()
    theirs.close()
    try:
        told: Told = ours.recv()
    finally:
        process.kill()
        process.join()
    return told


def _work(order: Order, line: Connection[Any, Any]) -> None:
    for make, options in ((Consumer, order.source), (Producer, order.target), (Admin, None)):
        servers = {"bootstrap.servers": order.source["bootstrap.servers"]}
        with make(servers if options is None else {**servers, **options}) as client:
            if isinstance(client, Admin):
                client.list_topics()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here on
    began = resource.getrusage(resource.RUSAGE_SELF)
    results = copy_ranges(order.ranges, source_options=order.source, target_options=order.target, policy=order.policy)
    used = resource.getrusage(resource.RUSAGE_SELF)
    line.send(
        Told(
            before=before,
            peak=_status("VmHWM"),
            allowed=order.allowed,
            copied=sum(one.bytes for one in results),
            cpu_s=used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime,
            outcomes=[one.outcome.value for one in results],
            errors=[one.error for one in results if one.error],
        )
    )


def _status(name: str) -> int:
    """Bytes, of a line of /proc/self/status."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * KILOBYTE
