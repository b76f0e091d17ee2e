"""How a partition's batches and progress are written to the target: in one transaction (exactly once), or separately.

Nothing here waits: results arrive on the network thread, through callbacks and futures.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Protocol

from mirror.client import Admin, BufferMemory, Producer, TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import Callback
from mirror.producer.settings import ProducerSettings
from mirror.relay.futures import done, failed, then
from mirror.relay.progress.committed import Progress, from_offset, group_of, to_offset
from mirror.relay.progress.committer import ProgressCommitter, commit_due_ms
from mirror.timing import deadline
from mirror.wire.records import Batch


class TargetWriter(Protocol):
    """Writes the batches and progress of one attempt. :meth:`open` comes first, and nothing after :meth:`close`."""

    @property
    def atomic(self) -> bool:
        """Whether a commit includes everything sent, and waits for its acknowledgement.

        If so, nothing is sent while a commit is in flight. If not, a commit may include only what is acknowledged.
        """
        ...

    @property
    def producer_id(self) -> int:
        """The producer id of the batches; -1 while there is none."""
        ...

    @property
    def fences_in_doubt(self) -> int:
        """How many requests to fence others have no answer, and may still fence this writer or the next."""
        ...

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Fence earlier attempts at this partition, if that is possible; then read the progress."""
        ...

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """Send ``batch``, created at ``created_ms`` (ms since 1970; None for now). KafkaTimeout if memory is full."""
        ...

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit ``progress``."""
        ...

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int) -> int:
        """Return when to commit progress that is pending since ``pending_since_ms``: within ``interval_ms``."""
        ...

    def close(self, timeout_ms: int) -> Future[None]:
        """Abort what is not committed. The future is done after ``timeout_ms`` at the latest, and never fails."""
        ...


def transactional_id(flow: str, tp: TopicPartition) -> str:
    """Return the id of a flow and target partition: the next copy fences the last one, however ranges are assigned.

    It is unambiguous, since neither a flow's name nor a partition's number has a dot.
    """
    return f"mirror.{flow}.{tp.topic}.{tp.partition}"


class ExactlyOnceWriter:
    """Writes data and progress in the same transactions (KIP-98), with a producer of its own."""

    atomic = True

    def __init__(
        self, flow: str, tp: TopicPartition, settings: ProducerSettings, admin: Admin, memory: BufferMemory
    ) -> None:
        """``settings`` are any partition's of this task: only the transactional.id differs."""
        self._tp: Final = tp
        self._group: Final = group_of(flow, tp)
        self._admin: Final = admin
        own_settings = replace(settings, transactional_id=transactional_id(flow, tp))
        self._producer: Final = Producer(own_settings, memory=memory)
        self._in_transaction = False

    @property
    def producer_id(self) -> int:
        """As assigned by the coordinator."""
        return self._producer.producer_id

    @property
    def fences_in_doubt(self) -> int:
        """As counted by the producer."""
        return self._producer.fences_in_doubt

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Fence first, then read: the fence ends the open transaction of an older attempt (KIP-447)."""
        fenced = self._producer.init_transactions_async(timeout_ms)
        return then(fenced, lambda _: read_progress(self._admin, self._group, self._tp, timeout_ms))

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """Send in the transaction, which begins with its first batch."""
        self._begin()
        self._producer.post_batch(self._tp, batch, callback, created_ms=created_ms)

    def _begin(self) -> None:
        if not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit with the transaction; in a new one if none is open."""
        self._begin()
        offsets = {self._tp: to_offset(progress)}
        offsets_sent = self._producer.send_offsets_to_transaction_async(offsets, self._group, timeout_ms)
        committed = self._producer.commit_transaction_async(timeout_ms)
        committed.add_done_callback(self._on_commit_ended)
        # The error of the offsets says more than that of the commit, which fails with it.
        return then(committed, lambda _: offsets_sent, otherwise=offsets_sent)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int) -> int:
        """Commit after the interval."""
        return deadline(pending_since_ms, interval_ms)

    def _on_commit_ended(self, committed: Future[None]) -> None:
        if committed.exception() is None:
            self._in_transaction = False

    def close(self, timeout_ms: int) -> Future[None]:
        """Abort immediately: consumers of committed records would wait behind the transaction until it expires."""
        aborted: Future[None]
        if self._in_transaction:
            try:
                aborted = self._producer.abort_transaction_async(timeout_ms)
            except KafkaError as error:  # fenced, or in a fatal state: there is nothing to abort any more
                aborted = failed(error)
        else:
            aborted = done(None)
        closed: Future[None] = Future()

        def close_producer(_: Future[None]) -> None:
            self._producer.close_async()
            closed.set_result(None)

        aborted.add_done_callback(close_producer)
        return closed


class AtLeastOnceWriter:
    """Writes with the idempotent producer that all partitions of a task share; commits progress afterwards.

    It fences no other attempt: two attempts at a time copy records twice, and may move the progress back. No record is
    left out.
    """

    atomic = False
    fences_in_doubt = 0

    def __init__(
        self,
        flow: str,
        tp: TopicPartition,
        admin: Admin,
        producer: Producer,
        committer: ProgressCommitter,
        chain: int,
    ) -> None:
        """``chain`` numbers the attempts: after a batch has failed, no later batch of the same attempt is sent."""
        self._tp: Final = tp
        self._group: Final = group_of(flow, tp)
        self._admin: Final = admin
        self._producer: Final = producer
        self._committer: Final = committer
        self._chain: Final = chain

    @property
    def producer_id(self) -> int:
        """The same for all partitions."""
        return self._producer.producer_id

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        """Read the progress."""
        return read_progress(self._admin, self._group, self._tp, timeout_ms)

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        """Send in order, in this attempt's chain."""
        self._producer.post_batch(self._tp, batch, callback, created_ms=created_ms, chain=self._chain)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit with the other partitions of the group; each fails alone."""
        return self._committer.commit(self._tp, to_offset(progress), timeout_ms)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int) -> int:
        """Commit when the other partitions of the group do."""
        return commit_due_ms(self._tp, pending_since_ms, interval_ms)

    def close(self, timeout_ms: int) -> Future[None]:
        """Do nothing: what was sent cannot be aborted, and the producer is shared."""
        del timeout_ms
        return done(None)


def read_progress(admin: Admin, group: str, tp: TopicPartition, timeout_ms: int) -> Future[Progress | None]:
    """Read one partition's progress on its own: it must not wait for another one's pending transaction."""
    found = admin.group_offsets_async(group, [tp], timeout_ms)
    return then(found, lambda offsets: done(from_offset(offsets[tp]) if tp in offsets else None))
