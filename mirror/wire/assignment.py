"""What a member of a classic consumer group was assigned: bytes that the group's leader wrote, opaque to brokers."""

from __future__ import annotations

import struct
from typing import Final

from mirror.errors import ProtocolError

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Topic -> partitions, of any version (ConsumerProtocolAssignment: later ones only add at the end).

    Empty bytes are an empty assignment: a group that rebalances has none. Raises ProtocolError for other bytes.
    """
    if not data:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    try:
        (count,), offset = _INT32.unpack_from(data, _INT16.size), _INT16.size + _INT32.size
        for _ in range(count):
            (length,) = _INT16.unpack_from(data, offset)
            offset += _INT16.size
            topic = data[offset : offset + length].decode()
            offset += length
            (partitions,) = _INT32.unpack_from(data, offset)
            offset += _INT32.size
            found[topic] = struct.unpack_from(f">{partitions}i", data, offset)
            offset += partitions * _INT32.size
    except (struct.error, ValueError) as error:
        msg = f"an assignment of {len(data)} bytes does not follow the consumer protocol"
        raise ProtocolError(msg) from error
    return found
