"""Acquires the target partition for one attempt, once it has something to send or to commit. No I/O."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.errors import DeliveryPhase, DeliveryTimeout, KafkaTimeout
from mirror.relay.partition.context import CopyContext, CopyHandle
from mirror.relay.partition.expiries import expiry_error
from mirror.relay.partition.waiting import result_of
from mirror.relay.progress.position import FoundPosition
from mirror.timing import deadline

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter
    from mirror.relay.progress.committed import Progress
    from mirror.relay.progress.target_loss import TargetLoss


# Invariant: Nothing is sent or committed before the partition is acquired, what the source reports meanwhile counts
#   once the position is known, and an attempt with nothing to send acquires nothing.
# Test: tests/relay/partition/test_sequences.py::test_nothing_is_sent_before_the_partition_is_acquired
# Test: tests/groups/
#   test_both_directions_on_fakes.py::test_the_fence_of_one_flow_is_no_reason_for_a_fence_of_the_other_one
# Test: tests/relay/partition/
#   test_acquisition.py::test_position_that_is_found_counts_whatever_the_source_reports_meanwhile
class Acquisition:
    """The call of :meth:`TargetWriter.acquire` of one attempt, if the writer needs it."""

    def __init__(
        self,
        copy: CopyHandle,
        context: CopyContext,
        writer: TargetWriter,
        progress: Progress,
        loss: TargetLoss | None,
    ) -> None:
        """``progress`` is where the attempt begins. After a ``loss`` that is an anchor, and another one resumes."""
        self._copy: Final = copy
        self._context: Final = context
        self._writer: Final = writer
        self._progress: Final = progress
        self._loss: Final = loss
        self._call: Future[FoundPosition] | None = None
        self._began_ms = 0
        self.waits = False
        """Whether the call is needed, and the task has others that go first."""

    @property
    def acquired(self) -> bool:
        """Whether the attempt may send and commit: the writer may, and the position that was found is known."""
        return self._loss is None and self._writer.acquired and self._call is None

    @property
    def in_progress(self) -> bool:
        """Whether the call has not ended, or its result has not been taken."""
        return self._call is not None

    @property
    def expires_ms(self) -> int:
        """When the call, which is in progress, takes too long: a search that reads on may take as long as it needs."""
        return deadline(max(self._began_ms, self._writer.advanced_ms), self._timeout_ms)

    @property
    def _timeout_ms(self) -> int:
        return self._context.timeouts.delivery_timeout_ms

    def ensure(self, now: int, *, quiet: bool = False) -> bool:
        """Begin the call if it is needed; return whether the attempt may send and commit.

        ``quiet``: the attempt has no records to send, only a commit.
        """
        needed = not self.acquired and self._call is None
        self.waits = needed and not self._context.may_acquire(self._copy, quiet=quiet)
        if needed and not self.waits:
            self._began_ms = now
            claimed = replace(self._progress, time_ms=self._context.unix_ms())
            self._call = self._writer.acquire(claimed, self._timeout_ms, self._loss)
            self._context.on_acquiring(self._call)
            self._context.step_when_done(self._copy, self._call)
        return self.acquired

    def take_result(self, now: int) -> FoundPosition | None:
        """Return the position that was found, once; None before.

        Raises DeliveryTimeout if the call has taken too long, MirrorError if it has failed.
        """
        assert self._call is not None  # noqa: S101 - it is in progress
        if self._call.done():
            call, self._call = self._call, None
            if isinstance(error := call.exception(), KafkaTimeout):
                raise self._expired(error, now)
            found: FoundPosition = result_of(call)
            return found
        if now >= self.expires_ms:
            raise self._expired(self._writer.acquire_timeout(), now)
        return None

    def _expired(self, error: KafkaTimeout, now: int) -> DeliveryTimeout:
        return expiry_error(self._copy.target, DeliveryPhase.FENCING, error, age_ms=now - self._began_ms)
