"""Decode the assignment of a classic consumer group's member. The group's leader writes it; brokers do not read it."""

from __future__ import annotations

import struct
from typing import Final

from mirror.errors import ProtocolError

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Return the assigned partitions by topic, from a ConsumerProtocolAssignment of any version.

    Later versions only append fields, which are ignored. Empty bytes are an empty assignment: members have none while
    the group rebalances. Raises ProtocolError if the bytes do not follow the format.
    """
    if not data:
        return {}
    assignment: dict[str, tuple[int, ...]] = {}
    try:
        (count,), offset = _INT32.unpack_from(data, _INT16.size), _INT16.size + _INT32.size
        for _ in range(count):
            (length,) = _INT16.unpack_from(data, offset)
            offset += _INT16.size
            topic = data[offset : offset + length].decode()
            offset += length
            (partitions,) = _INT32.unpack_from(data, offset)
            offset += _INT32.size
            assignment[topic] = struct.unpack_from(f">{partitions}i", data, offset)
            offset += partitions * _INT32.size
    except (struct.error, ValueError) as error:
        msg = f"an assignment of {len(data)} bytes does not follow the consumer protocol"
        raise ProtocolError(msg) from error
    return assignment
