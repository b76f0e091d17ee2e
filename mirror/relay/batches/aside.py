"""The records of a flow's aside topic: what its target does not take, each with where it comes from and why. Pure.

A record keeps its key, value and headers. The headers of :class:`AsideOrigin` follow its own, the reason first. Its
timestamp is the time at which it went aside, so that no limit refuses it, and retention counts from then on. A damaged
batch is one record, whose value are the batch's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.wire.decode import Record
from mirror.wire.encode import BatchBuilder
from mirror.wire.integers import INT32_MAX
from mirror.wire.legacy import NO_TIMESTAMP
from mirror.wire.records import Batch

ASIDE_PARTITION: Final = 0
"""All that goes aside is in one partition: it is little, and is read as a whole."""
PREFIX: Final = "mirror.aside."
REASON: Final = f"{PREFIX}reason"
"""The first header of a record that went aside."""
SETTLED: Final = f"{PREFIX}settled"
"""The first header of a record that says what became of another one: :data:`COPIED` or :data:`DISMISSED`."""
COPIED: Final = "copied"
DISMISSED: Final = "dismissed"
CORRUPT: Final = "corrupt"
"""The reason of a batch that cannot be decoded."""
_FLOW, _CLUSTER, _TOPIC, _PARTITION = (f"{PREFIX}{name}" for name in ("flow", "cluster", "topic", "partition"))
_OFFSET, _END, _TIMESTAMP = (f"{PREFIX}{name}" for name in ("offset", "end", "timestamp"))
_TARGET, _TARGET_OFFSET = f"{PREFIX}target", f"{PREFIX}target-offset"

Header = tuple[str, bytes | None]


class Place(NamedTuple):
    """Where a record or a batch was in the source, which names it in the aside topic."""

    cluster_id: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class AsideOrigin:
    """The partition that a copy reads, and the topic that it writes."""

    flow: str
    cluster_id: str
    """That of the source."""
    topic: str
    partition: int
    target_topic: str

    def headers(self, reason: str, offset: int, end: int, timestamp_ms: int) -> tuple[Header, ...]:
        """Return the headers of what was at the source offsets ``[offset, end)``."""
        values: dict[str, object] = {
            REASON: reason,
            _FLOW: self.flow,
            _CLUSTER: self.cluster_id,
            _TOPIC: self.topic,
            _PARTITION: self.partition,
            _OFFSET: offset,
            _END: end,
            _TIMESTAMP: timestamp_ms,
            _TARGET: self.target_topic,
        }
        return tuple((name, str(value).encode()) for name, value in values.items())


@dataclass(frozen=True, slots=True)
class AsideSpec:
    """How records go aside while batches are re-encoded."""

    origin: AsideOrigin
    time_ms: int
    """Now, in ms since 1970."""
    too_large: frozenset[int] = frozenset()
    """The source offsets of the records that the target has refused as too large."""


@dataclass(frozen=True, slots=True)
class AsideRecord:
    """A record of the aside topic, as it was before it went there."""

    reason: str
    flow: str
    place: Place
    end: int
    """The source offset behind it."""
    target_topic: str
    timestamp_ms: int
    """Its own, in ms since 1970; of a damaged batch that of its header."""
    aside_ms: int
    """When it went aside, in ms since 1970."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """Its own."""

    @property
    def identity(self) -> tuple[Place, int]:
        """What tells it from all others: a topic that was made again has other records at the same offsets."""
        return self.place, self.timestamp_ms


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a command has done about a record of the aside topic."""

    what: str
    """:data:`COPIED` or :data:`DISMISSED`."""
    flow: str
    place: Place
    timestamp_ms: int
    """That of the record, in ms since 1970."""
    target_topic: str = ""
    target_offset: int = -1
    """Where the record was copied to, in the partition of the same number."""

    @property
    def identity(self) -> tuple[Place, int]:
        """That of the record."""
        return self.place, self.timestamp_ms

    def headers(self) -> tuple[Header, ...]:
        """Return the headers of its record, which has neither key nor value."""
        values: dict[str, object] = {
            SETTLED: self.what,
            _FLOW: self.flow,
            _CLUSTER: self.place.cluster_id,
            _TOPIC: self.place.topic,
            _PARTITION: self.place.partition,
            _OFFSET: self.place.offset,
            _TIMESTAMP: self.timestamp_ms,
            _TARGET: self.target_topic,
            _TARGET_OFFSET: self.target_offset,
        }
        return tuple((name, str(value).encode()) for name, value in values.items())


def parse(record: Record) -> AsideRecord | Settlement | None:
    """Return what a record of the aside topic says; None if it is of another writer."""
    starts = [at for at, (name, _) in enumerate(record.headers) if name in {REASON, SETTLED}]
    if not starts:
        return None
    values = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers[starts[-1] :]}
    try:
        place = Place(values[_CLUSTER], values[_TOPIC], int(values[_PARTITION]), int(values[_OFFSET]))
        if SETTLED in values:
            target = values[_TARGET], int(values[_TARGET_OFFSET])
            return Settlement(values[SETTLED], values[_FLOW], place, int(values[_TIMESTAMP]), *target)
        return AsideRecord(
            reason=values[REASON],
            flow=values[_FLOW],
            place=place,
            end=int(values[_END]),
            target_topic=values[_TARGET],
            timestamp_ms=int(values[_TIMESTAMP]),
            aside_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers[: starts[-1]],
        )
    except (KeyError, ValueError):
        return None


def damaged_batch(batch: Batch, origin: AsideOrigin, offset: int, time_ms: int) -> Batch:
    """Return a batch with one record, whose value are the bytes of ``batch``; ``offset`` is the first one it may hold.

    Nothing behind a damaged header is trusted but its last offset: see :func:`has_plausible_end`.
    """
    timestamp_ms = max(batch.max_timestamp, NO_TIMESTAMP)
    headers = origin.headers(CORRUPT, offset, batch.next_offset, timestamp_ms)
    builder = BatchBuilder("none", INT32_MAX)
    builder.append(None, bytes(batch.view), headers, time_ms)
    return builder.build()


def has_plausible_end(batch: Batch, next_base_offset: int | None) -> bool:
    """Whether the last offset of a damaged batch can be relied on: passing it must not pass any other batch.

    ``next_base_offset`` is that of the batch behind it, if it was fetched. Producers write as many records as offsets;
    only compaction removes some.
    """
    counted = batch.count == batch.last_offset_delta + 1 and batch.count > 0
    return counted if next_base_offset is None else next_base_offset == batch.next_offset
