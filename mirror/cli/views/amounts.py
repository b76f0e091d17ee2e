"""Times and rates as the tables show them. Pure."""

from __future__ import annotations

import math
from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_MIN_WITHOUT_FRACTION: Final = 10
"""Smaller numbers are shown with one decimal place."""
UNKNOWN: Final = "-"


def duration(seconds: float | None) -> str:
    """Format a time with two or three digits: ``4.2 s``, ``35 min``, ``6.9 d``, ``never``, ``-`` if it is unknown."""
    if seconds is None:
        return UNKNOWN
    if math.isinf(seconds):
        return "never"
    size = abs(seconds)
    # At least two of a unit: "90 s" is more precise than "2 min".
    count, unit = next(((size / unit_s, name) for unit_s, name in _UNITS if size >= 2 * unit_s), (size, "s"))
    sign = "-" if seconds < 0 else ""
    return f"{sign}{count:.0f} {unit}" if count >= _MIN_WITHOUT_FRACTION or not count else f"{sign}{count:.1f} {unit}"


def rate(per_s: float | None) -> str:
    """Format records per second: ``0``, ``0.3``, ``12``, ``1,234``; ``-`` if it is unknown."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:,.0f}" if per_s >= _MIN_WITHOUT_FRACTION or not per_s else f"{per_s:.1f}"


def ago(time_ms: int, now_ms: int) -> str:
    """Return how long ago a time is (ms since 1970), in whole units."""
    seconds = max(0, (now_ms - time_ms) // 1000)
    for unit_s, unit in _UNITS:
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s} {unit} ago"
    return f"{seconds} s ago"
