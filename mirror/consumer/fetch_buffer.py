"""What was fetched and waits to be taken, and whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched


class FetchBuffer:
    """One queue per partition; they take turns, so that one with much to give does not keep the others waiting.

    ``held`` is the bytes that all of it takes.
    """

    def __init__(self) -> None:
        # In the order of their turns; none is empty.
        self._queues: dict[TopicPartition, deque[Fetched]] = {}
        self.held = 0

    def __iter__(self) -> Iterator[Fetched]:
        for queue in self._queues.values():
            yield from queue

    def add(self, fetched: Fetched) -> None:
        """Behind what its partition has already."""
        self._queues.setdefault(fetched.tp, deque()).append(fetched)
        self.held += fetched.held

    def put_back(self, taken: Iterable[Fetched]) -> None:
        """What was taken last, and not read after all: it comes first again, in the same order."""
        first: dict[TopicPartition, list[Fetched]] = {}
        for fetched in taken:
            first.setdefault(fetched.tp, []).append(fetched)
            self.held += fetched.held
        others = self._queues
        self._queues = {tp: deque([*entries, *others.pop(tp, ())]) for tp, entries in first.items()} | others

    def drop(self, tp: TopicPartition) -> deque[Fetched]:
        """Everything of ``tp``: nobody is to read it any more."""
        dropped = self._queues.pop(tp, None) or deque()
        self.held -= sum(fetched.held for fetched in dropped)
        return dropped

    def take(self, paused: Callable[[TopicPartition], bool], max_bytes: int | None) -> list[Fetched]:
        """One of each partition that is not ``paused``, again and again, while the memory of all fits ``max_bytes``.

        At least one where there is one. What does not fit is the first next time, however small those behind it are:
        a large one would never have its turn else.
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
