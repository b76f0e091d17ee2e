"""How a partition's batches and progress get to the target: in one transaction (exactly once), or one after the other.

Nothing here waits: what comes of a call is told on the network thread, to a callback or a future's.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final, Protocol

from mirror.client import Admin, BufferMemory, Producer, TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import Callback
from mirror.relay.futures import done, failed, then
from mirror.relay.progress.committed import Progress, from_offset, group_of, to_offset
from mirror.wire.records import Batch


class TargetWriter(Protocol):
    """One partition's way to the target. ``open`` comes first, once; after :meth:`drop` nothing more."""

    @property
    def atomic(self) -> bool:
        """Whether a commit takes everything sent with it, after waiting for its acknowledgement.

        Then nothing is sent while one is under way. Otherwise a commit may only tell of what is acknowledged.
        """
        ...

    @property
    def producer_id(self) -> int:
        """Under which batches go out; -1 while there is none."""
        ...

    @property
    def fences_in_doubt(self) -> int:
        """How many requests to shut out others were not answered, and may shut out this one or the next."""
        ...

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Shut out whoever copied this partition before, where that is possible; then read the progress."""
        ...

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """Raises KafkaTimeout where there is no memory at the moment. ``created_ms`` is since 1970; None: now."""
        ...

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Keep ``progress``."""
        ...

    def drop(self, timeout_ms: int) -> Future[None]:
        """Nothing that was not committed is to be seen. Done after ``timeout_ms`` at the latest; never fails."""
        ...


def transactional_id(flow: str, tp: TopicPartition) -> str:
    """One for each flow and target partition: who copies it next shuts the former out, however tasks are packed.

    Unambiguous, since neither a flow's name nor a partition's number has a dot.
    """
    return f"mirror.{flow}.{tp.topic}.{tp.partition}"


class ExactlyOnceWriter:
    """A transactional producer of the partition's own; data and progress in the same transactions (KIP-98)."""

    atomic = True

    def __init__(
        self, flow: str, tp: TopicPartition, options: Mapping[str, object], admin: Admin, memory: BufferMemory
    ) -> None:
        self._tp: Final = tp
        self._group: Final = group_of(flow, tp)
        self._admin: Final = admin
        self._producer: Final = Producer({**options, "transactional.id": transactional_id(flow, tp)}, memory=memory)
        self._in_transaction = False

    @property
    def producer_id(self) -> int:
        """As the coordinator gave it."""
        return self._producer.producer_id

    @property
    def fences_in_doubt(self) -> int:
        """Its producer's."""
        return self._producer.fences_in_doubt

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Fence, and only then read: what an older attempt has under way is decided by the fence (KIP-447)."""
        fenced = self._producer.init_transactions_async(timeout_ms)
        return then(fenced, lambda _: read_progress(self._admin, self._group, self._tp, timeout_ms))

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """In the transaction, which begins with its first batch."""
        self._begin()
        self._producer.post_batch(self._tp, batch, callback, created_ms=created_ms)

    def _begin(self) -> None:
        if not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """With the transaction, or alone in one."""
        self._begin()
        offsets = {self._tp: to_offset(progress)}
        kept = self._producer.send_offsets_to_transaction_async(offsets, self._group, timeout_ms)
        committed = self._producer.commit_transaction_async(timeout_ms)
        committed.add_done_callback(self._ended)
        # The offsets' own failure says more than the commit's, which fails with it.
        return then(committed, lambda _: kept, otherwise=kept)

    def _ended(self, committed: Future[None]) -> None:
        if committed.exception() is None:
            self._in_transaction = False

    def drop(self, timeout_ms: int) -> Future[None]:
        """Abort at once, or whoever reads committed records would wait behind it until it expires."""
        aborted: Future[None]
        if self._in_transaction:
            try:
                aborted = self._producer.abort_transaction_async(timeout_ms)
            except KafkaError as error:  # fenced, or dead: there is nothing to abort any more
                aborted = failed(error)
        else:
            aborted = done(None)
        dropped: Future[None] = Future()

        def close(_: Future[None]) -> None:
            self._producer.close_async()
            dropped.set_result(None)

        aborted.add_done_callback(close)
        return dropped


class AtLeastOnceWriter:
    """The idempotent producer that all partitions of a task share; progress is committed after the fact.

    Nobody is shut out: two attempts at once copy twice, and may move the progress back. Nothing is left out.
    """

    atomic = False
    fences_in_doubt = 0

    def __init__(self, flow: str, tp: TopicPartition, admin: Admin, producer: Producer, chain: int) -> None:
        """``chain`` numbers the attempts: behind a lost batch nothing of the same attempt is sent."""
        self._tp: Final = tp
        self._group: Final = group_of(flow, tp)
        self._admin: Final = admin
        self._producer: Final = producer
        self._chain: Final = chain

    @property
    def producer_id(self) -> int:
        """That of all partitions."""
        return self._producer.producer_id

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Read the progress."""
        return read_progress(self._admin, self._group, self._tp, timeout_ms)

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """Behind what was sent before."""
        self._producer.post_batch(self._tp, batch, callback, created_ms=created_ms, chain=self._chain)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Alone: a neighbour whose group is refused, or slow, has nothing to do with it."""
        return self._admin.commit_group_offsets_async(self._group, {self._tp: to_offset(progress)}, timeout_ms)

    def drop(self, timeout_ms: int) -> Future[None]:
        """What was sent cannot be taken back."""
        del timeout_ms
        return done(None)


def read_progress(admin: Admin, group: str, tp: TopicPartition, timeout_ms: int) -> Future[Progress | None]:
    """The partition's own, asked alone: a neighbour's pending transaction is no reason to wait."""
    found = admin.group_offsets_async(group, [tp], timeout_ms)
    return then(found, lambda offsets: done(from_offset(offsets[tp]) if tp in offsets else None))
