"""What is at the source: how much, and what the last record of each partition is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mirror.wire.records import Batch
from tests.benchmarks.side_by_side.fetching import fetch_all
from tests.benchmarks.side_by_side.links import LATEST, READ_COMMITTED, Offsets, Topic
from tests.benchmarks.side_by_side.watching import Last, LastRecords


@dataclass(frozen=True, slots=True)
class Stock:
    """What a reader at read_committed gets. ``counts``: partition -> records; ``size``: bytes on the wire."""

    counts: dict[int, int]
    ends: dict[int, int]
    size: int
    batches: int
    lasts: dict[int, Last]

    @property
    def records(self) -> int:
        return sum(self.counts.values())

    def part(self, share: float, lasts: dict[int, Last]) -> Stock:
        """Of each partition the first part, whose last records are ``lasts``."""
        counts = first(self.counts, share)
        return Stock(counts, counts, round(self.size * share), round(self.batches * share), lasts)


def first(counts: dict[int, int], share: float) -> dict[int, int]:
    """That part of each partition's records."""
    return {partition: round(count * share) for partition, count in counts.items()}


def take(address: str, topic: str) -> Stock:
    """Read all of it once, which also brings it into the system's cache."""
    counts: Counter[int] = Counter()
    size_and_batches = [0, 0]

    def note(partition: int, batches: list[Batch], size: int) -> None:
        counts[partition] += sum(batch.count for batch in batches)
        size_and_batches[0] += size
        size_and_batches[1] += len(batches)

    fetch_all(address, topic, note)
    with Offsets(Topic(address, topic)) as offsets:
        ends = offsets.read(LATEST, READ_COMMITTED)
    size, count = size_and_batches
    return Stock(dict(counts), ends, size, count, last_records(address, topic, {one: ends[one] for one in counts}))


def part_of(stock: Stock, share: float, address: str, topic: str) -> Stock:
    """The first part of a plain topic, where a record's offset is its number."""
    if share == 1:
        return stock
    upto = {partition: count for partition, count in first(stock.counts, share).items() if count}
    return stock.part(share, last_records(address, topic, upto))


def last_records(address: str, topic: str, ends: dict[int, int]) -> dict[int, Last]:
    reader = LastRecords(address, topic)
    try:
        return reader.read(ends)
    finally:
        reader.close()
