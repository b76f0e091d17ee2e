"""Asks a broker which brokers of its cluster are alive, to find out whether the cluster is ready.

A broker opens its port before it joins the cluster, so an open port does not show readiness. The Metadata response of a
KRaft broker lists the registered, unfenced brokers. This module encodes the oldest version of the request itself,
because the sandbox must not depend on the client core that it tests.
"""

from __future__ import annotations

import socket
import struct

from mirror.sandbox.ports import HOST

_METADATA = 3
_REQUEST = struct.pack(">hhihi", _METADATA, 0, 1, -1, 0)  # key, version, correlation id, no client id, no topics named
_MAX_RESPONSE_BYTES = 16 << 20


def alive_brokers(port: int, timeout_s: float = 2.0) -> frozenset[int]:
    """Return the ids of the live brokers by the broker at ``port``; empty if it does not respond in ``timeout_s``."""
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 8 <= size <= _MAX_RESPONSE_BYTES:  # noqa: PLR2004  at least a correlation id and a count
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


def _broker_ids(response: bytes) -> frozenset[int]:
    (count,) = struct.unpack_from(">i", response, 4)
    ids, at = set(), 8
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", response, at)
        ids.add(node_id)
        at += 4 + 2 + host_size + 4
    return frozenset(ids)
