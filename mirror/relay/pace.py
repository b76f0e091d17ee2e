"""How much may be under way to a target, and how much may be taken from a source. Pure: ``now`` in ms is handed in.

KIP-91: in a catch-up a record may spend nearly all of its budget in the accumulator. So a batch is handed to the
producer, where its clock starts, only when it can soon be sent.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = 1024 * 1024
_LATE_MS: Final = 1_000


class Window:
    """Bytes handed to a target's producers and not answered for; grows with answers, shrinks with their delay.

    It doubles with each round of answers in time. An answer that took more than ``tolerable_ms`` halves it; one by
    which the broker says that it throttles leaves one batch at a time, and none before the broker listens again
    (KIP-219). A sick partition must not take the others' room: a batch that was overtaken, in that others which were
    sent a second later are answered for, is set aside. Where the window is full and nothing moves, those who have
    nothing under way try one at a time: either it overtakes, or all are slow.
    """

    def __init__(self, most: int, tolerable_ms: int, now: int) -> None:
        self._most: Final = most
        self._tolerable_ms: Final = tolerable_ms
        self._limit = min(_FIRST, most)
        self._under_way = 0
        self._held_until_ms = 0
        self._shrunk_until_ms = 0
        self._full = False
        self._moved_ms = self._answered_ms = self._latest_sent_ms = now
        self._patience_ms = _LATE_MS

    def may_send(self, now: int, *, idle: bool) -> bool:
        """Whether another batch may go; ``idle`` is a partition that has none under way."""
        if now < self._held_until_ms:
            return False
        if self._under_way < self._limit or self._under_way <= 0:
            return True
        self._full = True
        if idle and now - self._moved_ms >= self._patience_ms:
            self._moved_ms = now
            return True
        return False

    def next_ms(self, now: int) -> int:
        """When to ask again, where nothing else happens before."""
        return max(self._held_until_ms, self._moved_ms + self._patience_ms, now + 1)

    def sent(self, size: int, now: int) -> None:
        """A batch went out."""
        if self._under_way <= 0:
            self._moved_ms = self._answered_ms = now  # before that nobody waited for an answer
        self._under_way += size

    def overtaken(self, sent_ms: int) -> bool:
        """Whether a batch that was sent at ``sent_ms`` should be set aside."""
        return sent_ms + _LATE_MS <= self._latest_sent_ms

    def let_go(self, size: int) -> None:
        """A batch does not count any more: it is set aside, or given up."""
        self._under_way -= size

    def acknowledged(self, size: int, sent_ms: int, throttle_ms: int, now: int) -> None:
        """A batch that was sent at ``sent_ms`` is in the log; ``size`` is 0 where it was set aside."""
        self._under_way -= size
        self._patience_ms = max(_LATE_MS, 2 * (now - self._answered_ms))
        self._answered_ms = self._moved_ms = now
        self._latest_sent_ms = max(self._latest_sent_ms, sent_ms)
        if throttle_ms > 0:
            self._limit = 1
            self._held_until_ms = max(self._held_until_ms, now + throttle_ms)
        elif now - sent_ms > self._tolerable_ms:
            if now >= self._shrunk_until_ms:
                self._limit = max(1, self._limit // 2)
                # What is under way was sent under the old limit: it says nothing about the new one.
                self._shrunk_until_ms = 2 * now - sent_ms
        elif self._full:
            self._limit = min(self._most, self._limit + size)
            self._full = self._under_way >= self._limit


class Meter:
    """A limit on bytes per second (0: none), as debt that is worked off: what has come is never thrown away."""

    def __init__(self, bytes_per_second: int, now: int) -> None:
        self._rate: Final = bytes_per_second
        self._free_at: float = now

    def took(self, size: int, now: int) -> None:
        """``size`` bytes have come in."""
        if self._rate:
            self._free_at = max(self._free_at, now) + size * 1000 / self._rate

    def wait_ms(self, now: int) -> int:
        """How long to take nothing more."""
        return max(0, int(self._free_at - now)) if self._rate else 0


class Holdings:
    """Bytes taken from the source and not done with, by partition; ``limit`` for all of them together.

    A partition gets more only while what it would hold is at most what would be left free, as in the producer's memory
    (:class:`mirror.producer.memory.BufferPool`): stuck ones leave room. One that holds nothing needs any room at all.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._held = 0

    @property
    def room(self) -> int:
        """Bytes that may still be taken; not positive where there is no room."""
        return self._limit - self._held

    def may_take(self, held: int, part: int) -> bool:
        """Whether a partition that holds ``held`` bytes may take a ``part`` more."""
        return self.room > 0 and (held == 0 or held + part <= self.room - part)

    def took(self, size: int) -> None:
        """Bytes came in."""
        self._held += size

    def let_go(self, size: int) -> None:
        """Bytes are not needed any more."""
        self._held -= size
