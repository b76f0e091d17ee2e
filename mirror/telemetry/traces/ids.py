"""Names of traces and spans (W3C Trace Context), derived from what they are about. Pure.

The planner, the tasks and the driver's script are processes that share no memory: each works out the same ids from
flow, run and epoch, so that what they export by themselves is one tree; and who exports a span again, since nobody
knows whether it got through the first time, names the same span.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_SAMPLED: Final = "01"


@dataclass(frozen=True, slots=True)
class SpanId:
    """A span's place: its trace (128 bits) and itself (64 bits), neither zero."""

    trace: int
    span: int

    def __str__(self) -> str:
        """As a trace parent: ``00-<trace>-<span>-01``."""
        return f"00-{self.trace:032x}-{self.span:016x}-{_SAMPLED}"

    @property
    def trace_hex(self) -> str:
        """The trace as people and stores write it."""
        return f"{self.trace:032x}"

    @property
    def span_hex(self) -> str:
        """The span as people and stores write it."""
        return f"{self.span:016x}"

    @classmethod
    def parse(cls, text: str) -> SpanId | None:
        """From a trace parent; None where it is none."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        found = cls(int(match[1], 16), int(match[2], 16))
        return found if found.trace and found.span else None

    def child(self, *what: object) -> SpanId:
        """A span of the same trace, named by what it is about."""
        return SpanId(self.trace, _hash(8, f"{self.trace:032x}", *what))


def epoch_id(flow: str, run: str, epoch: int) -> SpanId:
    """The root of an epoch's trace; ``run`` is the name of its folder in the ledger."""
    trace = _hash(16, flow, run, epoch)
    return SpanId(trace, _hash(8, f"{trace:032x}", "epoch"))


def plan_id(epoch: SpanId) -> SpanId:
    """The planning of an epoch."""
    return epoch.child("plan")


def task_id(epoch: SpanId, task: int, attempt: int) -> SpanId:
    """One attempt of one task."""
    return epoch.child("task", task, attempt)


def partition_id(epoch: SpanId, topic: str, partition: int, attempt: int) -> SpanId:
    """One source partition in one attempt of its task."""
    return epoch.child("partition", topic, partition, attempt)


def part_id(partition: SpanId, name: str, began_ms: int) -> SpanId:
    """A part of a partition's copy: an attempt, its catch-up."""
    return partition.child(name, began_ms)


def _hash(size: int, *what: object) -> int:
    text = "\0".join(str(one) for one in what)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest()) or 1
