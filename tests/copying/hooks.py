"""A flow's own function, as a user writes one."""

from __future__ import annotations

from mirror.wire.decode import Record


def upper_without_odd(record: Record) -> Record | None:
    """Values in capitals; records at odd offsets are left out."""
    if record.offset % 2:
        return None
    return record._replace(value=None if record.value is None else bytes(record.value).upper())
