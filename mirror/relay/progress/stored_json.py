"""Reads the JSON that brokers store for a flow: metadata of committed offsets, and progress records. Pure.

Other programs may have written there. Whatever is stored, reading it returns values that the rest of the program can
compute with and print, or nothing.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from mirror.wire.integers import INT64_MAX

_MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no later time has a date."""


def parse_object(data: str | bytes | None) -> dict[str, Any]:
    """Return the JSON object in ``data``; empty if there is none, or it cannot be parsed."""
    try:
        parsed = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        # Invalid UTF-8 raises UnicodeDecodeError, a ValueError; deeply nested brackets raise RecursionError.
        return {}
    return parsed if isinstance(parsed, dict) else {}


def text(value: object) -> str:
    """Return ``value`` if it is a string that can be encoded (half of a surrogate pair cannot); otherwise ``""``."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ""
    return value


def number(value: object, maximum: int = INT64_MAX) -> int | None:
    """Return ``value`` if it is an integer from 0 to ``maximum``, else None. ``1e400``, NaN and true are not."""
    return value if type(value) is int and 0 <= value <= maximum else None


def time_ms(value: object) -> int | None:
    """Return ``value`` if it is a time, in ms since 1970, that has a date; else None."""
    return number(value, _MAX_TIME_MS)


def topic_id(value: str) -> uuid.UUID | None:
    """Return ``value`` as a topic id; None if it is not a UUID."""
    try:
        return uuid.UUID(value)
    except ValueError:
        return None
