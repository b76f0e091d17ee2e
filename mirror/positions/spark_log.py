"""The files of a Spark checkpoint that have positions: ``offsets/N`` and ``sources/NAME/0`` of a Kafka source. Pure.

``offsets/N`` (``OffsetSeqLog``) is a line with the version, one with the metadata of the batch, and one per source with
where the batch ends: JSON of the source's own, or ``-`` if the source has nothing yet. In version 2 (Spark 4.2 and
later) each of these lines begins with the name of the source and a colon. ``sources/NAME/0`` is where the first batch
of a Kafka source begins (``KafkaSourceInitialOffsetWriter``): a zero byte, for Spark 2.1.0, the version and JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mirror.errors import FlowError
from mirror.positions.places import SourcePosition
from mirror.wire.integers import INT64_MAX

NOTHING: Final = "-"
"""The offset of a source of which no batch has read anything."""
_VERSIONS: Final = {"v1": 1, "v2": 2}
_INITIAL: Final = b"\0v1\n"

Positions = tuple[SourcePosition, ...]


class OffsetsFile(NamedTuple):
    """``offsets/N``: where a batch ends in each source."""

    version: int
    metadata: str
    """JSON of Spark's own, in one line; before Spark 2.1 empty."""
    sources: tuple[tuple[str, str], ...]
    """The name of each source (version 1: its number) and its offset, as they follow in the file."""

    def encoded(self, changed: Mapping[str, str]) -> bytes:
        """Return the file with the ``changed`` offsets of these sources."""
        texts = [(name, changed.get(name, offset)) for name, offset in self.sources]
        lines = (f"{name}:{text}" if self.version > 1 else text for name, text in texts)
        return "\n".join((f"v{self.version}", self.metadata, *lines)).encode()


def parse_offsets(content: bytes, path: str) -> OffsetsFile:
    """Raises FlowError with the ``path`` if this is no such file, or not all of it."""
    version, _, rest = _text(content, path).partition("\n")
    if not content:
        raise FlowError(f"{path} is truncated: it is empty")
    if version not in _VERSIONS:
        raise FlowError(
            f"{path} begins with {version[:20]!r}: known are v1 and v2 of Spark's offset log; is it a checkpoint"
            " of Structured Streaming?"
        )
    metadata, *lines = rest.split("\n")
    if metadata and not isinstance(_json(metadata, path), dict):
        raise FlowError(f"{path} is damaged: its second line is not the metadata of a batch")
    if not lines:
        raise FlowError(f"{path} is truncated: it has no offset of any source")
    if _VERSIONS[version] == 1:
        return OffsetsFile(1, metadata, tuple((f"{number}", line) for number, line in enumerate(lines)))
    named = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in named):
        raise FlowError(f"{path} is damaged: a line of v2 begins with the name of a source and a colon")
    return OffsetsFile(2, metadata, tuple((name, offset) for name, _, offset in named))


def parse_initial(content: bytes, path: str) -> Positions:
    """Return where the first batch of a Kafka source begins. Raises FlowError with the ``path`` of another file."""
    if not content.startswith(_INITIAL):
        raise FlowError(f"{path} is no file of Spark's Kafka source")
    found = kafka_positions(_text(content[len(_INITIAL) :], path), path)
    if found is None:
        raise FlowError(f"{path} is no file of Spark's Kafka source: it has no offsets by topic and partition")
    return found


def encode_initial(text: str) -> bytes:
    """Return ``sources/NAME/0`` with the JSON of :func:`to_json`."""
    return _INITIAL + text.encode()


def kafka_positions(text: str, path: str) -> Positions | None:
    """Return the positions of a source's offset; None if it is not that of a Kafka source: ``{"topic":{"0":12}}``.

    Raises FlowError with the ``path`` if the text is no JSON, or a position is no offset.
    """
    found = _json(text, path)
    if not isinstance(found, dict) or not all(
        isinstance(partitions, dict) and all(partition.isdecimal() for partition in partitions)
        for partitions in found.values()
    ):
        return None
    positions = [
        (topic, int(partition), offset)
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    ]
    for topic, partition, offset in positions:
        if type(offset) is not int or not 0 <= offset <= INT64_MAX:
            raise FlowError(f"{path}: {topic}-{partition} has no offset but {offset!r}")
    return tuple(SourcePosition(*one) for one in positions)


def to_json(positions: Iterable[tuple[str, int, int]]) -> str:
    """Return (topic, partition, offset) as Spark's Kafka source writes positions, and reads ``startingOffsets``."""
    topics: dict[str, dict[str, int]] = {}
    for topic, partition, offset in positions:
        topics.setdefault(topic, {})[f"{partition}"] = offset
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise FlowError(f"{path} is damaged: it is no text") from None


def _json(text: str, path: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FlowError(f"{path} is truncated or damaged: {text[:40]!r} is no JSON") from None
