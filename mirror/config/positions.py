"""Positions in a topic at which a flow begins and ends, from its keys ``start``, ``from`` and ``until``."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from mirror.wire.integers import INT64_MAX

_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
_TIMESTAMP: Final = '"2026-01-31T00:00:00Z"'
POSITION_HELP: Final = f'a timestamp such as {_TIMESTAMP}, an offset as a whole number from 0, or "" for none'


@dataclass(frozen=True, slots=True)
class Position:
    """A position in every partition of a flow: either a time or an offset; the other is None."""

    timestamp_ms: int | None = None
    """In ms since 1970."""
    offset: int | None = None

    @classmethod
    def parse(cls, value: str | int) -> Position | None:
        """Return the position for a checked value; None for an empty text."""
        if isinstance(value, int):
            return cls(offset=value)
        return cls(timestamp_ms=milliseconds(value)) if value else None

    def at_or_before(self, other: Position) -> bool:
        """Return whether this position is at or before ``other``; False if one is a time and the other an offset."""
        if self.timestamp_ms is not None and other.timestamp_ms is not None:
            return self.timestamp_ms <= other.timestamp_ms
        return self.offset is not None and other.offset is not None and self.offset <= other.offset


def milliseconds(timestamp: str) -> int:
    """Return an ISO 8601 timestamp, with its offset from UTC, in ms since 1970."""
    return (dt.datetime.fromisoformat(timestamp) - _EPOCH) // dt.timedelta(milliseconds=1)


def date_time_as_text(value: object) -> object:
    """Return TOML's own date-times as text; every other value stays as it is, for the type check."""
    return value.isoformat() if isinstance(value, dt.datetime) else value


def check_start(value: str) -> str:
    """Return the value of ``start`` if it is valid. Raises ValueError."""
    return value if value in {"earliest", "latest"} else _timestamp(value, f'"earliest", "latest" or {_a(_TIMESTAMP)}')


def check_position(value: object) -> object:
    """Return the value of ``from`` or ``until`` if it is valid. Raises ValueError.

    It is checked here as a whole: pydantic would report two problems, one for each valid type.
    """
    value = date_time_as_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX:
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be {POSITION_HELP}")  # noqa: TRY004 - as pydantic wants it
    return _timestamp(value, POSITION_HELP) if value else value


def _a(timestamp: str) -> str:
    return f"a timestamp such as {timestamp}"


def _timestamp(value: str, allowed: str) -> str:
    try:
        moment = dt.datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"must be {allowed}") from None
    if moment.tzinfo is None:
        raise ValueError(f'a timestamp needs its offset from UTC, such as {_TIMESTAMP} or "...+01:00"')
    if moment.timestamp() < 0:  # Brokers read negative timestamps as -1 latest and -2 earliest.
        raise ValueError("a timestamp must not be before 1970")
    return value
