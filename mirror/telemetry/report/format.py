"""Formats numbers, sizes, times and partitions for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from rich.filesize import decimal

NONE: Final = "\u2013"
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: ``1 partition``, ``2,000 partitions``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def moment(time_ms: int) -> str:
    """Return a time as ``2026-01-31 12:00:00 UTC``."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(ms: float) -> str:
    """Return a duration as ``0.4 s``, ``12.3 s``, ``3 min 5 s``, ``2 h 10 min`` or ``3 d 4 h``."""
    ms = max(0, ms)
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    for unit, name, smaller, small_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        if ms >= unit:
            rest = int(ms % unit // smaller)
            return f"{int(ms // unit)} {name}" + (f" {rest} {small_name}" if rest else "")
    return ""


def size(count: float) -> str:
    """Return a number of bytes as ``1.5 MB``."""
    return decimal(int(count))


def rate(count: float, ms: float) -> str:
    """Return a rate as ``1.5 MB/s``, or a dash if there is none."""
    return f"{size(count * _SECOND / ms)}/s" if ms > 0 and count else NONE


def listed(counts: dict[str, int]) -> str:
    """Return counts as ``small batches 1,200, offset gaps 3``, the most frequent first."""
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{name} {count:,}" for name, count in ranked)


def link(flow: str, topic: str, partition: int) -> str:
    """Return the URL fragment that opens a partition. The topic's name may contain any character."""
    return f"#{quote(flow, safe='')}:{quote(topic, safe='')}-{partition}"
