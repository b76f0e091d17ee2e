"""Trace and span ids (W3C Trace Context), derived from the names of what they identify. Pure.

The planner, the tasks and the driver are processes that share no memory. Each derives the same ids from flow, run and
period, so that the spans that they export separately form one tree. A span that is exported twice, because it is not
known whether the first export succeeded, has the same id both times.
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
    """The ids of a trace (128 bits) and of a span in it (64 bits), neither zero."""

    trace: int
    span: int

    def __str__(self) -> str:
        """Return the trace parent: ``00-<trace>-<span>-01``."""
        return f"00-{self.trace:032x}-{self.span:016x}-{_SAMPLED}"

    @property
    def trace_hex(self) -> str:
        """The trace id as 32 hexadecimal digits."""
        return f"{self.trace:032x}"

    @property
    def span_hex(self) -> str:
        """The span id as 16 hexadecimal digits."""
        return f"{self.span:016x}"

    @classmethod
    def parse(cls, text: str) -> SpanId | None:
        """Return the ids in a trace parent, or None if ``text`` is not a valid one."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        parsed = cls(int(match[1], 16), int(match[2], 16))
        return parsed if parsed.trace and parsed.span else None

    def derive(self, *names: object) -> SpanId:
        """Return the id of the span of the same trace that has these ``names``."""
        return SpanId(self.trace, _hash(8, f"{self.trace:032x}", *names))


def period_id(flow: str, run: str, period: int) -> SpanId:
    """Return the id of a period's root span; ``run`` is the name of its folder in the ledger."""
    trace = _hash(16, flow, run, period)
    return SpanId(trace, _hash(8, f"{trace:032x}", "period"))


def plan_id(period: SpanId) -> SpanId:
    """Return the id of the span for the planning of a period."""
    return period.derive("plan")


def task_id(period: SpanId, task: int, attempt: int) -> SpanId:
    """Return the id of the span for one attempt of a task."""
    return period.derive("task", task, attempt)


def partition_id(period: SpanId, topic: str, partition: int, attempt: int) -> SpanId:
    """Return the id of the span for a source partition in one attempt of its task."""
    return period.derive("partition", topic, partition, attempt)


def subspan_id(partition: SpanId, name: str, began_ms: int) -> SpanId:
    """Return the id of a span below a partition's: an attempt, or the catch-up."""
    return partition.derive(name, began_ms)


def _hash(size: int, *names: object) -> int:
    text = "\0".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest()) or 1
