"""Writes exactly once without transactions: one fence for each attempt, then plain idempotent batches.

::

    open ──► (something is to be sent or committed) ──► acquire: initialize, read, fence, search ──► send, commit

An attempt that has nothing to send does not fence. What it sends is visible at once to every reader, and needs no
commit: the log itself says what was appended. The lazy progress only says where the next attempt begins to read.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.client import Admin, BufferMemory, Producer, TopicPartition
from mirror.relay.futures import done, then
from mirror.relay.model.way import Way
from mirror.relay.partition.takeover import (
    PartitionTransactions,
    Search,
    read_latest_progress,
    take_over,
)
from mirror.relay.progress.committed import Progress, ProgressChanged, to_offset
from mirror.relay.progress.committer import ProgressCommitter, commit_due_ms

if TYPE_CHECKING:
    from mirror.producer.batch.batches import Callback
    from mirror.producer.settings import ProducerSettings
    from mirror.relay.progress.position import FoundPosition
    from mirror.wire.records import Batch


class SharedClients(NamedTuple):
    """What the writers of a task share."""

    producer: Producer
    committer: ProgressCommitter
    admin: Admin
    memory: BufferMemory


class SequenceWriter:
    """Sends in the producer that all partitions of a task share, under the identity of this partition's fence."""

    atomic = False
    way = Way.SEQUENCES

    def __init__(
        self,
        flow: str,
        tp: TopicPartition,
        settings: ProducerSettings,
        shared: SharedClients,
        chain: int,
        search: Search,
    ) -> None:
        """``settings`` are those of the fencing producer; ``chain`` numbers the attempts in the shared one."""
        self._flow: Final = flow
        self._tp: Final = tp
        self._settings: Final = settings
        self._admin: Final = shared.admin
        self._memory: Final = shared.memory
        self._shared: Final = shared.producer
        self._committer: Final = shared.committer
        self._chain: Final = chain
        self._search: Final = search
        self._fencing: PartitionTransactions | None = None
        self._opened_with: Progress | None = None
        self._closed = False
        self.producer_id = -1
        self.acquired = False

    @property
    def fences_in_doubt(self) -> int:
        """As counted by the fencing producer."""
        return 0 if self._fencing is None else self._fencing.producer.fences_in_doubt

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Read the progress only: a copy that has nothing to send needs no fence.

        A killed attempt may have left its claim pending, until its transaction expires or is fenced. This is not
        waited for: the progress before it is a lower bound, and :meth:`acquire` reads again when it has fenced.
        """

        def on_read(progress: Progress | None) -> Future[Progress | None]:
            self._opened_with = progress
            return done(progress)

        return then(self._read_progress(timeout_ms, require_stable=False), on_read)

    def _read_progress(self, timeout_ms: int, *, require_stable: bool) -> Future[Progress | None]:
        return read_latest_progress(self._admin, self._flow, self._tp, timeout_ms, require_stable=require_stable)

    def acquire(self, progress: Progress, timeout_ms: int) -> Future[FoundPosition]:
        """Initialize the transactional id, read the progress again, fence, and find the exact position."""
        self._fencing = fencing = PartitionTransactions(self._flow, self._tp, self._settings, self._memory)
        initialized = fencing.producer.init_transactions_async(timeout_ms)
        read = then(initialized, lambda _: self._read_progress(timeout_ms, require_stable=True))
        taken = then(read, lambda found: take_over(fencing, self._search, self._base(progress, found), timeout_ms))
        return then(taken, self._adopt)

    def _base(self, resolved: Progress, found: Progress | None) -> Progress:
        """Return the progress to claim: ``resolved`` if it follows from what is ``found`` now, or what is found."""
        opened = self._opened_with
        if found == opened:
            return resolved
        if found is None or opened is None or not found.generation == opened.generation == resolved.generation:
            raise ProgressChanged
        # An earlier attempt has copied on until it was fenced.
        target = resolved.target if found.target is None else found.target
        return replace(found, target=target, time_ms=resolved.time_ms, claimed_ms=0)

    def _adopt(self, found: FoundPosition) -> Future[FoundPosition]:
        fencing = self._fencing
        assert fencing is not None  # noqa: S101 - it has fenced
        identity = fencing.producer.identity
        assert identity is not None  # noqa: S101 - as above
        fencing.producer.close_async()
        if not self._closed:  # otherwise the next attempt may have adopted already
            self._shared.adopt(self._tp, identity, self._chain)
            self.producer_id, self.acquired = identity.producer_id, True
        return done(found)

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """Send in order, under the fence's producer id and epoch."""
        self._shared.post_batch(self._tp, batch, callback, created_ms=created_ms, chain=self._chain)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit the lazy progress. The claim of a fenced attempt is another one, or is behind it."""
        attempt = -1 if self._fencing is None else self._fencing.claim_epoch
        lazy = replace(
            progress, way=Way.SEQUENCES, producer_id=self.producer_id, earlier_ids=frozenset(), attempt=attempt
        )
        return self._committer.commit(self._tp, to_offset(lazy), timeout_ms)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int) -> int:
        """Commit when the other partitions of the group do."""
        return commit_due_ms(self._tp, pending_since_ms, interval_ms)

    def close(self, timeout_ms: int) -> Future[None]:
        """Send nothing more. What was sent may still be appended, until the next attempt fences this one."""
        self._closed = True
        if self.acquired:
            self._shared.release(self._tp)
            return done(None)
        return done(None) if self._fencing is None else self._fencing.close(timeout_ms)
