"""Reads MirrorMaker 2's positions and offset syncs."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mirror.client import EARLIEST, LATEST, Admin, Consumer, Fetched, TopicPartition
from mirror.errors import KafkaError
from mirror.mirrormaker.records import OffsetSync
from mirror.mirrormaker.source_offsets import SourceOffsetKey, parse_offset
from mirror.relay.progress.log_reading import read_long_log
from mirror.takeover.matching import Pair
from mirror.timing import Clock
from mirror.wire.decode import Record

Positions = Mapping[str, Mapping[TopicPartition, int]]
"""By connector and source partition: the offset of the last record that was copied."""
_FETCH_BYTES: Final = 1024 * 1024
_FETCH_WAIT_MS: Final = 20
"""A consumer fetches on behind what is read of a partition, and the next one waits for that response."""


class Reach(enum.Enum):
    """Up to where a topic is read, and which of its records."""

    ALL_COMMITTED = enum.auto()
    """Those that are committed, up to the end of the log: open transactions are waited for."""
    STABLE = enum.auto()
    """Those that are committed, up to the first open transaction."""
    UNCOMMITTED = enum.auto()
    """Also those of open and aborted transactions."""


def last_of_keys(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each key, as compaction would leave them. Pure."""
    return [*{record.key: record for record in records if record.key is not None}.values()]


def gather(records: Iterable[Record], source: str) -> Positions:
    """Return the last positions of the cluster with the alias ``source``; a tombstone forgets one. Pure.

    ``records`` are those of whole partitions: all records of a key are in one of them. A position under the bytes that
    Kafka Connect makes of its key, or a tombstone there, counts before any under other bytes: MirrorMaker 2 reads no
    others.
    """
    last = {record.key: record for record in last_of_keys(records) if record.key is not None}
    keys = {data: key for data in last if (key := SourceOffsetKey.parse(data)) is not None and key.cluster == source}
    found: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for data, key in sorted(keys.items(), key=lambda item: item[1].is_written_as(item[0])):
        offset = parse_offset(last[data].value)
        if offset is not None:
            found[key.connector][key.tp] = offset
        elif key.is_written_as(data):
            found[key.connector].pop(key.tp, None)
    return {connector: positions for connector, positions in found.items() if positions}


def pairs_of(records: Iterable[Record]) -> dict[TopicPartition, list[Pair]]:
    """Return the offset syncs by source partition, in the order of their log. Pure."""
    found: dict[TopicPartition, list[Pair]] = defaultdict(list)
    for record in records:
        sync = OffsetSync.parse(record.key, record.value)
        if sync is not None:
            found[sync.tp].append(Pair(sync.source, sync.target))
    return dict(found)


class TopicReader:
    """Reads whole topics of one cluster. Its calls wait; use it in one thread."""

    def __init__(self, options: Mapping[str, object], admin: Admin, clock: Clock, stall_ms: int) -> None:
        """``options`` are those of the cluster. A call fails if nothing arrives for ``stall_ms``."""
        self._options: Final = options
        self._admin: Final = admin
        self._clock: Final = clock
        self._stall_ms: Final = stall_ms
        self._consumers: Final[dict[str, Consumer]] = {}

    def close(self) -> None:
        """Close the connections."""
        for consumer in self._consumers.values():
            consumer.close(timeout_ms=0)

    def ends(self, topic: str, *, stable: bool = False) -> dict[TopicPartition, int]:
        """Return the end of each partition's log; if ``stable``, its last stable offset. Raises KafkaError."""
        described = self._admin.describe_topics([topic]).get(topic)
        if described is None:
            msg = f"topic {topic!r}: a broker does not know it; it was deleted, or is new: try again"
            raise KafkaError(msg)
        tps = [TopicPartition(topic, one.partition) for one in described.partitions]
        isolation = "read_committed" if stable else "read_uncommitted"
        found = self._admin.list_offsets(dict.fromkeys(tps, LATEST), isolation=isolation)
        return {tp: found[tp].offset for tp in tps}

    def since(
        self, topic: str, starts: Mapping[TopicPartition, int], time_ms: int
    ) -> tuple[Iterator[Record], dict[TopicPartition, int]]:
        """Return the committed records from ``starts`` on, read as they are iterated over, and the ends of the logs.

        A partition without a start, or whose log ends in front of it, is read from its beginning: the topic was made
        again, or an election cut the log. Only its records after ``time_ms`` (ms since 1970) are returned then, because
        the others may be those in front of the start. If there is no such topic, both are empty. Raises KafkaError,
        also the iterator.
        """
        ends = self.ends(topic, stable=True) if topic in self._admin.describe_topics([topic]) else {}
        return self._since(starts, ends, time_ms), ends

    def _since(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], time_ms: int
    ) -> Iterator[Record]:
        grown = {tp: end for tp, end in ends.items() if end != starts.get(tp, 0)}
        firsts = self._admin.list_offsets(dict.fromkeys(grown, EARLIEST))
        for tp, end in grown.items():
            start = starts.get(tp)
            is_known = start is not None and start <= end
            start = max(start or 0, firsts[tp].offset) if is_known else firsts[tp].offset
            for fetched in self._read(tp, start, end, "read_committed"):
                for one in fetched.records():
                    if start <= one.offset < end and (is_known or one.timestamp_ms > time_ms):
                        yield one

    def records(self, topic: str, reach: Reach = Reach.ALL_COMMITTED) -> Iterator[Record]:
        """Yield the records up to the present ends. Raises KafkaError; KafkaTimeout if a transaction does not end."""
        ends = self.ends(topic, stable=reach is Reach.STABLE)
        starts = self._admin.list_offsets(dict.fromkeys(ends, EARLIEST))
        isolation = "read_uncommitted" if reach is Reach.UNCOMMITTED else "read_committed"
        for tp, end in ends.items():
            for fetched in self._read(tp, starts[tp].offset, end, isolation):
                yield from fetched.records()

    def _read(self, tp: TopicPartition, start: int, end: int, isolation: str) -> Iterator[Fetched]:
        if isolation not in self._consumers:
            self._consumers[isolation] = Consumer({**self._options, **READING, "isolation.level": isolation})
        return read_long_log(self._consumers[isolation], tp, start, end, self._clock, self._stall_ms)


READING: Final = {
    "auto.offset.reset": "none",
    "isolation.level": "read_committed",
    "fetch.max.wait.ms": _FETCH_WAIT_MS,
    "fetch.max.bytes": _FETCH_BYTES,
    "max.partition.fetch.bytes": _FETCH_BYTES,
}
"""The options of a consumer that reads logs."""
