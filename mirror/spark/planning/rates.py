"""The rate at which a stream copies when it has something to catch up with. Pure.

A stream that has caught up copies as fast as records are produced, which says nothing about how fast it could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.relay.model.timeline import SpanName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.ranges import RangeResult

MIN_BYTES: Final = 8 * 1024 * 1024
"""Less is copied in so short a time that the start of the attempts decides."""


class CopyRate(NamedTuple):
    """How much was copied, and in how long."""

    bytes: float
    seconds: float


def catch_up_rate(results: Iterable[RangeResult]) -> CopyRate | None:
    """Return what the partitions of an epoch copied until they had caught up, or without catching up.

    The time is that of the longest one, as they are copied in parallel. None if it was too little to say anything.
    """
    found = [rate for result in results if (rate := _of_partition(result)) is not None]
    size = sum(rate.bytes for rate in found)
    seconds = max((rate.seconds for rate in found), default=0.0)
    return CopyRate(size, seconds) if size >= MIN_BYTES and seconds > 0 else None


def _of_partition(result: RangeResult) -> CopyRate | None:
    timeline = result.timeline
    if timeline is None:
        return None
    for span in timeline.spans:
        if span["name"] == SpanName.CATCH_UP.value:
            return CopyRate(span["bytes"], (span["ended_ms"] - span["began_ms"]) / 1000)
    if timeline.lag_before and timeline.lag_after and result.bytes:
        return CopyRate(result.bytes, result.seconds)
    return None
