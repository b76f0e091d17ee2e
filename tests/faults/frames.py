"""Reads and writes Kafka frames for the proxy, with kio alone and not with the code under test."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

_HEADER = struct.Struct(">hhi")
_CLIENT_ID = struct.Struct(">h")
_SIZE = _HEADER.size + _CLIENT_ID.size


@dataclass(slots=True, eq=False)
class Seen:
    """A request that the proxy has received. ``frame`` does not include its size.

    Times are monotonic ms. ``answered_ms`` is when the proxy forwarded the response, just before its last byte (-1: not
    yet). The time from ``at_ms`` to ``answered_ms`` is the broker's; the time after that is the client's.
    """

    at_ms: float
    broker: int
    connection: int
    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    answered_ms: float = -1

    @property
    def client_id(self) -> str:
        """The client id of the request's header; empty where there is none, or where the frame was not kept."""
        (size,) = _CLIENT_ID.unpack_from(self.frame, _HEADER.size) if len(self.frame) >= _SIZE else (0,)
        return self.frame[_SIZE : _SIZE + max(size, 0)].decode(errors="replace")

    def body(self) -> Any:
        """Return the body as kio's class."""
        schema = load_request_schema(self.api_key, self.version)
        _, size = entity_reader(schema.__header_schema__)(memoryview(self.frame), 0)
        return entity_reader(schema)(memoryview(self.frame), size)[0]


def read_header(frame: bytes) -> tuple[int, int, int]:
    """Return (API key, version, correlation id) of a request frame."""
    key, version, correlation_id = _HEADER.unpack_from(frame)
    return key, version, correlation_id


def read_answer(request: Seen, frame: bytes) -> Any:
    """Return the body of the response to ``request`` as kio's class."""
    schema = load_response_schema(request.api_key, request.version)
    _, size = entity_reader(schema.__header_schema__)(memoryview(frame), 0)
    return entity_reader(schema)(memoryview(frame), size)[0]


def write_answer(request: Seen, body: Any) -> bytes:
    """Return the frame of a response to ``request`` with this body."""
    schema = load_response_schema(request.api_key, request.version)
    out = io.BytesIO()
    out.write(struct.pack(">i", request.correlation_id))
    if schema.__header_schema__.__flexible__:
        out.write(b"\0")
    entity_writer(schema)(out, body)
    return out.getvalue()
