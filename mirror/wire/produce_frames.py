"""Fast encoding of Produce requests with one batch, and fast decoding of their responses.

Such a request differs from the previous one of its partition only in the correlation id and the records. Walking the
schema is a third of its cost on the network thread (with 66 KB batches), so the bytes before and after the records are
encoded once per partition and reused. Nearly all responses have the same layout, too, and are read as one struct.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from mirror.wire.api import Api
from mirror.wire.frames import Buffer
from mirror.wire.messages.base import Message, Records, Segment
from mirror.wire.messages.produce import (
    ProducePartition,
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
_PLACEHOLDER: Final = b"records placeholder"
_SEVEN_BITS: Final = 0x7F
_MORE: Final = 0x80
_MAX_CACHED: Final = 8_192
"""Partitions in the cache, more than a process writes to at the same time."""


_RESPONSE_START: Final = b"\0\2"
"""The bytes after the correlation id: no tagged fields, one topic (compact counts and lengths are encoded plus one)."""
_RESPONSE_END: Final = struct.Struct(">sihqqq4sis")
"""The fields after the topic: the count of partitions, one partition, four bytes (no record errors, no message, no
tagged fields of the partition and of the topic), the throttle time, no tagged fields."""
_PLAIN: Final = (b"\2", b"\1\0\0\0", b"\0")
_FLEXIBLE_FROM: Final = 9
"""The first flexible version (KIP-482)."""
_TOPIC_IDS_FROM: Final = 13
"""The first version that identifies topics by id."""
_ID_BYTES: Final = 16


class _Envelope(NamedTuple):
    """The bytes of a request around its records."""

    before: bytes
    after: bytes


class ProduceFrames:
    """Encodes the same bytes as ``encode`` (the codec's function), in other segments."""

    def __init__(self, encode: Encode) -> None:
        self._encode: Final = encode
        self._envelopes: Final[dict[Hashable, _Envelope]] = {}

    def request(self, version: int, correlation_id: int, client_id: str, body: ProduceRequest) -> list[Segment] | None:
        """Return the segments of the frame; None if the request has several batches, or a version that is not flexible.

        Raises what ``encode`` raises.
        """
        if version < _FLEXIBLE_FROM or len(body.topic_data) != 1 or len(body.topic_data[0].partition_data) != 1:
            return None
        topic = body.topic_data[0]
        partition = topic.partition_data[0]
        topic_id = topic.topic_id and topic.topic_id.int  # the number, because a UUID's hash is a Python call
        attributes = (body.transactional_id, body.acks, body.timeout, topic.name, topic_id, partition.index)
        envelope = self._envelopes.get((version, client_id, attributes))
        if envelope is None:
            if len(self._envelopes) >= _MAX_CACHED:
                self._envelopes.clear()
            envelope = self._envelopes[version, client_id, attributes] = self._encode_envelope(version, client_id, body)
        payload = len(partition.records)
        length = _varint(payload + 1)
        size = _HEADER.size - _SIZE_BYTES + len(envelope.before) + len(length) + payload + len(envelope.after)
        head = _HEADER.pack(size, Api.PRODUCE.spec.key, version, correlation_id) + envelope.before + length
        return [head, *partition.records.segments, envelope.after]

    def _encode_envelope(self, version: int, client_id: str, body: ProduceRequest) -> _Envelope:
        topic = body.topic_data[0]
        partition = ProducePartition(topic.partition_data[0].index, Records.of((_PLACEHOLDER,)))
        request = ProduceRequest(
            body.acks, body.timeout, (ProduceTopic(topic.name, topic.topic_id, (partition,)),), body.transactional_id
        )
        segments = self._encode(Api.PRODUCE, version, 0, client_id, request)
        position = next(index for index, segment in enumerate(segments) if segment is _PLACEHOLDER)
        # The byte before the placeholder is its length, a varint of one byte.
        return _Envelope(b"".join(segments[:position])[_HEADER.size : -1], b"".join(segments[position + 1 :]))


def decode_plain_response(version: int, frame: Buffer) -> ProduceResponse | None:
    """Decode a response about one partition that has no error details and no tagged fields; None for any other.

    The codec decodes all other responses by their schema. Raises UnicodeDecodeError.
    """
    topic_start, topic_end = _SIZE_BYTES + len(_RESPONSE_START), len(frame) - _RESPONSE_END.size
    if topic_end < topic_start or frame[_SIZE_BYTES:topic_start] != _RESPONSE_START:
        return None
    count, index, code, base_offset, append_time_ms, log_start, details, throttle_ms, tags = _RESPONSE_END.unpack_from(
        frame, topic_end
    )
    topic = frame[topic_start:topic_end]
    by_id = version >= _TOPIC_IDS_FROM
    # The length before a name is a varint of one byte for names of up to 126 bytes. Longer ones take the slow path.
    complete = len(topic) == _ID_BYTES if by_id else 0 < len(topic) <= _SEVEN_BITS and topic[0] == len(topic)
    if not complete or (count, details, tags) != _PLAIN:
        return None
    name = "" if by_id else str(topic[1:], "utf-8")
    topic_id = uuid.UUID(bytes=bytes(topic)) if by_id and any(topic) else None
    partition = ProduceResponsePartition(index, code, base_offset, append_time_ms, log_start)
    return ProduceResponse((ProduceResponseTopic(name, topic_id, (partition,)),), throttle_ms)


def _varint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, lowest first, as in flexible messages (KIP-482)."""
    out = bytearray()
    while value > _SEVEN_BITS:
        out.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
