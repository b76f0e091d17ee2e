"""An enumeration that keeps values which this version does not know."""

from __future__ import annotations

import enum


class OpenEnum(enum.IntEnum):
    """Numbers that newer brokers may add to: one that this client does not know is UNKNOWN, 0."""

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum:
        del value
        return cls(0)
