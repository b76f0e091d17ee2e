"""MirrorMaker 2's positions: the keys and values that Kafka Connect stores for its source connector. Pure.

The offset is that of the last record that was copied; MirrorMaker 2 resumes behind it. It looks a position up by the
exact bytes of the key, so a key is written as Connect's JSON converter writes it: without spaces, the fields in
alphabetical order, and characters of 16 bits as they are, but for quotes, backslashes and control characters.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import InvalidArgument
from mirror.relay.progress import stored_json as stored
from mirror.wire.integers import INT32_MAX

PARTITIONS: Final = 25
"""How many partitions the topic of the positions has, unless it was configured (``offset.storage.partitions``)."""
_KEY_PARTS: Final = 2
_ESCAPED: Final = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\U00010000-\U0010ffff]")
"""What Java escapes by its UTF-16 numbers, in upper case: control characters without an escape of their own, and all
characters beyond 16 bits."""


class SourceOffsetKey(NamedTuple):
    """Identifies the position of one source partition."""

    connector: str
    """The connector's name: ``MirrorSourceConnector`` in a dedicated cluster of MirrorMaker 2, otherwise any."""
    cluster: str
    """The alias of the source."""
    tp: TopicPartition
    """On the source."""

    def to_bytes(self) -> bytes:
        """Return the record's key. Raises InvalidArgument for names that are no Unicode."""
        partition = (
            f'{{"cluster":{_text(self.cluster)},"partition":{self.tp.partition},"topic":{_text(self.tp.topic)}}}'
        )
        try:
            return f"[{_text(self.connector)},{partition}]".encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"a name is no Unicode text: {self!r}") from None

    def is_written_as(self, data: bytes) -> bool:
        """Return whether ``data`` is what Kafka Connect makes of this key."""
        try:
            return data == self.to_bytes()
        except InvalidArgument:
            return False

    @classmethod
    def parse(cls, data: bytes | None) -> SourceOffsetKey | None:
        """Parse a record's key; None for anything else, such as that of another connector's position."""
        parts = _parsed(data)
        if not isinstance(parts, list) or len(parts) != _KEY_PARTS or not isinstance(parts[1], dict):
            return None
        connector, cluster, topic = (
            stored.text(one) for one in (parts[0], parts[1].get("cluster"), parts[1].get("topic"))
        )
        partition = stored.number(parts[1].get("partition"), INT32_MAX)
        if not (connector and cluster and topic) or partition is None:
            return None
        return cls(connector, cluster, TopicPartition(topic, partition))


def encode_offset(offset: int) -> bytes:
    """Return the record's value; ``offset`` is that of the last record that was copied."""
    return f'{{"offset":{offset}}}'.encode()


def parse_offset(value: bytes | None) -> int | None:
    """Return the offset of the last record that was copied; None if the value says none, as a tombstone does."""
    fields = _parsed(value)
    return stored.number(fields.get("offset")) if isinstance(fields, dict) else None


def partition_of(key: bytes, partitions: int = PARTITIONS) -> int:
    """Return the partition where Connect's producer writes ``key``: the default partitioner's (murmur2)."""
    from aiokafka.partitioner import murmur2  # it takes long to import, and only a hand back needs it

    return int(murmur2(key) & INT32_MAX) % partitions


def _parsed(data: bytes | None) -> Any:
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None  # a ValueError also for what is no UTF-8


def _text(text: str) -> str:
    """Return ``text`` as a JSON string, as Jackson writes it."""
    quoted = (json.dumps(part, ensure_ascii=False)[1:-1] for part in _ESCAPED.split(text))
    escaped = [_numbers(one) for one in _ESCAPED.findall(text)]
    return '"' + "".join(part + number for part, number in zip(quoted, [*escaped, ""], strict=True)) + '"'


def _numbers(character: str) -> str:
    utf16 = character.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{utf16[at : at + 4]}" for at in range(0, len(utf16), 4))
