"""The bytes of MirrorMaker 2's records, in Kafka's protocol types. Pure.

Its readers skip a record that they cannot parse, and so do these. Strings are never null, and values never are either:
``MirrorClient`` fails at a tombstone.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import InvalidArgument
from mirror.wire.integers import INT64_MAX

_VERSION: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")
_WRITTEN_VERSION: Final = 0
"""The only one there is. Java's readers check it in an assertion only, so a reader may meet others."""


# Invariant: The bytes and the names of all records here are those of MirrorMaker 2's own classes.
# Test: tests/mirrormaker/test_kafkas_classes.py::test_heartbeats_have_the_same_bytes
class Heartbeat(NamedTuple):
    """Shows that records get from ``source`` to ``target``. It is written to ``target``."""

    source: str
    target: str
    timestamp_ms: int
    """In ms since 1970."""

    def key(self) -> bytes:
        """Return the record's key. Raises InvalidArgument for a name that is too long."""
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        """Return the record's value."""
        return _VERSION.pack(_WRITTEN_VERSION) + _TIMESTAMP.pack(self.timestamp_ms)


class CheckpointKey(NamedTuple):
    """Identifies the checkpoints of a group and partition, of which readers take the last one."""

    group: str
    tp: TopicPartition
    """On the target."""

    def to_bytes(self) -> bytes:
        """Return the record's key. Raises InvalidArgument for a name that is too long."""
        return _string(self.group) + _string(self.tp.topic) + _PARTITION.pack(self.tp.partition)

    @classmethod
    def parse(cls, data: bytes | None) -> CheckpointKey | None:
        """Parse a record's key; None for anything else."""
        try:
            group, at = _read_string(data or b"", 0)
            topic, at = _read_string(data or b"", at)
            (partition,) = _PARTITION.unpack_from(data or b"", at)
        except struct.error:
            return None
        return cls(group, TopicPartition(topic, partition))


class Checkpoint(NamedTuple):
    """A group's position on both sides."""

    source: int
    """The offset on the source."""
    target: int
    """The offset on the target that it is translated to."""
    metadata: str = ""
    """What the group has committed with it on the source."""

    def to_bytes(self) -> bytes:
        """Return the record's value. Raises InvalidArgument for long metadata and negative offsets."""
        if not (0 <= self.source <= INT64_MAX and 0 <= self.target <= INT64_MAX):
            msg = f"offsets of a checkpoint are from 0 to 2^63 - 1, not {self.source} and {self.target}"
            raise InvalidArgument(msg)
        return _VERSION.pack(_WRITTEN_VERSION) + _OFFSETS.pack(self.source, self.target) + _string(self.metadata)

    @classmethod
    def parse(cls, data: bytes | None) -> Checkpoint | None:
        """Parse a record's value, of any version; None for anything else."""
        try:
            source, target = _OFFSETS.unpack_from(data or b"", _VERSION.size)
            metadata, _ = _read_string(data or b"", _VERSION.size + _OFFSETS.size)
        except struct.error:
            return None
        return cls(source, target, metadata)


class OffsetSync(NamedTuple):
    """Says that the record at an offset of a source partition has a copy at an offset of the target."""

    tp: TopicPartition
    """On the source."""
    source: int
    target: int

    def key(self) -> bytes:
        """Return the record's key. Raises InvalidArgument for a name that is too long."""
        return _string(self.tp.topic) + _PARTITION.pack(self.tp.partition)

    def value(self) -> bytes:
        """Return the record's value, which has no version."""
        return _OFFSETS.pack(self.source, self.target)

    @classmethod
    def parse(cls, key: bytes | None, value: bytes | None) -> OffsetSync | None:
        """Parse a record; None for anything else, and for offsets that are none."""
        try:
            topic, at = _read_string(key or b"", 0)
            (partition,) = _PARTITION.unpack_from(key or b"", at)
            source, target = _OFFSETS.unpack_from(value or b"", 0)
        except struct.error:
            return None
        return cls(TopicPartition(topic, partition), source, target) if min(partition, source, target) >= 0 else None


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    """Return the string at ``at``, and where it ends. Raises struct.error. As Java, replaces what is not UTF-8."""
    (length,) = _LENGTH.unpack_from(data, at)
    start = at + _LENGTH.size
    if not 0 <= length <= len(data) - start:
        raise struct.error
    return data[start : start + length].decode(errors="replace"), start + length


def _string(text: str) -> bytes:
    data = text.encode()
    try:
        return _LENGTH.pack(len(data)) + data
    except struct.error:
        msg = f"a string of MirrorMaker 2's records takes at most 32767 bytes, not {len(data)}"
        raise InvalidArgument(msg) from None
