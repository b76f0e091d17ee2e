"""Produce requests of one batch, which differ from the last one of their partition by correlation id and records alone.

To walk the schema is a third of what such a request costs the network thread (66 KB batches). So what stands around
the records is encoded once for each partition, and then only put around them. Nearly all answers are alike, too: they
are read as one struct.
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
"""The frame's size, API key, version and correlation id."""
_SIZE: Final = 4
_MARK: Final = b"the records' place"
_SEVEN_BITS: Final = 0x7F
_MORE: Final = 0x80
_MOST: Final = 8_192
"""Partitions that are kept: more than a process has under way."""


_ANSWER_BEGINS: Final = b"\0\2"
"""What follows the correlation id: no tagged fields, one topic (counts and lengths are one more than they say)."""
_ANSWER_ENDS: Final = struct.Struct(">sihqqq4sis")
"""What follows the topic: the count of partitions, one of them, no record errors, no message, no tagged fields (its
own, and the topic's), the throttle time, no tagged fields."""
_ORDINARY: Final = (b"\2", b"\1\0\0\0", b"\0")
_BY_ID: Final = 13
"""From this version on topics are told by id."""
_ID_BYTES: Final = 16


class _Around(NamedTuple):
    before: bytes
    after: bytes


class ProduceFrames:
    """Gives what ``encode`` (the codec's own) would, in other segments."""

    def __init__(self, encode: Encode) -> None:
        self._encode: Final = encode
        self._known: Final[dict[Hashable, _Around]] = {}

    def request(self, version: int, correlation_id: int, client_id: str, body: ProduceRequest) -> list[Segment] | None:
        """The frame's segments; None for a request of several batches. Raises what ``encode`` raises."""
        if len(body.topic_data) != 1 or len(body.topic_data[0].partition_data) != 1:
            return None
        topic = body.topic_data[0]
        part = topic.partition_data[0]
        topic_id = topic.topic_id and topic.topic_id.int  # the number, for a UUID's hash is a Python call
        about = (body.transactional_id, body.acks, body.timeout, topic.name, topic_id, part.index)
        around = self._known.get((version, client_id, about))
        if around is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            around = self._known[version, client_id, about] = self._learn(version, client_id, body)
        payload = len(part.records)
        length = _varint(payload + 1)
        size = _HEADER.size - _SIZE + len(around.before) + len(length) + payload + len(around.after)
        head = _HEADER.pack(size, Api.PRODUCE.spec.key, version, correlation_id) + around.before + length
        return [head, *part.records.segments, around.after]

    def _learn(self, version: int, client_id: str, body: ProduceRequest) -> _Around:
        topic = body.topic_data[0]
        marked = ProducePartition(topic.partition_data[0].index, Records.of((_MARK,)))
        like = ProduceRequest(
            body.acks, body.timeout, (ProduceTopic(topic.name, topic.topic_id, (marked,)),), body.transactional_id
        )
        segments = self._encode(Api.PRODUCE, version, 0, client_id, like)
        place = next(index for index, segment in enumerate(segments) if segment is _MARK)
        # The mark's own length is a varint of one byte, just before it (all versions spoken are flexible).
        return _Around(b"".join(segments[:place])[_HEADER.size : -1], b"".join(segments[place + 1 :]))


def answer(version: int, frame: Buffer) -> ProduceResponse | None:
    """The answer about one partition that has nothing unusual to tell; None for any other, which the schema reads.

    Raises UnicodeDecodeError.
    """
    begins, ends = _SIZE + len(_ANSWER_BEGINS), len(frame) - _ANSWER_ENDS.size
    if ends < begins or frame[_SIZE:begins] != _ANSWER_BEGINS:
        return None
    one, index, code, base_offset, appended_ms, start, nothing, throttle_ms, end = _ANSWER_ENDS.unpack_from(frame, ends)
    topic = frame[begins:ends]
    by_id = version >= _BY_ID
    # The length of a name, in front of it, is one byte where the name is not very long.
    whole = len(topic) == _ID_BYTES if by_id else 0 < len(topic) <= _SEVEN_BITS and topic[0] == len(topic)
    if not whole or (one, nothing, end) != _ORDINARY:
        return None
    name = "" if by_id else str(topic[1:], "utf-8")
    topic_id = uuid.UUID(bytes=bytes(topic)) if by_id and any(topic) else None
    part = ProduceResponsePartition(index, code, base_offset, appended_ms, start)
    return ProduceResponse((ProduceResponseTopic(name, topic_id, (part,)),), throttle_ms)


def _varint(value: int) -> bytes:
    """Unsigned: seven bits a byte, the lowest first, as in flexible messages (KIP-482)."""
    out = bytearray()
    while value > _SEVEN_BITS:
        out.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
