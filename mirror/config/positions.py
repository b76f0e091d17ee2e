"""Where in a topic a flow begins and ends, as its keys ``start``, ``from`` and ``until`` say it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

_INT64_MAX: Final = 2**63 - 1
_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
_TIMESTAMP: Final = '"2026-01-31T00:00:00Z"'
POSITION_HELP: Final = f'a timestamp such as {_TIMESTAMP}, an offset as a whole number from 0, or "" for none'


@dataclass(frozen=True, slots=True)
class Position:
    """One of both: ``timestamp_ms`` (ms since 1970), or ``offset``, which counts in every partition of the flow."""

    timestamp_ms: int | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, value: str | int) -> Position | None:
        """From a value that was checked; None where it says nothing."""
        if isinstance(value, int):
            return cls(offset=value)
        return cls(timestamp_ms=milliseconds(value)) if value else None

    def at_or_before(self, other: Position) -> bool:
        """Whether this point is at or before ``other``, as far as that can be said: only of two of a kind."""
        if self.timestamp_ms is not None and other.timestamp_ms is not None:
            return self.timestamp_ms <= other.timestamp_ms
        return self.offset is not None and other.offset is not None and self.offset <= other.offset


def milliseconds(timestamp: str) -> int:
    """ISO 8601 with its offset from UTC -> ms since 1970."""
    return (dt.datetime.fromisoformat(timestamp) - _EPOCH) // dt.timedelta(milliseconds=1)


def date_time_as_text(value: object) -> object:
    """TOML's own date-times become text, everything else stays as it is for the type check."""
    return value.isoformat() if isinstance(value, dt.datetime) else value


def check_start(value: str) -> str:
    """``start``, checked. Raises ValueError."""
    return value if value in {"earliest", "latest"} else _timestamp(value, f'"earliest", "latest" or {_a(_TIMESTAMP)}')


def check_position(value: object) -> object:
    """``from`` or ``until``, checked whole: two types at once would be told as two problems. Raises ValueError."""
    value = date_time_as_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT64_MAX:
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
    if moment.timestamp() < 0:  # negative timestamps mean something else to a broker: -1 latest, -2 earliest
        raise ValueError("a timestamp must not be before 1970")
    return value
