"""When progress is committed, and what with it: once per attempt at a range."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.relay.model.policy import COMMIT_BYTES
from mirror.relay.partition.outbox import CommitCounts, Outbox
from mirror.relay.progress.committed import NOTHING, Progress, ProgressTotals
from mirror.timing import deadline, remaining

if TYPE_CHECKING:
    from mirror.relay.model.policy import CopyTimeouts
    from mirror.relay.partition.target_writer import TargetWriter

_HEARD_FIRST_MS: Final = 500

ProgressAt = Callable[[int, int | None], Progress]
"""From a source offset and the leader epoch before it."""


@dataclass(slots=True, eq=False)
class CommitInFlight:
    """A commit whose answer is awaited."""

    progress: Progress
    future: Future[None]
    tally: CommitCounts | None
    """What was written for it; None: all that the outbox has by then."""
    sent: ProgressTotals
    """What the outbox had sent by then."""
    began_ms: int


class Commits:
    """``known`` is the progress that is committed, or was found; ``must`` asks for one also of nothing new, first.

    ``since_ms`` is when the first of what is not committed was handed over, ``kept`` what was sent of what is. While
    they are on ``hold``, none begins. ``under_way`` is the one whose answer is awaited. ``took_ms`` is how long the
    last one took.
    """

    def __init__(self, carrier: TargetWriter, outbox: Outbox, times: CopyTimeouts, known: Progress, now: int) -> None:
        self.known = known
        self.must = self.hold = False
        self.kept = NOTHING
        self.took_ms = 0
        self._carrier = carrier
        self._outbox = outbox
        self._times = times
        self._bytes = 0
        self.since_ms = self._committed_ms = now
        self.under_way: CommitInFlight | None = None

    @property
    def full(self) -> bool:
        """Whether nothing more should be sent before the next commit."""
        if not self._carrier.atomic:
            return self.must
        return self.must or self._bytes >= COMMIT_BYTES or self.under_way is not None

    def sent(self, size: int, now: int) -> None:
        """Something is about to be handed over, to be committed."""
        if not self.wanted:
            self.since_ms = now
        self._bytes += size

    @property
    def wanted(self) -> bool:
        """Whether there is something to be committed."""
        ready = self._outbox.sent_offset if self._carrier.atomic else self._outbox.acked_offset
        return self.must or ready > self.known.offset

    def due_ms(self, *, caught_up: bool, ended: bool) -> int:
        """When to commit what is wanted; ``caught_up``: all that the source had was sent, ``ended``: and all there is.

        Few large transactions in a catch-up, quick small ones in the steady state. Where a commit does not take the
        data with it, it is of no use before the data is there, and comes at its interval.
        """
        latest_ms = self.since_ms + self._times.commit_ms
        if not self._carrier.atomic:
            return 0 if self.must or (ended and self._outbox.empty) else latest_ms
        if self.must or ended or self._bytes >= COMMIT_BYTES:
            return 0
        return min(latest_ms, self._committed_ms + self._times.commit_min_ms) if caught_up else latest_ms

    def begin(self, progress_at: ProgressAt, now: int) -> Future[None]:
        """Commit all that is wanted, within what is left of the oldest batch's time."""
        outbox, atomic = self._outbox, self._carrier.atomic
        oldest_ms = outbox.oldest_ms
        # A batch that expires says more of why than the commit that waits for it, and is to be heard first.
        until_ms = now if oldest_ms is None else deadline(oldest_ms, _HEARD_FIRST_MS)
        until_ms = deadline(until_ms, self._times.delivery_ms)
        if atomic:
            progress = progress_at(outbox.sent_offset, outbox.sent_epoch)
        else:
            progress = progress_at(outbox.acked_offset, outbox.acked_epoch)
        future = self._carrier.commit(progress, max(1, remaining(until_ms, now)))
        tally = None if atomic else outbox.take_tally()
        self.under_way = CommitInFlight(progress, future, tally, outbox.sent, now)
        self._bytes, self.since_ms = 0, now
        return future

    def take(self, now: int) -> tuple[CommitCounts | None, BaseException | None] | None:
        """The outcome of the one under way, once: what it committed, or why it did not; None while there is none.

        What a refused one would have committed is the outbox's again.
        """
        done = self.under_way
        if done is None or not done.future.done():
            return None
        self.under_way, self._committed_ms, self.took_ms = None, now, now - done.began_ms
        error = done.future.exception()
        if error is None:
            self._outbox.harvest(now)
            self.known, self.must, self.kept = done.progress, False, done.sent
            return done.tally or self._outbox.take_tally(), None
        if done.tally is not None:
            self._outbox.tally.add_all(done.tally)
        return None, error
