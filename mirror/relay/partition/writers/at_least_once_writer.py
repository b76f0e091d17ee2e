"""Writes at least once: plain batches, and afterwards the progress of what is acknowledged.

Nothing fences an earlier attempt: two at a time copy records twice, and may move the progress back. No record is left
out.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from mirror.client import Admin, Producer, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.producer.batch.batches import Callback
from mirror.relay.batches.aside import ASIDE_PARTITION
from mirror.relay.futures import done
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.fence import read_latest_progress
from mirror.relay.progress.committed import NO_TOTALS, Progress, to_offset
from mirror.relay.progress.committer import ProgressCommitter, commit_due_ms
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_loss import TargetLoss
from mirror.timing import FOREVER_MS
from mirror.wire.records import Batch


# Invariant: At least once, progress is the prefix of which all is acknowledged: records may be repeated, none is lost.
# Test: tests/relay/partition/
#   test_machine.py::test_at_least_once_progress_is_the_contiguous_prefix_whatever_the_order_of_answers
class AtLeastOnceWriter:
    """Writes with the idempotent producer that all partitions of a task share; commits progress afterwards."""

    atomic = False
    acquired = True
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
        aside: str = "",
    ) -> None:
        """``chain`` numbers the attempts: after a batch has failed, no later batch of the same attempt is sent.

        ``aside`` is the flow's aside topic.
        """
        self._flow: Final = flow
        self._tp: Final = tp
        self._admin: Final = admin
        self._producer: Final = producer
        self._committer: Final = committer
        self._chain: Final = chain
        self._aside: Final = TopicPartition(aside, ASIDE_PARTITION)

    @property
    def producer_id(self) -> int:
        """The same for all partitions."""
        return self._producer.producer_id

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        """Read the progress, which may be that of a copy by sequences. ``planned`` may be older: it would repeat."""
        del planned
        # A pending claim of a killed copy is not waited for: the progress before it repeats records, and loses none.
        return read_latest_progress(self._admin, self._flow, self._tp, timeout_ms, require_stable=False)

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        """Do nothing: what is behind the progress is repeated."""

    def acquire(self, progress: Progress, timeout_ms: int, loss: TargetLoss | None) -> Future[FoundPosition]:
        """Resume at ``progress``: what stands behind an anchor is repeated."""
        del timeout_ms
        return done(FoundPosition(progress, NO_TOTALS, loss))

    def acquire_timeout(self) -> KafkaTimeout:
        """No call waits for anything."""
        return KafkaTimeout(f"{self._tp}: the attempt did not begin")

    def send(self, batch: Batch, callback: Callback, log_end: int) -> None:
        """Send in order, in this attempt's chain. A loss is found when the answer is processed."""
        del log_end
        self._producer.post_batch(self._tp, batch, callback, chain=self._chain)

    def send_aside(self, batch: Batch, callback: Callback) -> None:
        """Send before the progress behind it is committed: a crash may repeat it, as any record."""
        self._producer.post_batch(self._aside, batch, callback)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit with the other partitions of the group; each fails alone."""
        plain = replace(progress, way=Way.TRANSACTIONS, producer_id=-1)
        return self._committer.commit(self._tp, to_offset(plain), timeout_ms)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int, pending_bytes: int) -> int:
        """Commit when the other partitions of the group do."""
        del pending_bytes
        return commit_due_ms(self._tp, pending_since_ms, interval_ms)

    def close(self, timeout_ms: int) -> Future[None]:
        """Do nothing: what was sent cannot be aborted, and the producer is shared."""
        del timeout_ms
        return done(None)
