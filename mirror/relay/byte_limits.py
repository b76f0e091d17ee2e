"""Limits on the bytes in flight to a target and on the bytes taken from a source.

Pure: ``now`` in ms is an argument.

KIP-91: a producer that catches up may keep a record in its accumulator for nearly all of ``delivery.timeout.ms``.
So a batch is handed to the producer, where its delivery timeout starts, only when it can soon be sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from mirror.timing import FOREVER_MS

_INITIAL_WINDOW_BYTES: Final = 256 * 1024
_STALL_MS: Final = 1_000
"""A batch is overtaken when batches sent this much later are acknowledged before it.

Also the shortest time without an acknowledgement after which a full window lets one more sender try.
"""
_MEMORY_RETRY_MS: Final = 100
_CREDIT_MS: Final = 500
_DOUBLING_DELAY_MS: Final = 2_500
"""If the tolerable delay is at least this long, the window doubles with each round trip.

A Kafka quota lets about ten seconds' worth of bytes pass at once and then throttles for as long: the bytes in flight
at that moment must still be delivered in time.
"""


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """A batch that was handed to the producer and is not acknowledged yet."""

    size: int
    """Bytes."""
    sent_ms: int
    overtaken: bool = False
    """Later batches were acknowledged first, so this one no longer counts against the window."""


# Invariant: A catch-up expires no healthy batch: only as much is handed to the producer as is acknowledged in time, and
#   a batch that others overtook does not fill the window.
# Test: tests/copying/test_isolation.py::test_throttling_target_expires_nothing
# Test: tests/relay/test_byte_limits_simulated.py::test_throttled_target_with_a_huge_backlog_expires_nothing
# Test: tests/relay/test_byte_limits.py::test_overtaken_batch_does_not_count_and_its_acknowledgement_changes_nothing
class SendWindow:
    """Limit on the bytes that a target's producers have in flight; it adapts to the delay of acknowledgements.

    - An acknowledgement within ``tolerable_ms`` lets the window grow: it doubles with each round trip, or grows more
      slowly if ``tolerable_ms`` is short. A later acknowledgement halves it.
    - If the broker throttles, one batch at a time is sent, and none before the throttle time has passed (KIP-219).
    - A sender that finds no room waits in a queue and is called when there is room. Senders take turns, a batch each:
      otherwise the busiest partitions would take the whole window.
    - A stuck partition must not use up the room of the others: a batch that was overtaken no longer counts.
    - If the window is full and nothing is acknowledged, senders with nothing in flight may try one at a time. Either
      their batch overtakes the others, or the whole target is slow.
    """

    def __init__(self, max_bytes: int, tolerable_ms: int, now: int) -> None:
        self._max_bytes: Final = max_bytes
        self._tolerable_ms: Final = tolerable_ms
        self._gain: Final = min(1.0, tolerable_ms / _DOUBLING_DELAY_MS)
        self.limit: float = max(1.0, min(_INITIAL_WINDOW_BYTES * self._gain, max_bytes))
        self._counted_bytes = 0
        self._in_flight: dict[InFlightBatch, None] = {}
        self._queue: dict[Hashable, bool] = {}  # sender -> whether it has nothing in flight
        self._called: tuple[Hashable, int] | None = None
        self._was_full = False
        self._throttled_until_ms = self._shrunk_until_ms = now
        self._progress_ms = self._acknowledged_ms = self._latest_sent_ms = now
        self._patience_ms = _STALL_MS

    @property
    def in_flight_bytes(self) -> int:
        """Bytes in flight, without overtaken batches."""
        return self._counted_bytes

    @property
    def waiting_count(self) -> int:
        """How many senders wait in the queue."""
        return len(self._queue)

    def may_send(self, sender: Hashable, now: int, *, idle: bool) -> bool:
        """Whether ``sender`` may send a batch now; if not, it is queued. ``idle``: it has nothing in flight."""
        called, self._called = self._called, None
        if called == (sender, now):
            return True
        if self._has_room(now) and next(iter(self._queue), sender) == sender:
            self._queue.pop(sender, None)
            return True
        self.enqueue(sender, idle=idle)
        return False

    def enqueue(self, sender: Hashable, *, idle: bool) -> None:
        """Queue ``sender``; if it is queued already, it keeps its place."""
        self._queue[sender] = idle

    def dequeue(self, sender: Hashable) -> None:
        """Remove ``sender`` from the queue."""
        self._queue.pop(sender, None)

    def next_sender(self, now: int) -> Hashable | None:
        """Remove and return the sender that may send a batch now; None if there is none."""
        sender: Hashable | None = None
        if self._queue and self._has_room(now):
            sender = next(iter(self._queue))
        elif now >= self._throttled_until_ms and now - self._progress_ms >= self._patience_ms:
            sender = next((queued for queued, idle in self._queue.items() if idle), None)
            self._progress_ms = now
        if sender is not None:
            del self._queue[sender]
            self._called = (sender, now)
        return sender

    def due_ms(self, now: int) -> int:
        """When to call :meth:`next_sender` if nothing else happens before."""
        if not self._queue:
            return FOREVER_MS
        if now < self._throttled_until_ms:
            return self._throttled_until_ms
        # A sender can be queued although the window has room: it waits for buffer memory.
        return max(now + _MEMORY_RETRY_MS, min(self._progress_ms + self._patience_ms, now + _STALL_MS))

    def _has_room(self, now: int) -> bool:
        if now < self._throttled_until_ms:
            return False
        if self._counted_bytes <= 0 or self._counted_bytes < self.limit:
            return True
        self._was_full = True
        return False

    def on_sent(self, size: int, now: int) -> InFlightBatch:
        """Count a batch of ``size`` bytes that was handed to the producer."""
        if not self._in_flight:
            self._progress_ms = self._acknowledged_ms = now  # until now there was nothing to acknowledge
        batch = InFlightBatch(size, now)
        self._in_flight[batch] = None
        self._counted_bytes += size
        return batch

    def release(self, batch: InFlightBatch) -> None:
        """Stop counting ``batch``."""
        if batch in self._in_flight:
            del self._in_flight[batch]
            self._counted_bytes -= batch.size

    def on_acknowledged(self, batch: InFlightBatch, throttle_ms: int, now: int) -> None:
        """Release ``batch``, which the target acknowledged, and adapt the window to its delay."""
        self.release(batch)
        self._patience_ms = max(_STALL_MS, 2 * (now - self._acknowledged_ms))
        self._acknowledged_ms = self._progress_ms = now
        self._latest_sent_ms = max(self._latest_sent_ms, batch.sent_ms)
        self._release_overtaken()
        if throttle_ms > 0:
            self.limit = 1
            self._throttled_until_ms = max(self._throttled_until_ms, now + throttle_ms)
        elif batch.overtaken:
            pass  # only its own partition was slow: its delay says nothing about the other partitions
        elif now - batch.sent_ms > self._tolerable_ms:
            if now >= self._shrunk_until_ms:
                self.limit = max(1, self.limit / 2)
                # The batches in flight were sent under the old limit: their delay says nothing about the new one.
                self._shrunk_until_ms = 2 * now - batch.sent_ms
        elif self._was_full:
            self.limit = min(self._max_bytes, self.limit + batch.size * self._gain)
            self._was_full = self._counted_bytes >= self.limit

    def _release_overtaken(self) -> None:
        while self._in_flight:
            oldest = next(iter(self._in_flight))  # they are in the order in which they were sent
            if oldest.sent_ms + _STALL_MS > self._latest_sent_ms:
                return
            oldest.overtaken = True
            self.release(oldest)


class RateLimiter:
    """Limit in bytes per second (0: none). Bytes beyond it are kept, and delay the next ones.

    A caller that comes late, because the machine was busy, may catch up on at most ``_CREDIT_MS`` of the limit. The
    arithmetic uses integers: a float that is off by 1e-9 ms would let unpaid bytes pass.
    """

    def __init__(self, bytes_per_second: int, now: int) -> None:
        self._rate: Final = bytes_per_second
        self._free_at: int = now * bytes_per_second  # ms times bytes per second: thousandths of a byte
        self._started = False

    def on_received(self, size: int, now: int) -> None:
        """Count ``size`` bytes that were received."""
        if self._rate:
            credit_ms = _CREDIT_MS if self._started else 0  # a late start is no reason to catch up
            self._free_at = max(self._free_at, (now - credit_ms) * self._rate) + size * 1000
            self._started = True

    def wait_ms(self, now: int) -> int:
        """How long to receive nothing more."""
        return max(0, self._free_at // self._rate - now) if self._rate else 0


# Invariant: Nothing is fetched for a partition for which nothing can be sent: it costs its neighbours no throughput.
# Test: tests/copying/test_isolation.py::test_one_sick_partition_costs_the_others_nothing
# Test: tests/relay/partition/
#   test_memory.py::test_fetched_bytes_are_released_once_when_all_their_batches_are_acknowledged
class SourceBudget:
    """Limit on the bytes that all partitions together have taken from the source and still need.

    A partition gets more only if what it would then hold is at most what would be left free, as in the producer's
    memory (``producer.batch.memory.BufferPool``), so that stuck partitions leave room for the others. A partition that
    holds nothing needs only some room.
    """

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._held = 0
        self.any_refused = False
        """A partition was refused room since :meth:`clear_refused`."""
        self.retry_refused = False
        """Room was released since: refused partitions should be asked again."""

    @property
    def held(self) -> int:
        """Bytes that all partitions hold together."""
        return self._held

    @property
    def free(self) -> int:
        """Bytes that may still be taken; zero or negative if there is no room."""
        return self.limit - self._held

    def may_fetch(self, held: int, fetch_bytes: int) -> bool:
        """Whether a partition that holds ``held`` bytes may take ``fetch_bytes`` more."""
        allowed = self.free > 0 and (held == 0 or held + fetch_bytes <= self.free - fetch_bytes)
        self.any_refused = self.any_refused or not allowed
        return allowed

    def may_refuse(self, fetch_bytes: int) -> bool:
        """Whether there may be a partition that may not take ``fetch_bytes`` more: one that holds all that is held."""
        return self._held + fetch_bytes > self.free - fetch_bytes

    def add(self, size: int) -> None:
        """Count ``size`` bytes that were taken from the source."""
        self._held += size

    def release(self, size: int) -> None:
        """Stop counting ``size`` bytes, which are no longer needed."""
        self._held -= size
        self.retry_refused = self.retry_refused or self.any_refused

    def clear_refused(self) -> None:
        """Forget earlier refusals: every partition is about to be asked again."""
        self.any_refused = self.retry_refused = False
