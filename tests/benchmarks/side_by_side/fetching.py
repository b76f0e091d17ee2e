"""The fetch half of the ceilings: batches of a topic up to its last stable offset, in order, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mirror.consumer.fetched import without_aborted
from mirror.wire.api import Api
from mirror.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponsePartition, FetchTopic
from mirror.wire.records import Batch, split_batches
from tests.benchmarks.side_by_side.links import EARLIEST, LATEST, READ_COMMITTED, Link, Offsets, Topic, check, checked

PARTITION_BYTES: Final = 1 << 20
ANSWER_BYTES: Final = 16 << 20
_WAIT_MS: Final = 500

Take = Callable[[int, list[Batch], int], None]
"""Hears of a partition, of its next batches, and of their bytes."""


class Reading:
    """What is left to be fetched from one leader, in the order of turns."""

    def __init__(self, topic: str, link: Link, positions: dict[int, int], ends: dict[int, int]) -> None:
        self._topic = topic
        self.link = link
        self._ends = ends
        self._positions = {partition: at for partition, at in positions.items() if at < ends[partition]}

    def ask(self) -> bool:
        """Send the next Fetch; False where there is nothing left."""
        if not self._positions:
            return False
        parts = tuple(FetchPartition(partition, at, PARTITION_BYTES) for partition, at in self._positions.items())
        topics = (FetchTopic(self._topic, None, parts),)
        self.link.send(Api.FETCH, FetchRequest(_WAIT_MS, 1, ANSWER_BYTES, READ_COMMITTED, topics))
        return True

    def answer(self) -> list[tuple[int, list[Batch], int]]:
        """Take the answer and move on; what was served goes to the end of the queue."""
        found = []
        answer = self.link.receive()
        check(answer.error_code, self._topic)
        for topic in answer.responses:
            for part in checked(topic.partitions):
                batches, at = _batches(part, self._positions[part.partition_index])
                if at == self._positions[part.partition_index]:
                    continue
                del self._positions[part.partition_index]
                if at < self._ends[part.partition_index]:
                    self._positions[part.partition_index] = at
                if batches:
                    found.append((part.partition_index, batches, sum(batch.size for batch in batches)))
        return found


def _batches(part: FetchResponsePartition, at: int) -> tuple[list[Batch], int]:
    """Those with records that a reader at read_committed sees, and the offset after all of them."""
    if part.records is None:
        return [], at
    kept: list[Batch] = []
    every = list(split_batches(part.records))
    for batch, aborted in without_aborted(every, part.aborted_transactions or ()):
        if not isinstance(batch, Batch):
            raise TypeError("messages of the formats before batches are no part of these workloads")
        at = batch.next_offset
        if not aborted and not batch.is_control and batch.count:
            kept.append(batch)
    return kept, at


def fetch_all(address: str, topic: str, take: Take) -> None:
    """Until the last stable offsets of the start. The next Fetch is under way while ``take`` has the last one's."""
    found = Topic(address, topic)
    with Offsets(found) as offsets:
        ends = offsets.read(LATEST, READ_COMMITTED)
        begins = offsets.read(EARLIEST, READ_COMMITTED)
    readings = [
        Reading(topic, Link(*leader), {one: begins[one] for one in partitions}, ends)
        for leader, partitions in found.by_leader().items()
    ]
    try:
        for partition, batches, size in _turns(readings):
            take(partition, batches, size)
    finally:
        for reading in readings:
            reading.link.close()


def _turns(readings: list[Reading]) -> Iterator[tuple[int, list[Batch], int]]:
    busy = [reading for reading in readings if reading.ask()]
    while busy:
        for reading in list(busy):
            found = reading.answer()
            if not reading.ask():
                busy.remove(reading)
            yield from found
