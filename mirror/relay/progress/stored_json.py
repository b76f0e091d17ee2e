"""What brokers keep for a flow, as JSON: committed metadata and notes. Anybody may have written there. Pure.

Whatever it holds, reading it ends in values that the rest of the program can compute with and print, or in nothing.
"""

from __future__ import annotations

import json
from typing import Any, Final

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no later time has a date."""
_INT64_MAX: Final = 2**63 - 1


def parse_object(data: str | bytes | None) -> dict[str, Any]:
    """The JSON object in ``data``; empty where there is none, or it cannot be read.

    Brackets within brackets end in a RecursionError, bytes that are no UTF-8 in a UnicodeDecodeError (a ValueError).
    """
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text(value: object) -> str:
    """``value`` where it is a text that can be written out again (half of a surrogate pair cannot); else empty."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ""
    return value


def number(value: object, most: int = _INT64_MAX) -> int | None:
    """``value`` where it is an integer from 0 to ``most``, else None. ``1e400`` is no integer, nor are NaN and true."""
    return value if type(value) is int and 0 <= value <= most else None


def time_ms(value: object) -> int | None:
    """``value`` where it is a time, in ms since 1970, that has a date; else None."""
    return number(value, _LAST_MS)
