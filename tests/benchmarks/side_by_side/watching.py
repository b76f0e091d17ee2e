"""When a copy begins and when all of it can be read, seen from outside and in the same way for every copier.

Every 50 ms the offsets of all partitions of the target are asked for (one ListOffsets a broker):

- The copy's *first record* is there once any partition's high watermark is above 1, committed or not: the marker of a
  fence takes an offset, and is no record.
- A partition is *done* at the first observation of its last stable offset just before which a reader at read_committed
  finds the source's last record as the last one. A partition's records are copied in order, so the last one visible
  means all visible. The reader is sent only once every partition's last stable offset is at least the
  number of its records. For copiers without transactions that number alone would do; with them, markers take offsets
  too, so that it may be reached while the last records are not committed.
- The copy is done when the last partition is: by the time of that observation, not of the reader.

What this does not show (a record lost in the middle, or one too many), the comparison does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.benchmarks.side_by_side.links import LATEST, READ_COMMITTED, READ_UNCOMMITTED, Offsets, Topic

EVERY_S: Final = 0.05
READ_AGAIN_S: Final = 0.2
"""The least time between two readings of last records."""
_MARKERS: Final = 1
"""How many offsets of a partition a copier may fill before its first record."""
_BEFORE: Final = 16
"""Offsets before the end that are read: the last one may be a marker's, or several may."""
_READ_WITHIN_S: Final = 5.0

Last = tuple[bytes | None, bytes | None]
"""A record's key and value: in these workloads no two are the same."""
ShowsLast = Callable[[Mapping[int, int]], set[int]]
"""Of partition -> last stable offset: those whose last visible record is the one that it must be."""


class Window:
    """Decides from observations; no clock, no sockets. ``expected``: partition -> records, if it has any."""

    def __init__(self, expected: Mapping[int, int], shows_last: ShowsLast) -> None:
        self._expected = {partition: count for partition, count in expected.items() if count}
        self._shows_last = shows_last
        self._seen: dict[int, tuple[int, float]] = {}
        self._next_reading = float("-inf")
        self.first: float | None = None
        self._done: dict[int, float] = {}

    @property
    def done(self) -> float | None:
        """When the last partition was; None before."""
        return max(self._done.values()) if len(self._done) == len(self._expected) else None

    @property
    def missing(self) -> int:
        """How many partitions are not done."""
        return len(self._expected) - len(self._done)

    def begins(self, at: float, ends: Mapping[int, int]) -> None:
        """Observe the high watermarks."""
        if self.first is None and any(end > _MARKERS for end in ends.values()):
            self.first = at

    def ends(self, at: float, stable: Mapping[int, int]) -> None:
        """Observe the last stable offsets."""
        for partition in self._expected:
            if partition not in self._seen or self._seen[partition][0] != stable[partition]:
                self._seen[partition] = stable[partition], at
        if at < self._next_reading or any(stable[one] < count for one, count in self._expected.items()):
            return
        unread = {one: stable[one] for one in self._expected if one not in self._done}
        if unread:
            # Again later in any case: on a busy machine a reading may come to nothing.
            self._next_reading = at + READ_AGAIN_S
            self._done |= {one: self._seen[one][1] for one in self._shows_last(unread)}


class Watcher:
    """Looks at a target's topic."""

    def __init__(self, address: str, topic: str, lasts: Mapping[int, Last], expected: Mapping[int, int]) -> None:
        self._offsets = Offsets(Topic(address, topic))
        self._reader = LastRecords(address, topic)
        self._lasts = lasts
        self.window: Final = Window(expected, self._shows_last)

    def observe(self) -> None:
        window = self.window
        if window.first is None:
            at = time.monotonic()
            window.begins(at, self._offsets.read(LATEST, READ_UNCOMMITTED))
        if window.first is not None and window.done is None:
            at = time.monotonic()
            window.ends(at, self._offsets.read(LATEST, READ_COMMITTED))

    def _shows_last(self, stable: Mapping[int, int]) -> set[int]:
        found = self._reader.read(stable)
        return {partition for partition in stable if found.get(partition) == self._lasts[partition]}

    def close(self) -> None:
        self._offsets.close()
        self._reader.close()


class LastRecords:
    """A reader at read_committed that is sent to the ends of partitions."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "side-by-side",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "fetch.message.max.bytes": 65536,  # grows by itself to a batch's size
            }
        )

    def read(self, ends: Mapping[int, int]) -> dict[int, Last]:
        """Partition -> the last record before its offset in ``ends``; partitions where there is none are left out."""
        topic, left, found = self._topic, set(ends), dict[int, Last]()
        self._consumer.assign([TopicPartition(topic, one, max(0, end - _BEFORE)) for one, end in ends.items()])
        until = time.monotonic() + _READ_WITHIN_S
        while left and time.monotonic() < until:
            messages: list[Any] = self._consumer.consume(1000, timeout=0.02)
            for message in messages:
                error, partition = message.error(), message.partition()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is not None or message.offset() >= ends[partition] - 1:
                    left.discard(partition)
                if error is None and message.offset() < ends[partition]:
                    found[partition] = (message.key(), message.value())
        self._consumer.unassign()
        return found

    def close(self) -> None:
        self._consumer.close()
