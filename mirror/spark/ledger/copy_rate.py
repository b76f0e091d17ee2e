"""The rate at which a flow can be copied, for forecasts. Pure.

A stream that has caught up copies as fast as records are produced, which says nothing about how fast it could. So the
rate is that of the fastest part of late: of a run, or of a period of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.ranges import RangeResult

MIN_BYTES: Final = 8 * 1024 * 1024
"""Less is copied in so short a time that the start of the attempts decides."""
KEPT_MS: Final = 7 * 86_400_000
"""A cluster changes: then a slower part replaces the fastest one."""


RUN_START_S: Final = 13.0
"""The time of a run that copies a few records, measured on a machine with two cores: most of it is Spark's start."""


@dataclass(frozen=True, slots=True)
class CopyRate:
    """How much was copied, in how long, and when (ms since 1970)."""

    bytes: int
    seconds: float
    time_ms: int

    @property
    def bytes_per_second(self) -> float:
        """The rate."""
        return self.bytes / max(self.seconds, 0.001)


def faster_rate(before: CopyRate | None, results: Iterable[RangeResult], time_ms: int) -> CopyRate | None:
    """Return the rate of the ``results`` of a part that ended at ``time_ms`` if it replaces the one ``before``.

    The time is that of the longest copy, as they are copied in parallel. None: too little was copied to say anything.
    """
    copied = [result for result in results if result.bytes]
    size = sum(result.bytes for result in copied)
    rate = CopyRate(size, max((result.seconds for result in copied), default=0.0), time_ms)
    if size < MIN_BYTES or rate.seconds <= 0:
        return None
    if before is None or time_ms - before.time_ms > KEPT_MS or rate.bytes_per_second >= before.bytes_per_second:
        return rate
    return None
