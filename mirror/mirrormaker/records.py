"""The bytes of MirrorMaker 2's records, in Kafka's protocol types. Pure.

Its readers skip a record that they cannot parse, and so do these. Strings are never null, and values never are either:
``MirrorClient`` fails at a tombstone.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mirror.errors import InvalidArgument

_VERSION: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_WRITTEN_VERSION: Final = 0
"""The only one there is. Java's readers check it in an assertion only, so a reader may meet others."""


class Heartbeat(NamedTuple):
    """Shows that records get from ``source`` to ``target``. It is written to ``target``."""

    source: str
    target: str
    timestamp_ms: int
    """In ms since 1970."""

    def key(self) -> bytes:
        """Return the record's key. Raises InvalidArgument for a name that is too long."""
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        """Return the record's value."""
        return _VERSION.pack(_WRITTEN_VERSION) + _TIMESTAMP.pack(self.timestamp_ms)


def _string(text: str) -> bytes:
    data = text.encode()
    try:
        return _LENGTH.pack(len(data)) + data
    except struct.error:
        msg = f"a string of MirrorMaker 2's records takes at most 32767 bytes, not {len(data)}"
        raise InvalidArgument(msg) from None
