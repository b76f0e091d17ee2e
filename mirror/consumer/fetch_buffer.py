"""Fetched batches that no poll has returned yet, and the order in which polls return them. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched


class FetchBuffer:
    """A queue for each partition. Polls serve the partitions in turn, so that no backlog delays the others."""

    def __init__(self) -> None:
        # In the order in which they are served; no queue is empty.
        self._queues: dict[TopicPartition, deque[Fetched]] = {}
        self.held = 0
        """Bytes of memory that all entries hold."""

    def __iter__(self) -> Iterator[Fetched]:
        for queue in self._queues.values():
            yield from queue

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, fetched: Fetched) -> None:
        """Append to the queue of its partition."""
        self._queues.setdefault(fetched.tp, deque()).append(fetched)
        self.held += fetched.held

    def put_back(self, taken: Iterable[Fetched]) -> None:
        """Put the entries of the last :meth:`take` back to the front, in the same order."""
        first: dict[TopicPartition, list[Fetched]] = {}
        for fetched in taken:
            first.setdefault(fetched.tp, []).append(fetched)
            self.held += fetched.held
        others = self._queues
        self._queues = {tp: deque([*entries, *others.pop(tp, ())]) for tp, entries in first.items()} | others

    def drop(self, tp: TopicPartition) -> deque[Fetched]:
        """Remove and return all entries of ``tp``."""
        dropped = self._queues.pop(tp, None) or deque()
        self.held -= sum(fetched.held for fetched in dropped)
        return dropped

    def take(self, paused: Callable[[TopicPartition], bool], max_bytes: int | None) -> list[Fetched]:
        """Remove one entry of each partition that is not ``paused``, in turns, while all of them fit in ``max_bytes``.

        The first entry is returned whatever its size. An entry that does not fit is the first of the next call, even
        if smaller ones follow: a large entry would never be returned otherwise.
        """
        taken: list[Fetched] = []
        room = max_bytes
        waiting = deque(tp for tp in self._queues if not paused(tp))
        while waiting:
            tp = waiting[0]
            size = self._queues[tp][0].held
            if room is not None:
                if taken and size > room:
                    break
                room -= size
            waiting.popleft()
            queue = self._queues.pop(tp)
            taken.append(queue.popleft())
            self.held -= taken[-1].held
            if queue:
                self._queues[tp] = queue
                waiting.append(tp)
        return taken
