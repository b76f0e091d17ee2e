"""Pools of connections to each broker, shared by all clients of a cluster. No I/O.

A broker processes one request of a connection at a time, also while an acks=all Produce waits for its replicas: a
healthy partition behind one whose follower was stopped waited 20 s. So there are several connections, and no request is
queued behind one that does not get a response.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.cluster.requests import Lane, Network, Request
from mirror.errors import KafkaError, KafkaTimeout
from mirror.timing import FOREVER_MS

SLOW_AFTER_MS: Final = 500
"""A response that takes longer is slow in any case. A broker in garbage collection can bear one connection more."""
_MIN_SLOW_MS: Final = 50
_SLOW_FACTOR: Final = 10
"""A response that takes so many times the recent mean is slow, but none under ``_MIN_SLOW_MS``."""
_OVERDUE_MS: Final = 10
_OVERDUE_FACTOR: Final = 3
"""No request is queued behind a response that takes so many times the mean while another connection is opening."""
_MEAN_WINDOW: Final = 8
"""The approximate number of responses in the moving mean."""
ROOM_BYTES: Final = 8 * 1024 * 1024
"""Bytes in flight on one connection: further batches wait in their queues, where they can expire unsent. A request that
finds less than this is sent, however large it is."""


@dataclass(slots=True, eq=False)
class Slot:
    """One connection of a pool, by its channel."""

    node: int
    channel: int
    outstanding: dict[int, int] = field(default_factory=dict)
    """The sizes of the requests whose responses are outstanding, by number."""
    bytes: int = 0
    since_ms: int = 0
    """When the first of them was sent, or when the response before it arrived."""
    slow: bool = False
    """The first response takes long; until none is outstanding."""
    dedicated: bool = False
    """It carries the first request of a partition, whose latency is unknown; until none is outstanding."""

    @property
    def has_room(self) -> bool:
        """Whether it accepts another request."""
        return self.bytes < ROOM_BYTES


@dataclass(slots=True, eq=False)
class _Broker:
    """The connections to one broker: ``common`` ones, and ``quarantined`` ones: slow, or for slow partitions.

    ``mean_ms`` is the moving mean of response times. A response is slow after ``slow_after_ms``, which is at most
    ``at_most_ms``.
    """

    at_most_ms: int
    slow_after_ms: int = field(init=False)
    common: list[Slot] = field(default_factory=list)
    quarantined: list[Slot] = field(default_factory=list)
    mean_ms: float | None = None

    def __post_init__(self) -> None:
        self.slow_after_ms = self.at_most_ms

    def record_latency(self, ms: int) -> None:
        """Update the mean, and the limit that follows from it, by a response after ``ms``."""
        ms = max(0, min(ms, SLOW_AFTER_MS))
        self.mean_ms = ms if self.mean_ms is None else self.mean_ms + (ms - self.mean_ms) / _MEAN_WINDOW
        self.slow_after_ms = min(self.at_most_ms, max(_MIN_SLOW_MS, int(_SLOW_FACTOR * self.mean_ms)))

    def late(self, now: int) -> list[Slot]:
        """Return the common connections that have become slow."""
        since_ms = now - self.slow_after_ms
        return [slot for slot in self.common if slot.outstanding and not slot.slow and slot.since_ms <= since_ms]

    def is_overdue(self, slot: Slot, now: int) -> bool:
        """Whether its response takes longer than usual, though it may not be slow yet."""
        return self.mean_ms is not None and now - slot.since_ms > max(_OVERDUE_MS, _OVERDUE_FACTOR * self.mean_ms)

    def all(self) -> Iterator[Slot]:
        return itertools.chain(self.common, self.quarantined)


# Invariant: No request is queued behind one that gets no response: silent partitions and new ones have connections of
#   their own, and one that is ten times slower than usual is replaced.
# Test: tests/producer/test_lanes.py::test_slow_replica_delays_only_its_own_connection
# Test: tests/cluster/test_pools_new.py::test_new_ones_have_half_of_the_connections_for_themselves_and_share_these
# Test: tests/cluster/test_pools_slow.py::test_slow_replica_delays_only_its_own_connection
class ConnectionPool:
    """The connections of one lane, at most ``size`` common and ``size`` quarantined ones for each broker.

    ``refusals`` counts the requests that found no connection; ``freed`` rises when one of them may find one now. Other
    reasons to try again (a connection became ready, or is no longer throttled) are in ``Network.changes``.
    """

    def __init__(
        self, network: Network, lane: Lane, size: int, new_channel: Callable[[], int], slow_after_ms: int
    ) -> None:
        self.refusals = 0
        self.freed = 0
        self._network = network
        self._lane = lane
        self._size = size
        self._new_channel = new_channel
        self._slow_after_ms = slow_after_ms
        self.brokers: dict[int, _Broker] = {}
        self._refused: set[int] = set()
        self._tokens = itertools.count()

    # --- choice of a connection

    def pick(self, node: int, now: int, *, slow: bool = False, dedicated: bool = False) -> Slot | None:
        """Return the least busy connection to ``node`` on which a request is sent at once; None if there is none.

        ``slow``: for a partition whose last request timed out, which uses quarantined connections only. ``dedicated``:
        for a partition whose latency is unknown; others are not queued behind its first request. The connection has to
        be used, by :meth:`carry`, before the next one is picked.
        """
        broker = self.brokers.get(node)
        if broker is None:
            broker = self.brokers[node] = _Broker(self._slow_after_ms)
        self._update_slow(broker, now)
        if dedicated and not slow:
            slot = self._pick_for_new(broker, node, now)
        else:
            slot = self._pick_from(broker.quarantined if slow else broker.common, node, now, behind_slow=slow)
        if slot is None:
            self._refuse(node)
        return slot

    def _pick_for_new(self, broker: _Broker, node: int, now: int) -> Slot | None:
        """Pick a connection of its own while there are enough, otherwise one that carries only such requests.

        If all are busy with other requests, pick a quarantined one, and a shared one at last.
        """
        spare = self._may_dedicate(broker.common)
        slot = self._pick_from(broker.common, node, now, behind_slow=False) if spare else None
        if not spare or (slot is not None and slot.outstanding):
            fellow = self._least_busy(broker.common, now, behind_slow=False, new=True)
            if fellow is not None:
                return fellow
            slot = slot or self._pick_from(broker.common, node, now, behind_slow=False)
            if slot is not None and slot.outstanding:
                slot = self._pick_quarantined(broker, node, now, slot)
        if slot is not None and not slot.outstanding:
            slot.dedicated = spare or slot in broker.quarantined
        return slot

    def _may_dedicate(self, slots: list[Slot]) -> bool:
        """Whether another connection may be dedicated: half of them stay shared in any case."""
        return sum(slot.dedicated for slot in slots) < max(1, self._size // 2)

    def _pick_quarantined(self, broker: _Broker, node: int, now: int, shared: Slot) -> Slot | None:
        """Return an idle quarantined connection, None if one is opening, or ``shared`` if there is neither."""
        if not self._may_dedicate(broker.quarantined):
            return shared
        free, opening = self._idle_slot(broker.quarantined, node, now)
        if free is None and not opening and self._may_grow(broker.quarantined, node, now):
            free, opening = self._open_slot(broker.quarantined, node, now), True
        # Do not wait for one that cannot be opened, as the broker accepts no more.
        waits = opening and self._network.trouble(node) is None
        return free if free is not None or waits else shared

    def accepts_more(self, slot: Slot, now: int) -> bool:
        """Whether a queue with batches in flight on ``slot`` may send more there, which keeps them in order.

        It may not on a slow one: after its responses the queue can use another connection.
        """
        if not slot.outstanding or not self._ready(slot, now):
            return False
        if (broker := self.brokers.get(slot.node)) is not None:
            self._update_slow(broker, now)
        if not slot.slow and not slot.has_room:
            self._refuse(slot.node)
        return not slot.slow and slot.has_room

    def _pick_from(self, slots: list[Slot], node: int, now: int, *, behind_slow: bool) -> Slot | None:
        free, opening = self._idle_slot(slots, node, now)
        if free is not None:
            return free
        best = self._least_busy(slots, now, behind_slow=behind_slow)
        # Open one at a time, so that the pool grows no further than it helps.
        if not slots or (not opening and self._may_grow(slots, node, now)):
            if (free := self._open_slot(slots, node, now)) is not None:
                return free
            opening = True
        return None if best is None or (opening and self._better_waits(best, now, behind_slow=behind_slow)) else best

    def _better_waits(self, best: Slot, now: int, *, behind_slow: bool) -> bool:
        """Whether to wait for an opening connection instead of queueing behind ``best``."""
        if behind_slow:  # its response time is unknown, but the new connection may fail, too
            return best.dedicated and self._network.trouble(best.node) is None
        return self.brokers[best.node].is_overdue(best, now)

    def _idle_slot(self, slots: list[Slot], node: int, now: int) -> tuple[Slot | None, bool]:
        """Return an idle connection, and whether one is opening."""
        opening = False
        for slot in list(slots):
            if slot.outstanding:
                continue
            if not self._network.stands(node, self._lane, slot.channel):
                slots.remove(slot)  # it broke, or was closed as idle; another is opened when it is needed
            elif self._ready(slot, now):
                return slot, opening
            else:
                opening = True
        return None, opening

    def _may_grow(self, slots: list[Slot], node: int, now: int) -> bool:
        """Whether to open another connection; a throttled client would gain nothing by one."""
        return len(slots) < self._size and not self._network.throttled(node, now)

    def _open_slot(self, slots: list[Slot], node: int, now: int) -> Slot | None:
        """Open a connection; return None while it is opening."""
        slot = Slot(node, self._new_channel())
        slots.append(slot)
        return slot if self._ready(slot, now) else None

    def _least_busy(self, slots: list[Slot], now: int, *, behind_slow: bool, new: bool = False) -> Slot | None:
        """Return the least busy connection in use; ``new``: of the dedicated ones.

        ``behind_slow``: of all, dedicated ones last. Requests of new partitions without a response may occupy every
        quarantined connection, and a slow partition would have none for as long.
        """
        shared = [slot for slot in slots if slot.outstanding and slot.has_room]
        shared = [slot for slot in shared if behind_slow or (slot.dedicated == new and not slot.slow)]
        shared.sort(key=lambda slot: (slot.dedicated, len(slot.outstanding), slot.bytes))
        return next((slot for slot in shared if self._ready(slot, now)), None)

    def _ready(self, slot: Slot, now: int) -> bool:
        return self._network.ready(slot.node, self._lane, now, slot.channel)

    def _refuse(self, node: int) -> None:
        self.refusals += 1
        self._refused.add(node)

    # --- slow connections

    def _update_slow(self, broker: _Broker, now: int) -> None:
        """Quarantine connections that have become slow; return, or close, those that no longer are."""
        late = broker.late(now)
        # A throttled connection is slow because of this client (KIP-219).
        if late and not self._network.throttled(late[0].node, now):
            for slot in late:
                slot.slow = True
        for slot in list(broker.quarantined):
            if slot.slow and not slot.outstanding:
                slot.slow = False
                broker.quarantined.remove(slot)
                self._keep_or_close(broker, slot)
        for slot in list(broker.common):
            if not slot.outstanding:
                slot.slow = False
            elif slot.slow and self._make_quarantine_room(broker):
                broker.common.remove(slot)
                broker.quarantined.append(slot)

    def _keep_or_close(self, broker: _Broker, slot: Slot) -> None:
        if len(broker.common) < self._size and self._network.stands(slot.node, self._lane, slot.channel):
            broker.common.append(slot)
        else:
            self._network.forget(slot.channel)

    def _make_quarantine_room(self, broker: _Broker) -> bool:
        if len(broker.quarantined) < self._size:
            return True
        idle = next((slot for slot in broker.quarantined if not slot.outstanding), None)
        if idle is None:
            return False
        broker.quarantined.remove(idle)
        self._network.forget(idle.channel)
        return True

    # --- requests in flight

    def carry(self, slot: Slot, request: Request, size: int, now: int) -> Request:
        """Bind ``request`` of ``size`` bytes to ``slot``, and count it as outstanding until its response or failure."""
        token = next(self._tokens)
        if not slot.outstanding:
            slot.since_ms = now
        slot.outstanding[token] = size
        slot.bytes += size
        respond, fail, settle = request.on_response, request.on_failure, request.on_settled

        def on_response(body: Any, at: int) -> None:
            # The broker processes the next request when this client is no longer throttled.
            self._release(slot, token, at + max(0, getattr(body, "throttle_time", 0)), answered=True)
            respond(body, at)

        def on_failure(error: KafkaError, at: int) -> None:
            if not isinstance(error, KafkaTimeout):
                self._release(slot, token, at)
            fail(error, at)

        def on_settled(at: int) -> None:
            self._release(slot, token, at)
            if settle is not None:
                settle(at)

        request.node, request.lane, request.channel = slot.node, self._lane, slot.channel
        request.on_response, request.on_failure, request.on_settled = on_response, on_failure, on_settled
        return request

    def _release(self, slot: Slot, token: int, at_ms: int, *, answered: bool = False) -> None:
        if token not in slot.outstanding:
            return
        if token == next(iter(slot.outstanding)):
            # Requests that fail together with their connection say nothing about response times.
            if answered and (broker := self.brokers.get(slot.node)) is not None:
                broker.record_latency(at_ms - slot.since_ms)
            slot.since_ms = at_ms
        slot.bytes -= slot.outstanding.pop(token)
        slot.dedicated = slot.dedicated and bool(slot.outstanding)
        # Not before half of the room is free: all refused cores are polled then, not after every single response.
        if slot.node in self._refused and (not slot.outstanding if slot.slow else slot.bytes <= ROOM_BYTES // 2):
            self._free(slot.node)

    def _free(self, node: int) -> None:
        self._refused.discard(node)
        self.freed += 1

    # --- time, and removed brokers

    def update_slow(self, now: int) -> int:
        """Find connections that have become slow where a request waits for room; return ms until the next check."""
        wait = FOREVER_MS
        for node in list(self._refused):
            broker = self.brokers.get(node)
            if broker is None or self._network.throttled(node, now):
                continue
            if broker.late(now):
                self._free(node)  # the next pick opens another one in its place
                continue
            for slot in broker.common:
                if slot.outstanding and not slot.slow:
                    wait = min(wait, slot.since_ms + broker.slow_after_ms - now)
        return wait

    def retain(self, nodes: Collection[int]) -> None:
        """Drop the connections to brokers that are not among ``nodes``, except for those in use."""
        for node in [node for node in self.brokers if node not in nodes]:
            broker = self.brokers[node]
            for slots in (broker.common, broker.quarantined):
                for slot in [slot for slot in slots if not slot.outstanding]:
                    slots.remove(slot)
                    self._network.forget(slot.channel)
            if not any(True for _ in broker.all()):
                del self.brokers[node]
                self._refused.discard(node)
