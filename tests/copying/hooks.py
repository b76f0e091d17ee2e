"""A flow's own function, as a user writes one."""

from __future__ import annotations

from mirror.client import Record


def upper_without_odd(record: Record) -> Record | None:
    """Values in capitals; records at odd offsets are left out."""
    if record.offset % 2:
        return None
    return record.replace(value=None if record.value is None else record.value.upper())
