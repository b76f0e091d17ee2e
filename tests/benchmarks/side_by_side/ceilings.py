"""The ceilings, as programs: ``python -m tests.benchmarks.side_by_side.ceilings WHAT SOURCE TOPIC TARGET COPY``.

WHAT is ``null-copier`` (fetch and produce the same batches), ``fetch-alone`` (its fetch half) or ``produce-alone`` (its
produce half, with all batches fetched to memory before). Batches pass as they are, with base offset 0; where the
source's batch has a producer, its fields are cleared and the CRC is computed again. No progress, no transactions, no
checks, no accumulation, no retries: an error ends it.

One thread fetches. Each of a few connections to a leader of the target has a thread and partitions of its own, so that
order is kept, and up to :data:`IN_FLIGHT` requests under way; a request takes a batch of each of its partitions that
has one, up to a MiB.

Says ``first SECONDS`` when the first batches came, and ``done SECONDS`` at the end (of time.monotonic(), which all
processes of a machine share).
"""

from __future__ import annotations

import collections
import struct
import sys
import threading
import time
from typing import Final

from mirror.wire.api import Api
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from mirror.wire.records import Batch
from tests.benchmarks.side_by_side.fetching import fetch_all
from tests.benchmarks.side_by_side.links import Link, Topic, checked

IN_FLIGHT: Final = 5
CONNECTIONS: Final = 2
REQUEST_BYTES: Final = 1 << 20
QUEUED_BYTES: Final = 64 << 20
_ACKS_WITHIN_MS: Final = 60_000
_FRONT: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12


class Room:
    """Bounds the bytes between fetching and acknowledgement."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()
        self._broken: BaseException | None = None

    def take(self, size: int) -> None:
        with self._changed:
            while self._left <= 0 and self._broken is None:
                self._changed.wait()
            if self._broken is not None:
                raise self._broken
            self._left -= size

    def give(self, size: int) -> None:
        with self._changed:
            self._left += size
            self._changed.notify()

    def broke(self, error: BaseException) -> None:
        """All callers, also later ones, get ``error``."""
        with self._changed:
            self._broken = error
            self._changed.notify_all()


class Outlet(threading.Thread):
    """One connection to a leader, and its partitions' batches in order."""

    def __init__(self, topic: str, leader: tuple[str, int], room: Room) -> None:
        super().__init__(name=f"outlet-{leader[1]}", daemon=True)
        self._topic = topic
        self._link = Link(*leader)
        self._room = room
        self._queues: dict[int, collections.deque[Batch]] = {}  # in the order of turns, none of them empty
        self._changed = threading.Condition()
        self._over = False
        self._under_way: collections.deque[int] = collections.deque()
        self.error: BaseException | None = None

    def put(self, partition: int, batches: list[Batch]) -> None:
        with self._changed:
            self._queues.setdefault(partition, collections.deque()).extend(batches)
            self._changed.notify()

    def finish(self) -> None:
        """No more comes."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # noqa: BLE001 - the fetching thread raises it
            self.error = error
            self._room.broke(error)
        finally:
            self._link.close()

    def _turn(self) -> bool:
        with self._changed:
            while not self._queues and not self._under_way and not self._over:
                self._changed.wait()
            parts = self._next() if len(self._under_way) < IN_FLIGHT else {}
        if parts:
            self._send(parts)
        elif self._under_way:
            for topic in self._link.receive().responses:
                checked(topic.partition_responses)
            self._room.give(self._under_way.popleft())
        else:
            return not self._over
        return True

    def _next(self) -> dict[int, Batch]:
        """A batch of each partition that has one, up to a request's size; these go to the end of the turns."""
        found: dict[int, Batch] = {}
        size = 0
        for partition in list(self._queues):
            if size >= REQUEST_BYTES:
                break
            queue = self._queues.pop(partition)
            found[partition] = queue.popleft()
            size += found[partition].size
            if queue:
                self._queues[partition] = queue
        return found

    def _send(self, parts: dict[int, Batch]) -> None:
        produced = tuple(ProducePartition(partition, Records((batch.view,))) for partition, batch in parts.items())
        topics = (ProduceTopic(self._topic, None, produced),)
        self._link.send(Api.PRODUCE, ProduceRequest(-1, _ACKS_WITHIN_MS, topics))
        self._under_way.append(sum(batch.size for batch in parts.values()))


def as_new(batch: Batch) -> None:
    """What a producer may send: offset 0, and nobody's sequence."""
    if batch.producer_id >= 0 or batch.is_transactional:
        batch.patch(-1, -1, -1)
        return
    _FRONT.pack_into(batch.view, 0, 0)
    _LEADER_EPOCH.pack_into(batch.view, _LEADER_EPOCH_AT, -1)


class Outlets:
    """All connections to a target's topic."""

    def __init__(self, address: str, topic: str, room: Room) -> None:
        self._of: dict[int, Outlet] = {}
        self._all: list[Outlet] = []
        self._room = room
        for leader, partitions in Topic(address, topic).by_leader().items():
            outlets = [Outlet(topic, leader, room) for _ in range(min(CONNECTIONS, len(partitions)))]
            self._all += outlets
            self._of |= {partition: outlets[n % len(outlets)] for n, partition in enumerate(partitions)}
        for outlet in self._all:
            outlet.start()

    def put(self, partition: int, batches: list[Batch], size: int) -> None:
        self._room.take(size)
        for batch in batches:
            as_new(batch)
        self._of[partition].put(partition, batches)

    def finish(self) -> None:
        """Wait until all is acknowledged. Raises what broke one."""
        for outlet in self._all:
            outlet.finish()
        for outlet in self._all:
            outlet.join()
        for outlet in self._all:
            if outlet.error is not None:
                raise outlet.error


def say(word: str) -> None:
    sys.stdout.write(f"{word} {time.monotonic()}\n")
    sys.stdout.flush()


class Once:
    """Says it the first time."""

    def __init__(self, word: str) -> None:
        self._word: str | None = word

    def __call__(self) -> None:
        if self._word is not None:
            say(self._word)
            self._word = None


def fetch_alone(source: str, topic: str) -> None:
    first = Once("first")
    fetch_all(source, topic, lambda *_: first())


def null_copier(source: str, topic: str, target: str, copy: str) -> None:
    outlets, first = Outlets(target, copy, Room(QUEUED_BYTES)), Once("first")

    def take(partition: int, batches: list[Batch], size: int) -> None:
        first()
        outlets.put(partition, batches, size)

    fetch_all(source, topic, take)
    outlets.finish()


def produce_alone(source: str, topic: str, target: str, copy: str) -> None:
    held: list[tuple[int, list[Batch], int]] = []
    fetch_all(source, topic, lambda *found: held.append(found))
    outlets, first = Outlets(target, copy, Room(QUEUED_BYTES)), Once("first")
    for partition, batches, size in held:
        first()
        outlets.put(partition, batches, size)
    outlets.finish()


def main(arguments: list[str]) -> None:
    what, source, topic, target, copy = arguments
    if what == "fetch-alone":
        fetch_alone(source, topic)
    elif what == "null-copier":
        null_copier(source, topic, target, copy)
    elif what == "produce-alone":
        produce_alone(source, topic, target, copy)
    else:
        raise SystemExit(f"no such ceiling: {what}")
    say("done")


if __name__ == "__main__":
    main(sys.argv[1:])
