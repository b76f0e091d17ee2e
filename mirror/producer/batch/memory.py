"""Shares ``buffer.memory`` between partitions (KIP-91: one stuck partition must not take all of it). No locks, no I/O.

The rule is the dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998): a partition may grow as long as
it would then hold at most what is left free. So there is always room for a partition that comes later: ``k`` stuck
partitions that grow side by side hold ``1 / (k + 1)`` of the memory each; if they grow one after another, each takes
half of what was left; a single one takes half. A partition that holds nothing may take all that is free: otherwise a
batch of more than half could never be sent.

Waiters are served in the order of their requests, in two classes:

* The partition holds something and would exceed its share: it waits until its own batches are delivered, or until there
is room. Later waiters may overtake it.
* The partition holds nothing: it waits for room alone. If there is not enough when its turn comes, all later waiters
  wait behind it, whatever their size, so that memory accumulates until it fits and small requests cannot starve a
  large one.

No waiter starves as long as memory is returned: a partition over its share holds nothing one day, and its waiter
then belongs to the second class, in which it becomes the first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from mirror.cluster.types import TopicPartition

_NEVER: Final = 2**70
"""More than can be free: the need of a place that cannot be served."""
_MIN_PLACES: Final = 16


@dataclass(slots=True, eq=False)
class Grant:
    """A request for ``count`` bytes for ``tp``; ``granted`` while it holds them. ``place`` is used by the pool."""

    tp: TopicPartition
    count: int
    granted: bool = False
    place: int = -1


# Invariant: A partition may hold at most as much of buffer.memory as it would leave free, so that one that comes later
#   finds room.
# Test: tests/producer/test_memory.py::test_a_lone_partition_may_hold_half
class BufferPool:
    """``size`` bytes shared by partitions. Each call takes O(log waiters). Not thread-safe."""

    def __init__(self, size: int) -> None:
        self.size: Final = size
        self.free = size
        self._held: dict[TopicPartition, int] = {}
        self._waiters: dict[TopicPartition, deque[Grant]] = {}
        self._waiting_list = _WaitingList()

    @property
    def waiting(self) -> bool:
        """Whether a thread waits for memory; no batch should linger then."""
        return bool(self._waiters)

    def held(self, tp: TopicPartition) -> int:
        """Bytes that ``tp`` holds."""
        return self._held.get(tp, 0)

    def largest_holder(self) -> tuple[TopicPartition, int] | None:
        """Return the partition that holds most, and its bytes; None if none holds any.

        O(partitions), for error texts.
        """
        return max(self._held.items(), key=lambda item: item[1], default=None)

    def ask(self, tp: TopicPartition, count: int) -> Grant:
        """Request ``count`` bytes (1 to ``size``): granted at once, or waiting. Raises ValueError for another count."""
        if not 1 <= count <= self.size:
            msg = f"{tp}: {count} bytes can never be granted out of {self.size}"
            raise ValueError(msg)
        grant = Grant(tp, count)
        if not self._waiters and self._need(grant) <= self.free >= count:
            self._take(grant)
            return grant
        self._waiters.setdefault(tp, deque()).append(grant)
        self._waiting_list.add(grant)
        self._update_need(tp)
        self._serve()
        return grant

    def cancel(self, grant: Grant) -> list[Grant]:
        """Withdraw ``grant``, waiting or (instead of :meth:`give_back`) granted; the grants that this made possible."""
        if grant.granted:
            grant.granted = False
            return self.give_back(grant.tp, grant.count)
        if grant.place < 0:
            return []  # withdrawn before
        self._stop_waiting(grant)
        self._update_need(grant.tp)
        return self._serve()

    def give_back(self, tp: TopicPartition, count: int) -> list[Grant]:
        """Free ``count`` of the bytes that ``tp`` holds; the grants that this made possible, in their order.

        Raises ValueError for more than it holds: something was given back twice.
        """
        left = self.held(tp) - count
        if left < 0 or count < 0:
            msg = f"{tp}: {count} bytes given back, and only {self.held(tp)} held"
            raise ValueError(msg)
        if left:
            self._held[tp] = left
        else:
            self._held.pop(tp, None)
        self.free += count
        self._update_need(tp)
        return self._serve()

    def _serve(self) -> list[Grant]:
        granted: list[Grant] = []
        while (grant := self._waiting_list.first(self.free)) is not None and grant.count <= self.free:
            self._stop_waiting(grant)
            self._take(grant)
            self._update_need(grant.tp)
            granted.append(grant)
        return granted

    def _need(self, grant: Grant) -> int:
        """Return how much must be free to serve ``grant``; 0 for a partition that holds nothing."""
        held = self._held.get(grant.tp, 0)
        return held + 2 * grant.count if held else 0

    def _take(self, grant: Grant) -> None:
        grant.granted = True
        self.free -= grant.count
        self._held[grant.tp] = self.held(grant.tp) + grant.count

    def _stop_waiting(self, grant: Grant) -> None:
        waiters = self._waiters[grant.tp]
        waiters.remove(grant)
        if not waiters:
            del self._waiters[grant.tp]
        self._waiting_list.remove(grant)

    def _update_need(self, tp: TopicPartition) -> None:
        """Only the first waiter of a partition needs an update: the others come after it in any case."""
        waiters = self._waiters.get(tp)
        if waiters:
            self._waiting_list.set_need(waiters[0], self._need(waiters[0]))


class _WaitingList:
    """Waiters in order, each with a need; the first whose need is met is found in O(log n).

    It is a tournament tree over their places: each node has the least need below it, the root has index 1, and the
    leaves are the second half. Places are assigned in order, and renumbered when they run out.
    """

    def __init__(self) -> None:
        self._places: list[Grant | None] = []
        self._tree: list[int] = []
        self._used = 0

    def add(self, grant: Grant) -> None:
        """Append; it is not served before :meth:`set_need`."""
        if self._used == len(self._places):
            self._renumber()
        grant.place = self._used
        self._places[self._used] = grant
        self._used += 1

    def remove(self, grant: Grant) -> None:
        self.set_need(grant, _NEVER)
        self._places[grant.place] = None
        grant.place = -1

    def set_need(self, grant: Grant, need: int) -> None:
        node = len(self._places) + grant.place
        self._tree[node] = need
        while node > 1:
            node //= 2
            least = min(self._tree[2 * node], self._tree[2 * node + 1])
            if self._tree[node] == least:
                return
            self._tree[node] = least

    def first(self, free: int) -> Grant | None:
        """Return the first waiter whose need is at most ``free``."""
        if not self._places or self._tree[1] > free:
            return None
        node = 1
        while node < len(self._places):
            node *= 2
            if self._tree[node] > free:
                node += 1
        return self._places[node - len(self._places)]

    def _renumber(self) -> None:
        size = len(self._places)
        waiting = [(grant, self._tree[size + place]) for place, grant in enumerate(self._places) if grant is not None]
        size = _MIN_PLACES
        while size < 2 * len(waiting):
            size *= 2
        self._places, self._tree, self._used = [None] * size, [_NEVER] * (2 * size), 0
        for grant, need in waiting:
            self.add(grant)
            self.set_need(grant, need)
