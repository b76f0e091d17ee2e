"""Asks a broker which brokers of its cluster are alive: the one question that tells readiness.

A broker opens its port before it takes part in the cluster, so a port that answers is not enough; a KRaft broker's
Metadata answer lists the registered, unfenced ones. The oldest version of the request is written by hand here, since
the sandbox stands beside the client core that it tests.
"""

from __future__ import annotations

import socket
import struct

from mirror.sandbox.ports import HOST

_METADATA = 3
_REQUEST = struct.pack(">hhihi", _METADATA, 0, 1, -1, 0)  # key, version, correlation id, no client id, no topics named
_LARGEST = 16 << 20


def alive_brokers(port: int, timeout_s: float = 2.0) -> frozenset[int]:
    """The ids of the brokers that the one at ``port`` knows as alive; empty if it does not answer in ``timeout_s``."""
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 8 <= size <= _LARGEST:  # noqa: PLR2004  a correlation id and a count, at the least
                return frozenset()
            return _broker_ids(_read(connection, size))
    except (OSError, EOFError, struct.error):
        return frozenset()


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _broker_ids(answer: bytes) -> frozenset[int]:
    (count,) = struct.unpack_from(">i", answer, 4)
    ids, at = set(), 8
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", answer, at)
        ids.add(node_id)
        at += 4 + 2 + host_size + 4
    return frozenset(ids)
