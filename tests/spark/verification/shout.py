"""A transform, which tests name in a configuration."""

from __future__ import annotations

from mirror.wire.decode import Record


def shout(record: Record) -> Record:
    return record.replace(value=(record.value or b"") + b"!")
