"""Fast encoding of Produce requests, and fast decoding of their responses.

Walking the schema is a third of a request's cost on the network thread (with 66 KB batches). All requests of a producer
begin alike, and are flat: topics, partitions, records. Nearly all responses have the same layout, too: neither errors
in detail nor tagged fields.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Hashable
from typing import Final

from mirror.wire.api import Api
from mirror.wire.frames import Buffer, varint
from mirror.wire.messages.base import Message, Segment
from mirror.wire.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    ProduceTopic,
)

Encode = Callable[[Api, int, int, str, Message], list[Segment]]

_HEADER: Final = struct.Struct(">ihhi")
"""Frame size, API key, version, correlation id."""
_SIZE_BYTES: Final = 4
_INDEX: Final = struct.Struct(">i")
_SEVEN_BITS: Final = 0x7F
_MAX_CACHED: Final = 1_024
"""Producers in the cache, more than a process has."""
_NO_TOPICS: Final = 2
"""The bytes of no topics and no tagged fields, with which the encoding of an empty request ends."""

_FLEXIBLE_FROM: Final = 9
"""The first flexible version (KIP-482). Lengths and counts are varints of the number plus one."""
_TOPIC_IDS_FROM: Final = 13
"""The first version that identifies topics by id."""
_ID_BYTES: Final = 16
_PARTITION: Final = struct.Struct(">ihqqq3s")
"""Index, error code, base offset, time of appending, log start, and no record errors, no message, no tagged fields."""
_PLAIN: Final = b"\1\0\0"
_SOME: Final = 1
"""A count above it is of at least one."""
_RESPONSE_END: Final = struct.Struct(">is")
"""The throttle time, and no tagged fields."""


class ProduceFrames:
    """Encodes the same bytes as ``encode`` (the codec's function), in other segments."""

    def __init__(self, encode: Encode) -> None:
        self._encode: Final = encode
        self._starts: Final[dict[Hashable, bytes]] = {}

    def request(self, version: int, correlation_id: int, client_id: str, body: ProduceRequest) -> list[Segment] | None:
        """Return the segments of the frame; None for a version that is not flexible. Raises what ``encode`` raises."""
        if version < _FLEXIBLE_FROM:
            return None
        segments: list[Segment] = []
        head = bytearray(_HEADER.size)
        head += self._start(version, client_id, body)
        head += varint(len(body.topic_data) + 1)
        size = 0
        for topic in body.topic_data:
            head += _identity(version, topic)
            head += varint(len(topic.partition_data) + 1)
            for partition in topic.partition_data:
                payload = len(partition.records)
                head += _INDEX.pack(partition.index)
                head += varint(payload + 1)
                size += len(head) + payload
                segments.append(head)
                segments += partition.records.segments
                head = bytearray(1)  # no tagged fields of the partition
            head.append(0)  # none of the topic
        head.append(0)
        segments.append(head)
        _HEADER.pack_into(segments[0], 0, size + len(head) - _SIZE_BYTES, Api.PRODUCE.spec.key, version, correlation_id)
        return segments

    def _start(self, version: int, client_id: str, body: ProduceRequest) -> bytes:
        """Return what stands between the correlation id and the topics."""
        key = version, client_id, body.transactional_id, body.acks, body.timeout
        start = self._starts.get(key)
        if start is None:
            if len(self._starts) >= _MAX_CACHED:
                self._starts.clear()
            empty = ProduceRequest(body.acks, body.timeout, (), body.transactional_id)
            whole = b"".join(self._encode(Api.PRODUCE, version, 0, client_id, empty))
            start = self._starts[key] = whole[_HEADER.size : -_NO_TOPICS]
        return start


def _identity(version: int, topic: ProduceTopic) -> bytes:
    if version >= _TOPIC_IDS_FROM:
        return bytes(_ID_BYTES) if topic.topic_id is None else topic.topic_id.bytes
    name = topic.name.encode()
    return varint(len(name) + 1) + name


def decode_plain_response(version: int, frame: Buffer) -> ProduceResponse | None:
    """Decode a response that has no error details and no tagged fields; None for any other.

    The codec decodes all other responses by their schema. Raises UnicodeDecodeError.
    """
    try:
        return _decode_plain(version, bytes(frame))
    except (IndexError, struct.error):
        return None  # it ends too early, which the codec reports


def _decode_plain(version: int, frame: bytes) -> ProduceResponse | None:
    at = _SIZE_BYTES  # behind the correlation id
    # One byte holds counts and lengths below 127, and begins longer ones, which the codec decodes.
    if frame[at] or not _SOME < frame[at + 1] <= _SEVEN_BITS:
        return None
    topics = []
    count, at = frame[at + 1] - 1, at + 2
    for _ in range(count):
        length = _ID_BYTES if version >= _TOPIC_IDS_FROM else frame[at] - 1
        at += version < _TOPIC_IDS_FROM
        identity, partitions = frame[at : at + length], frame[at + length]
        if not (0 < length < _SEVEN_BITS and _SOME < partitions <= _SEVEN_BITS):
            return None
        at += length + 1
        found = []
        for _ in range(partitions - 1):
            index, code, base_offset, append_time_ms, log_start, details = _PARTITION.unpack_from(frame, at)
            if details != _PLAIN:
                return None
            at += _PARTITION.size
            found.append(ProduceResponsePartition(index, code, base_offset, append_time_ms, log_start))
        if frame[at]:
            return None
        at += 1
        name = "" if version >= _TOPIC_IDS_FROM else identity.decode()
        topic_id = uuid.UUID(bytes=identity) if version >= _TOPIC_IDS_FROM and any(identity) else None
        topics.append(ProduceResponseTopic(name, topic_id, tuple(found)))
    throttle_ms, tags = _RESPONSE_END.unpack_from(frame, at)
    if tags != b"\0" or len(frame) != at + _RESPONSE_END.size:
        return None
    return ProduceResponse(tuple(topics), throttle_ms)
