"""A transform function, as a user writes it."""

from __future__ import annotations

from mirror.client import Record


def upper_without_odd(record: Record) -> Record | None:
    """Return the record with its value in upper case; None for records at odd offsets, which drops them."""
    if record.offset % 2:
        return None
    return record.replace(value=None if record.value is None else record.value.upper())
