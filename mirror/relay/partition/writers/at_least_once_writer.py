"""Writes at least once: plain batches, and afterwards the progress of what is acknowledged.

Nothing fences an earlier attempt. In a stream, that of the epoch before may copy on under its lease. On the same host
it is asked to yield. Elsewhere it finds the progress that the next attempt has committed: under a lease, each commit
reads the progress first, and ends the attempt if that is not its own any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from mirror.client import Admin, Producer, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.producer.batch.batches import Callback
from mirror.relay.futures import done, then
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.continuation import Continuation, Earlier, base_of
from mirror.relay.partition.writers.takeover import read_latest_progress
from mirror.relay.progress.committed import NO_TOTALS, Progress, ProgressChanged, group_of, to_offset
from mirror.relay.progress.committer import ProgressCommitter, commit_due_ms
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_loss import TargetLoss
from mirror.timing import FOREVER_MS
from mirror.wire.records import Batch

_KEPT_COMMITS: Final = 4
"""How many commits of its own an attempt recognizes: those before the last one may be executed late if they failed."""


class AtLeastOnceWriter:
    """Writes with the idempotent producer that all partitions of a task share; commits progress afterwards.

    Two attempts at a time copy records twice, and may move the progress back. No record is left out.
    """

    atomic = False
    way = None
    valid_until_ms = FOREVER_MS
    fences_in_doubt = advanced_ms = 0

    def __init__(
        self,
        flow: str,
        tp: TopicPartition,
        admin: Admin,
        producer: Producer,
        committer: ProgressCommitter,
        chain: int,
        *,
        takes_over: bool = False,
        earlier: Earlier | None = None,
        under_lease: Callable[[], bool] = lambda: False,
    ) -> None:
        """``chain`` numbers the attempts: after a batch has failed, no later batch of the same attempt is sent.

        ``takes_over``: the attempt of the epoch before may run on under its lease; ``earlier`` asks it to yield if it
        is on this host. ``under_lease``: whether this attempt's epoch has ended.
        """
        self._flow: Final = flow
        self._tp: Final = tp
        self._group: Final = group_of(flow, tp)
        self._admin: Final = admin
        self._producer: Final = producer
        self._committer: Final = committer
        self._chain: Final = chain
        self._earlier = earlier
        self._under_lease: Final = under_lease
        self._opened_with: Progress | None = None
        self._own_commits: Final[deque[tuple[int, int]]] = deque(maxlen=_KEPT_COMMITS)
        """The offset and time of the progress where it began, and of what it has committed."""
        self.acquired = not takes_over and earlier is None

    @property
    def producer_id(self) -> int:
        """The same for all partitions."""
        return self._producer.producer_id

    @property
    def continues(self) -> bool:
        """Whether an earlier attempt has to be asked to yield, or shown that this one has begun."""
        return not self.acquired

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        """Read the progress, which may be that of a copy by sequences. ``planned`` may be older: it would repeat."""
        del planned

        def on_read(progress: Progress | None) -> Future[Progress | None]:
            self._opened_with = progress
            if progress is not None:
                self._own_commits.append(_key(progress))
            return done(progress)

        return then(self._read_progress(timeout_ms), on_read)

    def _read_progress(self, timeout_ms: int) -> Future[Progress | None]:
        # A pending claim of a killed copy is not waited for: the progress before it repeats records, and loses none.
        return read_latest_progress(self._admin, self._flow, self._tp, timeout_ms, require_stable=False)

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        """Do nothing: what is behind the progress is repeated."""

    def acquire(
        self, progress: Progress, timeout_ms: int, loss: TargetLoss | None, *, fences: bool = True
    ) -> Future[FoundPosition]:
        """Continue the earlier attempt of this host; otherwise resume at the committed progress, and commit it again.

        It fences nothing, so that an idle partition may be copied under its lease. After a ``loss``, what stands behind
        the anchor is repeated.
        """
        del fences
        ask, self._earlier = self._earlier, None
        asked: Future[Continuation | None] = done(None) if ask is None else ask()

        def begin(earlier: Continuation | None) -> Future[FoundPosition]:
            if loss is not None:
                return self._begin_at(progress, loss)
            if earlier is not None and earlier.follows(self._opened_with, progress):
                return self._begin_at(earlier.progress)
            return then(self._read_progress(timeout_ms), lambda found: self._claim(found, progress, timeout_ms))

        return then(asked, begin)

    def _claim(self, found: Progress | None, progress: Progress, timeout_ms: int) -> Future[FoundPosition]:
        """Resume at what was ``found``, and let an earlier attempt under its lease find that this one has begun."""
        base = base_of(self._opened_with, progress, found)
        if found is None or base.offset > progress.offset:
            return self._begin_at(base)  # which the attempt commits before it sends
        # A commit that was executed late has moved the progress back: it is moved forward again.
        return then(self._commit(progress, timeout_ms), lambda _: self._begin_at(progress))

    def _begin_at(self, progress: Progress, loss: TargetLoss | None = None) -> Future[FoundPosition]:
        self.acquired = True
        return done(FoundPosition(progress, NO_TOTALS, loss))

    def acquire_timeout(self) -> KafkaTimeout:
        """The calls are few, and each has its own timeout."""
        return KafkaTimeout(
            f"{self._tp}: the earlier attempt on this host, or the group {self._group!r}, did not answer"
        )

    def send(self, batch: Batch, created_ms: int | None, callback: Callback, log_end: int) -> None:
        """Send in order, in this attempt's chain. A loss is found when the answer is processed."""
        del log_end
        self._producer.post_batch(self._tp, batch, callback, created_ms=created_ms, chain=self._chain)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit with the other partitions of the group; each fails alone.

        Under a lease, ProgressChanged if another attempt has committed.
        """
        if not self._under_lease():
            plain = self._own(progress)
            return self._committer.commit(self._tp, to_offset(plain), timeout_ms)

        def check(found: Progress | None) -> Future[None]:
            if found is None or _key(found) not in self._own_commits:
                raise ProgressChanged
            return self._commit(progress, timeout_ms)

        return then(self._read_progress(timeout_ms), check)

    def _commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit on any thread; the committer is the task's."""
        return self._admin.commit_offset_async(self._group, self._tp, to_offset(self._own(progress)), timeout_ms)

    def _own(self, progress: Progress) -> Progress:
        self._own_commits.append(_key(progress))
        return replace(progress, way=Way.TRANSACTIONS, producer_id=-1)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int) -> int:
        """Commit when the other partitions of the group do."""
        return commit_due_ms(self._tp, pending_since_ms, interval_ms)

    def yield_to_next(self, progress: Progress) -> Future[Continuation | None]:
        """Return ``progress``, which is exact: nothing more is sent behind it."""
        return done(Continuation(progress, None))

    def close(self, timeout_ms: int) -> Future[None]:
        """Do nothing: what was sent cannot be aborted, and the producer is shared."""
        del timeout_ms
        return done(None)


def _key(progress: Progress) -> tuple[int, int]:
    return progress.offset, progress.time_ms
