"""The tail of a partition: what only the old cluster has, from the divergence to its end. Pure.

It is exported into a topic of its own on the other cluster: an order between the tail and newer writes does not exist.
Each record there says where it was, so that the last one says how far the export is: a transaction makes its records
and that progress visible together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Final, NamedTuple

from mirror.client import Record
from mirror.errors import FlowError

CLUSTER: Final = "mirror-tail-cluster"
PARTITION: Final = "mirror-tail-partition"
OFFSET: Final = "mirror-tail-offset"
TIMESTAMP: Final = "mirror-tail-timestamp"

MOST_KEYS: Final = 200_000
"""So many keys of a topic's tail are kept at a time, as 8 bytes each: about 15 MB."""
TRANSACTION_RECORDS: Final = 5_000
TRANSACTION_BYTES: Final = 8 * 1024 * 1024


class Span(NamedTuple):
    """Offsets of a partition of the old cluster, ``start`` to ``end`` (exclusive)."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)


def topic_of(topic: str, generation: int) -> str:
    """Return the topic for the tail of ``topic``; ``generation`` is that of the flow's latch at the failover."""
    return f"{topic}.tail.{generation}"


def marked(record: Record, cluster: str, partition: int) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of an exported record: its own, then where it was."""
    return (
        *record.headers,
        (CLUSTER, cluster.encode()),
        (PARTITION, str(partition).encode()),
        (OFFSET, str(record.offset).encode()),
        (TIMESTAMP, str(record.timestamp_ms).encode()),
    )


# Invariant: An export continues behind the last record that a committed transaction has put into the tail's topic, and
#   an earlier attempt is fenced before that record is read: each record of the tail is there exactly once.
# Test: tests/switch/failback/test_tail.py::test_each_record_is_exported_once_wherever_attempts_are_killed
def resumed(span: Span, last: Record | None, cluster: str, partition: int, topic: str) -> Span:
    """Return what is left of ``span`` behind ``last``, the last committed record of the tail's topic.

    Raises FlowError if that is not a record of this tail: then another program has written there.
    """
    if last is None:
        return span
    headers = dict(last.headers)
    # Of several headers with the same name the last one counts: that of the export.
    try:
        at = int(headers.get(OFFSET) or b"")
        known = (headers.get(CLUSTER), headers.get(PARTITION)) == (cluster.encode(), str(partition).encode())
    except ValueError:
        at, known = -1, False
    if not known or not span.start <= at < span.end:
        raise FlowError(
            f"{topic}-{partition}: its last record, at offset {last.offset}, is no record of this tail (offsets"
            f" {span.start} to {span.end} of cluster {cluster}): delete the topic if nothing needs it"
        )
    return Span(at + 1, span.end)


def transactions(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    """Yield the records in portions, each for one transaction."""
    portion: list[Record] = []
    size = 0
    for record in records:
        portion.append(record)
        size += size_of(record)
        if len(portion) >= TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def size_of(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    of_headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + of_headers


@dataclass(slots=True)
class TailCount:
    """What the tail of one partition has. The field names are keys of ``--json``."""

    partition: int
    start: int
    end: int
    records: int = 0
    bytes: int = 0
    """Of keys, values and headers."""
    first_ms: int | None = None
    """The smallest timestamp; None without records."""
    last_ms: int | None = None

    def add(self, record: Record) -> None:
        """Count a record."""
        self.records += 1
        self.bytes += size_of(record)
        time_ms = record.timestamp_ms
        self.first_ms = time_ms if self.first_ms is None else min(self.first_ms, time_ms)
        self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)


class WrittenSince:
    """Counts the keys of a tail that the other cluster has written again, in bounded memory.

    Up to ``most`` distinct keys are kept. With more, those stay whose hash has one more zero bit at its end, half of
    them, and the count is an estimate: that of the keys kept, times two for each bit (adaptive sampling).
    """

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most: Final = most
        self._bits = 0
        self._keys: set[int] = set()
        self._written: set[int] = set()

    def add(self, key: bytes | None) -> None:
        """Take a key of the tail; all of these come first."""
        if key is None or not self._keeps(number := _hash(key)):
            return
        self._keys.add(number)
        while len(self._keys) > self._most:
            self._bits += 1
            self._keys = {one for one in self._keys if self._keeps(one)}

    def see(self, key: bytes | None) -> None:
        """Take a key that the other cluster has written since."""
        if key is not None and self._keeps(number := _hash(key)) and number in self._keys:
            self._written.add(number)

    @property
    def has_keys(self) -> bool:
        """Whether the tail has a record with a key."""
        return bool(self._keys)

    @property
    def count(self) -> int:
        """How many keys of the tail were written again."""
        return len(self._written) << self._bits

    @property
    def is_exact(self) -> bool:
        """Whether each key was kept; otherwise the count is an estimate."""
        return self._bits == 0

    def _keeps(self, number: int) -> bool:
        return number & ((1 << self._bits) - 1) == 0


def _hash(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest())


def windows(start: int, end: int, first: int = 200) -> Iterator[Span]:
    """Yield spans of a log from its end to its start, each one ten times as long: its last record is searched there."""
    bounds = [end]
    while bounds[-1] > start:
        bounds.append(max(start, bounds[-1] - first))
        first *= 10
    yield from (Span(low, high) for high, low in pairwise(bounds))
