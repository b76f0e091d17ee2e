"""How much may be under way to a target, and how much may be taken from a source. Pure: ``now`` in ms is handed in.

KIP-91: in a catch-up a record may spend nearly all of its budget in the accumulator. So a batch is handed to the
producer, where its clock starts, only when it can soon be sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from mirror.timing import FOREVER_MS

_FIRST: Final = 256 * 1024
_LATE_MS: Final = 1_000
_ASK_AGAIN_MS: Final = 100
_CREDIT_MS: Final = 500
_BOLD_MS: Final = 2_500
"""From this much tolerable delay on, the window doubles with each round.

A quota of Kafka's lets about ten seconds' worth pass at once, and asks for as much patience afterwards: what is under
way by then must fit into the time that there is.
"""


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """A batch of ``size`` bytes that was handed over at ``sent_ms``; one that is set ``aside`` does not count."""

    size: int
    sent_ms: int
    aside: bool = False


class SendWindow:
    """Bytes handed to a target's producers and not answered for; grows with answers, shrinks with their delay.

    It doubles with each round of answers in time, more slowly where ``tolerable_ms`` is short. An answer that took more
    than that halves it; one by which the broker says that it throttles leaves one batch at a time, and none before the
    broker listens again (KIP-219). Who finds no room stands in line, and is called when there is some: a batch each
    in turn, or those who send most would have all of it. A sick partition must not take the others' room: a batch that
    was overtaken, in that others which were sent a second later are answered for, is set aside. Where the window is
    full and nothing moves, those who have nothing under way try one at a time: either it overtakes, or all are slow.
    """

    def __init__(self, most: int, tolerable_ms: int, now: int) -> None:
        self._most: Final = most
        self._tolerable_ms: Final = tolerable_ms
        self._gain: Final = min(1.0, tolerable_ms / _BOLD_MS)
        self._limit: float = max(1.0, min(_FIRST * self._gain, most))
        self._counted = 0
        self._out: dict[InFlightBatch, None] = {}
        self._line: dict[Hashable, bool] = {}
        self._called: tuple[Hashable, int] | None = None
        self._full = False
        self._held_until_ms = self._shrunk_until_ms = now
        self._moved_ms = self._answered_ms = self._latest_sent_ms = now
        self._patience_ms = _LATE_MS

    @property
    def under_way(self) -> int:
        """Bytes that count."""
        return self._counted

    @property
    def awaited(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def may_send(self, who: Hashable, now: int, *, idle: bool) -> bool:
        """Whether ``who`` may send a batch; ``idle``: it has none under way. Otherwise it stands in line."""
        called, self._called = self._called, None
        if called == (who, now):
            return True
        if self._has_room(now) and next(iter(self._line), who) == who:
            self._line.pop(who, None)
            return True
        self.wait(who, idle=idle)
        return False

    def wait(self, who: Hashable, *, idle: bool) -> None:
        """``who`` stands in line, where it stood if it did."""
        self._line[who] = idle

    def leave(self, who: Hashable) -> None:
        """``who`` wants nothing any more."""
        self._line.pop(who, None)

    def call(self, now: int) -> Hashable | None:
        """Whose turn it is to send a batch, now; None where nobody's is. It stands in line no more."""
        who: Hashable | None = None
        if self._line and self._has_room(now):
            who = next(iter(self._line))
        elif now >= self._held_until_ms and now - self._moved_ms >= self._patience_ms:
            who = next((one for one, idle in self._line.items() if idle), None)
            self._moved_ms = now
        if who is not None:
            del self._line[who]
            self._called = (who, now)
        return who

    def next_ms(self, now: int) -> int:
        """When to :meth:`call`, where nothing else happens before."""
        if not self._line:
            return FOREVER_MS
        if now < self._held_until_ms:
            return self._held_until_ms
        # With room in the window: somebody waits for memory.
        return max(now + _ASK_AGAIN_MS, min(self._moved_ms + self._patience_ms, now + _LATE_MS))

    def _has_room(self, now: int) -> bool:
        if now < self._held_until_ms:
            return False
        if self._counted <= 0 or self._counted < self._limit:
            return True
        self._full = True
        return False

    def sent(self, size: int, now: int) -> InFlightBatch:
        """A batch went out."""
        if not self._out:
            self._moved_ms = self._answered_ms = now  # before that nobody waited for an answer
        ticket = InFlightBatch(size, now)
        self._out[ticket] = None
        self._counted += size
        return ticket

    def let_go(self, ticket: InFlightBatch) -> None:
        """A batch does not count any more."""
        if ticket in self._out:
            del self._out[ticket]
            self._counted -= ticket.size

    def acknowledged(self, ticket: InFlightBatch, throttle_ms: int, now: int) -> None:
        """A batch is in the log."""
        self.let_go(ticket)
        self._patience_ms = max(_LATE_MS, 2 * (now - self._answered_ms))
        self._answered_ms = self._moved_ms = now
        self._latest_sent_ms = max(self._latest_sent_ms, ticket.sent_ms)
        self._set_aside()
        if throttle_ms > 0:
            self._limit = 1
            self._held_until_ms = max(self._held_until_ms, now + throttle_ms)
        elif ticket.aside:
            pass  # late by itself: it says nothing of the others
        elif now - ticket.sent_ms > self._tolerable_ms:
            if now >= self._shrunk_until_ms:
                self._limit = max(1, self._limit / 2)
                # What is under way was sent under the old limit: it says nothing about the new one.
                self._shrunk_until_ms = 2 * now - ticket.sent_ms
        elif self._full:
            self._limit = min(self._most, self._limit + ticket.size * self._gain)
            self._full = self._counted >= self._limit

    def _set_aside(self) -> None:
        """Those that were overtaken; they are in the order of their sending."""
        while self._out:
            oldest = next(iter(self._out))
            if oldest.sent_ms + _LATE_MS > self._latest_sent_ms:
                return
            oldest.aside = True
            self.let_go(oldest)


class RateLimiter:
    """A limit on bytes per second (0: none), as debt that is worked off: what has come is never thrown away.

    Who comes late for more, because the machine was busy, makes up for ``_CREDIT_MS`` of it at most. In whole numbers:
    a float that is off by 1e-9 ms would let pass what is not paid for.
    """

    def __init__(self, bytes_per_second: int, now: int) -> None:
        self._rate: Final = bytes_per_second
        self._free_at: int = now * bytes_per_second  # in ms times the rate, which is thousandths of a byte
        self._began = False

    def took(self, size: int, now: int) -> None:
        """``size`` bytes have come in."""
        if self._rate:
            credit_ms = _CREDIT_MS if self._began else 0  # the time before the first bytes was not the machine's
            self._free_at = max(self._free_at, (now - credit_ms) * self._rate) + size * 1000
            self._began = True

    def wait_ms(self, now: int) -> int:
        """How long to take nothing more."""
        return max(0, self._free_at // self._rate - now) if self._rate else 0


class SourceBudget:
    """Bytes taken from the source and not done with, by partition; ``limit`` for all of them together.

    A partition gets more only while what it would hold is at most what would be left free, as in the producer's memory
    (``producer.batch.memory.BufferPool``): stuck ones leave room. One that holds nothing needs any room at all.
    ``short``: somebody was refused room, and is to be asked again as soon as there is more: ``eased``.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._held = 0
        self.short = self.eased = False

    @property
    def held(self) -> int:
        """Bytes that all hold together."""
        return self._held

    @property
    def room(self) -> int:
        """Bytes that may still be taken; not positive where there is no room."""
        return self._limit - self._held

    def may_take(self, held: int, part: int) -> bool:
        """Whether a partition that holds ``held`` bytes may take a ``part`` more."""
        may = self.room > 0 and (held == 0 or held + part <= self.room - part)
        self.short = self.short or not may
        return may

    def took(self, size: int) -> None:
        """Bytes came in."""
        self._held += size

    def let_go(self, size: int) -> None:
        """Bytes are not needed any more."""
        self._held -= size
        self.eased = self.eased or self.short

    def ask_all(self) -> None:
        """All are asked now whether they want more."""
        self.short = self.eased = False
