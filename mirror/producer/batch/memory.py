"""Who may hold how much of ``buffer.memory`` (KIP-91: one sick partition must not take it all). No locks, no waiting.

The rule is the dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998): a partition may grow as long as
what it would hold is at most what would then be left free. So there is always room for one that comes later: stuck ones
that grow side by side hold ``1 / (k + 1)`` of all each, one after another each half of what was left, a lone one half.
A partition that holds nothing may take whatever is free, or a batch of more than half could never be sent.

Waiters are served in the order of asking, and there are two classes of them:

* Whose partition holds something, and would get more than its share, waits for its own batches to be delivered, or for
  room; those behind it pass it by.
* Whose partition holds nothing waits for room alone. When its turn comes and there is not enough, everybody behind it
  waits too, whatever their size: so memory gathers until it fits, and small requests cannot starve a big one.

Nobody starves as long as what is held comes back: then a partition over its share holds nothing one day, its waiter is
of the second class, and at last the first in turn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from mirror.cluster.types import TopicPartition

_NEVER: Final = 2**70
"""More than can be free: the need of a place in the line whose turn cannot come."""
_MIN_PLACES: Final = 16


@dataclass(slots=True, eq=False)
class Grant:
    """A request for ``count`` bytes for ``tp``; ``granted`` while it holds them. ``place`` is the pool's own."""

    tp: TopicPartition
    count: int
    granted: bool = False
    place: int = -1


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
        """Whether anybody waits; then nothing should linger."""
        return bool(self._waiters)

    def held(self, tp: TopicPartition) -> int:
        """Bytes that ``tp`` holds."""
        return self._held.get(tp, 0)

    def largest_holder(self) -> tuple[TopicPartition, int] | None:
        """The partition that holds most, and its bytes; None where nothing is held. For error texts: O(partitions)."""
        return max(self._held.items(), key=lambda item: item[1], default=None)

    def ask(self, tp: TopicPartition, count: int) -> Grant:
        """Ask for ``count`` bytes (1 to ``size``): granted at once, or waiting. Raises ValueError outside of that."""
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
        """How much must be free for its turn to come; for a partition that holds nothing it comes in any case."""
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
        """Only the first waiter of a partition is in question; those behind it come after it in any case."""
        waiters = self._waiters.get(tp)
        if waiters:
            self._waiting_list.set_need(waiters[0], self._need(waiters[0]))


class _WaitingList:
    """Waiters in the order of asking, each with a need; the first whose need is met is found in O(log n).

    A tournament tree over their places: each node has the least need below it, the root is at 1, the leaves are the
    second half. Places are given out in order, and anew when they run out.
    """

    def __init__(self) -> None:
        self._places: list[Grant | None] = []
        self._tree: list[int] = []
        self._used = 0

    def add(self, grant: Grant) -> None:
        """To the end; its turn does not come before :meth:`set_need`."""
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
        """The first whose need is at most ``free``."""
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
        kept = [(grant, self._tree[size + place]) for place, grant in enumerate(self._places) if grant is not None]
        size = _MIN_PLACES
        while size < 2 * len(kept):
            size *= 2
        self._places, self._tree, self._used = [None] * size, [_NEVER] * (2 * size), 0
        for grant, need in kept:
            self.add(grant)
            self.set_need(grant, need)
