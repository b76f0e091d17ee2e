"""Several connections to one broker, shared by all the clients of a cluster: which one a request takes.

A broker works on one request per connection at a time, also while an acks=all Produce waits for its replicas
(design: "Connections"). So there are a few, and nobody is put behind one that does not answer.
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
"""At the latest. A broker that garbage-collects for so long is no worse off for one connection more."""
_SOON_MS: Final = 50
_TIMES: Final = 10
"""An answer that takes so many times as long as they did lately is slow, but none of less than ``_SOON_MS``."""
_OVERDUE_MS: Final = 10
_OVERDUE_TIMES: Final = 3
"""Nobody is put behind an answer that takes so much longer than usual while another connection is on its way."""
_RECENT: Final = 8
"""Answers, about, that the usual time is made of."""
ROOM_BYTES: Final = 8 * 1024 * 1024
"""Unanswered bytes of one connection: more wait in their queues, where they can expire unsent. A request that finds
it below this still goes, however large."""


@dataclass(slots=True, eq=False)
class Slot:
    """One connection of a pool, by its channel. ``owed`` are the sizes of the requests that it owes an answer for.

    ``since_ms`` is when it began to owe the first of them: when that was sent, or when the one before it was answered.
    It is ``slow`` from when that is long ago until it owes nothing, and ``sole`` until then where it is for partitions
    of which nothing is known yet.
    """

    node: int
    channel: int
    owed: dict[int, int] = field(default_factory=dict)
    bytes: int = 0
    since_ms: int = 0
    slow: bool = False
    sole: bool = False

    @property
    def has_room(self) -> bool:
        """Whether another request may be put on it."""
        return self.bytes < ROOM_BYTES


@dataclass(slots=True, eq=False)
class _Broker:
    """The connections to one broker: ``common`` for all, ``apart`` the slow ones and those for slow partitions.

    ``usual_ms`` is how long answers took lately, a moving average; after ``slow_after_ms``, and ``at_most_ms`` in any
    case, one is slow.
    """

    at_most_ms: int
    slow_after_ms: int = field(init=False)
    common: list[Slot] = field(default_factory=list)
    apart: list[Slot] = field(default_factory=list)
    usual_ms: float | None = None

    def __post_init__(self) -> None:
        self.slow_after_ms = self.at_most_ms

    def took(self, ms: int) -> None:
        """An answer came after ``ms``: those that come much later from now on are slow."""
        ms = max(0, min(ms, SLOW_AFTER_MS))
        self.usual_ms = ms if self.usual_ms is None else self.usual_ms + (ms - self.usual_ms) / _RECENT
        self.slow_after_ms = min(self.at_most_ms, max(_SOON_MS, int(_TIMES * self.usual_ms)))

    def late(self, now: int) -> list[Slot]:
        """Those for all whose answer takes too long, and which are not called slow yet."""
        since_ms = now - self.slow_after_ms
        return [slot for slot in self.common if slot.owed and not slot.slow and slot.since_ms <= since_ms]

    def is_overdue(self, slot: Slot, now: int) -> bool:
        """Whether its answer takes longer than usual, though it may not be slow yet."""
        return self.usual_ms is not None and now - slot.since_ms > max(_OVERDUE_MS, _OVERDUE_TIMES * self.usual_ms)

    def all(self) -> Iterator[Slot]:
        return itertools.chain(self.common, self.apart)


class ConnectionPool:
    """The connections of one lane. Neither ``common`` nor ``apart`` ever has more than ``size`` per broker.

    ``refusals`` counts what found no connection, ``freed`` rises when such a one may find one now; what else it may
    wait for (a connection that becomes ready, or is no longer throttled) is told by ``Network.changes``.
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
        self._brokers: dict[int, _Broker] = {}
        self._refused: set[int] = set()
        self._tokens = itertools.count()

    # --- which connection

    def pick(self, node: int, now: int, *, slow: bool = False, sole: bool = False) -> Slot | None:
        """A connection to ``node`` that a request goes out on at once, the least busy; None where there is none.

        ``slow`` is for a partition that did not answer in time before: it keeps to the connections set apart, where it
        may stand behind anybody. ``sole`` is for one of which nothing is known yet: none that does answer is put behind
        it before it has. What is picked is meant to be used, by :meth:`carry`, before the next is picked.
        """
        broker = self._brokers.get(node)
        if broker is None:
            broker = self._brokers[node] = _Broker(self._slow_after_ms)
        self._sort_out(broker, now)
        if sole and not slow:
            slot = self._for_new(broker, node, now)
        else:
            slot = self._from(broker.apart if slow else broker.common, node, now, behind_slow=slow)
        if slot is None:
            self._refuse(node)
        return slot

    def _for_new(self, broker: _Broker, node: int, now: int) -> Slot | None:
        """A connection of its own, as long as there are some to spare; else behind others that are new, too.

        Where all are busy with those that answer: one set apart, and at last theirs.
        """
        spare = self._spare(broker.common)
        slot = self._from(broker.common, node, now, behind_slow=False) if spare else None
        if not spare or (slot is not None and slot.owed):
            fellow = self._least_busy(broker.common, now, behind_slow=False, new=True)
            if fellow is not None:
                return fellow
            slot = slot or self._from(broker.common, node, now, behind_slow=False)
            if slot is not None and slot.owed:
                slot = self._alone(broker, node, now, slot)
        if slot is not None and not slot.owed:
            slot.sole = spare or slot in broker.apart
        return slot

    def _spare(self, slots: list[Slot]) -> bool:
        """Whether another may be one request's alone: half of them are left to the others in any case."""
        return sum(slot.sole for slot in slots) < max(1, self._size // 2)

    def _alone(self, broker: _Broker, node: int, now: int, shared: Slot) -> Slot | None:
        """A connection set apart that owes nothing, or will in a moment (then None); ``shared`` where there is none."""
        if not self._spare(broker.apart):
            return shared
        free, opening = self._unoccupied(broker.apart, node, now)
        if free is None and not opening and self._may_grow(broker.apart, node, now):
            free, opening = self._grown(broker.apart, node, now), True
        # One that does not come, since the broker takes no more, is no reason to wait.
        waits = opening and self._network.trouble(node) is None
        return free if free is not None or waits else shared

    def stands(self, slot: Slot, now: int) -> bool:
        """Whether a queue with unanswered batches on ``slot`` may send more there now, which keeps them in order.

        Not on one that is slow: once its answers are there, the queue can go elsewhere.
        """
        if not slot.owed or not self._ready(slot, now):
            return False
        if (broker := self._brokers.get(slot.node)) is not None:
            self._sort_out(broker, now)
        if not slot.slow and not slot.has_room:
            self._refuse(slot.node)
        return not slot.slow and slot.has_room

    def _from(self, slots: list[Slot], node: int, now: int, *, behind_slow: bool) -> Slot | None:
        free, opening = self._unoccupied(slots, node, now)
        if free is not None:
            return free
        best = self._least_busy(slots, now, behind_slow=behind_slow)
        # One after the other, so that it grows no further than it helps.
        if not slots or (not opening and self._may_grow(slots, node, now)):
            if (free := self._grown(slots, node, now)) is not None:
                return free
            opening = True
        return None if best is None or (opening and self._better_waits(best, now, behind_slow=behind_slow)) else best

    def _better_waits(self, best: Slot, now: int, *, behind_slow: bool) -> bool:
        """Whether a connection on its way is there sooner than ``best`` will have answered."""
        if behind_slow:  # nothing is known of that answer; but the connection may never come, either
            return best.sole and self._network.trouble(best.node) is None
        return self._brokers[best.node].is_overdue(best, now)

    def _unoccupied(self, slots: list[Slot], node: int, now: int) -> tuple[Slot | None, bool]:
        """One that owes nothing; whether one is on its way."""
        opening = False
        for slot in list(slots):
            if slot.owed:
                continue
            if not self._network.stands(node, self._lane, slot.channel):
                slots.remove(slot)  # it broke, or was closed as idle: the next is opened only when it is needed
            elif self._ready(slot, now):
                return slot, opening
            else:
                opening = True
        return None, opening

    def _may_grow(self, slots: list[Slot], node: int, now: int) -> bool:
        """A throttled client would gain nothing by it."""
        return len(slots) < self._size and not self._network.throttled(node, now)

    def _grown(self, slots: list[Slot], node: int, now: int) -> Slot | None:
        """Another one; None while it is on its way."""
        slot = Slot(node, self._new_channel())
        slots.append(slot)
        return slot if self._ready(slot, now) else None

    def _least_busy(self, slots: list[Slot], now: int, *, behind_slow: bool, new: bool = False) -> Slot | None:
        """Of those that owe something; ``new``: of those that are kept for the new ones.

        ``behind_slow``: of all, those that are kept for the new ones last. New ones that do not answer can come to hold
        every connection apart, and who is slow, too, would have none for as long.
        """
        shared = [slot for slot in slots if slot.owed and slot.has_room]
        shared = [slot for slot in shared if behind_slow or (slot.sole == new and not slot.slow)]
        shared.sort(key=lambda slot: (slot.sole, len(slot.owed), slot.bytes))
        return next((slot for slot in shared if self._ready(slot, now)), None)

    def _ready(self, slot: Slot, now: int) -> bool:
        return self._network.ready(slot.node, self._lane, now, slot.channel)

    def _refuse(self, node: int) -> None:
        self.refusals += 1
        self._refused.add(node)

    # --- slow ones, and too many

    def _sort_out(self, broker: _Broker, now: int) -> None:
        """Set apart what has become slow, so that another takes its place; take back, or close, what no longer is."""
        late = broker.late(now)
        # What a throttled connection owes waits for our own sake (KIP-219).
        if late and not self._network.throttled(late[0].node, now):
            for slot in late:
                slot.slow = True
        for slot in list(broker.apart):
            if slot.slow and not slot.owed:
                slot.slow = False
                broker.apart.remove(slot)
                self._keep_or_close(broker, slot)
        for slot in list(broker.common):
            if not slot.owed:
                slot.slow = False
            elif slot.slow and self._room_apart(broker):
                broker.common.remove(slot)
                broker.apart.append(slot)

    def _keep_or_close(self, broker: _Broker, slot: Slot) -> None:
        if len(broker.common) < self._size and self._network.stands(slot.node, self._lane, slot.channel):
            broker.common.append(slot)
        else:
            self._network.forget(slot.channel)

    def _room_apart(self, broker: _Broker) -> bool:
        if len(broker.apart) < self._size:
            return True
        idle = next((slot for slot in broker.apart if not slot.owed), None)
        if idle is None:
            return False
        broker.apart.remove(idle)
        self._network.forget(idle.channel)
        return True

    # --- the account

    def carry(self, slot: Slot, request: Request, size: int, now: int) -> Request:
        """``request`` of ``size`` bytes, made to go on ``slot``, which owes its answer until it is there or lost."""
        token = next(self._tokens)
        if not slot.owed:
            slot.since_ms = now
        slot.owed[token] = size
        slot.bytes += size
        respond, fail, settle = request.on_response, request.on_failure, request.on_settled

        def on_response(body: Any, at: int) -> None:
            # The broker takes up the next one only when this client is no longer throttled.
            self._settle(slot, token, at + max(0, getattr(body, "throttle_time", 0)), answered=True)
            respond(body, at)

        def on_failure(error: KafkaError, at: int) -> None:
            if not isinstance(error, KafkaTimeout):
                self._settle(slot, token, at)
            fail(error, at)

        def on_settled(at: int) -> None:
            self._settle(slot, token, at)
            if settle is not None:
                settle(at)

        request.node, request.lane, request.channel = slot.node, self._lane, slot.channel
        request.on_response, request.on_failure, request.on_settled = on_response, on_failure, on_settled
        return request

    def _settle(self, slot: Slot, token: int, at_ms: int, *, answered: bool = False) -> None:
        if token not in slot.owed:
            return
        if token == next(iter(slot.owed)):
            # What is lost with its connection, all at one time, says nothing of how long answers take.
            if answered and (broker := self._brokers.get(slot.node)) is not None:
                broker.took(at_ms - slot.since_ms)
            slot.since_ms = at_ms
        slot.bytes -= slot.owed.pop(token)
        slot.sole = slot.sole and bool(slot.owed)
        # Not before half of it is free: those who wait are all asked at once, and not for every single answer.
        if slot.node in self._refused and (not slot.owed if slot.slow else slot.bytes <= ROOM_BYTES // 2):
            self._free(slot.node)

    def _free(self, node: int) -> None:
        self._refused.discard(node)
        self.freed += 1

    # --- time, and brokers that left

    def look(self, now: int) -> int:
        """Notice what has become slow where somebody waits for room; ms until this must be asked again."""
        wait = FOREVER_MS
        for node in list(self._refused):
            broker = self._brokers.get(node)
            if broker is None or self._network.throttled(node, now):
                continue
            if broker.late(now):
                self._free(node)  # another takes the place of the slow one, at the next pick
                continue
            for slot in broker.common:
                if slot.owed and not slot.slow:
                    wait = min(wait, slot.since_ms + broker.slow_after_ms - now)
        return wait

    def retain(self, nodes: Collection[int]) -> None:
        """The cluster's brokers are these: forget the others, except for what they still owe."""
        for node in [node for node in self._brokers if node not in nodes]:
            broker = self._brokers[node]
            for slots in (broker.common, broker.apart):
                for slot in [slot for slot in slots if not slot.owed]:
                    slots.remove(slot)
                    self._network.forget(slot.channel)
            if not any(True for _ in broker.all()):
                del self._brokers[node]
                self._refused.discard(node)
