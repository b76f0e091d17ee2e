"""Kafka frames as the proxy reads and rewrites them: with kio alone, not with the code under test."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

_HEADER = struct.Struct(">hhi")


@dataclass(slots=True, eq=False)
class Seen:
    """One request that came to the proxy. ``frame`` is without its size.

    Times are monotonic ms. ``answered_ms`` is when its answer was handed on, just before its last byte (-1: not yet):
    what lies between the two is the broker's time, and what follows is the client's.
    """

    at_ms: float
    broker: int
    connection: int
    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    answered_ms: float = -1

    def body(self) -> Any:
        """As kio's class."""
        schema = load_request_schema(self.api_key, self.version)
        _, size = entity_reader(schema.__header_schema__)(memoryview(self.frame), 0)
        return entity_reader(schema)(memoryview(self.frame), size)[0]


def read_header(frame: bytes) -> tuple[int, int, int]:
    """(API key, version, correlation id) of a request frame."""
    key, version, correlation_id = _HEADER.unpack_from(frame)
    return key, version, correlation_id


def read_answer(asked: Seen, frame: bytes) -> Any:
    """The body of the answer to ``asked``, as kio's class."""
    schema = load_response_schema(asked.api_key, asked.version)
    _, size = entity_reader(schema.__header_schema__)(memoryview(frame), 0)
    return entity_reader(schema)(memoryview(frame), size)[0]


def write_answer(asked: Seen, body: Any) -> bytes:
    """The other way round."""
    schema = load_response_schema(asked.api_key, asked.version)
    out = io.BytesIO()
    out.write(struct.pack(">i", asked.correlation_id))
    if schema.__header_schema__.__flexible__:
        out.write(b"\0")
    entity_writer(schema)(out, body)
    return out.getvalue()
