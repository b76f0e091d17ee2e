"""Compares the target's log with what was written to it, while a range is copied into it. No I/O."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from mirror.errors import DeliveryPhase, FlowError, KafkaTimeout
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.context import CopyContext, CopyHandle
from mirror.relay.partition.expiries import TargetShrank, expiry_error
from mirror.relay.partition.waiting import result_of
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.target_log import TargetLogTracker, TargetMark, truncated_error

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter

_log: Final = logging.getLogger(__name__)


# Invariant: A target log that has lost records is found by its leader epochs before anything is written to it, also if
#   it has grown again: the stored end is a lower bound of what it must have, with the batches in flight.
# Test: tests/relay/partition/test_target_check.py::test_truncation_is_reported_even_if_the_log_has_grown_again
# Test: tests/relay/partition/test_target_check.py::test_commit_stores_the_target_s_end_including_batches_in_flight
class TargetLogCheck:
    """The mark of the target's log of one copy, over all its attempts, and its comparison with new leaders' logs."""

    def __init__(self, copy: CopyHandle, context: CopyContext) -> None:
        self.tracker: Final = TargetLogTracker()
        self._copy: Final = copy
        self._context: Final = context
        self._record_check: Future[None] | None = None
        self._comparison: Future[TargetMark | None] | None = None

    def shrunk_to(self, mark: TargetMark | None, *, atomic: bool) -> int | None:
        """Return the offset that the attempt before was given although the log had reached further; None if none was.

        It is sufficient proof of a loss below the progress, even if the log has grown again since. Unless the writer is
        ``atomic``, ``mark`` is the exact end of what the progress covers: a loss behind that is no loss of it.
        """
        if self.tracker.regression is None:
            return None
        acked, _ = self.tracker.regression
        return acked if atomic or mark is None or acked < mark.end else None

    def begin(self, start: StartPosition, shrunk_to: int | None) -> None:
        """The start was resolved. Raises FlowError if a loss that :meth:`shrunk_to` had shown is not mended."""
        self.tracker.verified, self._record_check, self._comparison = start.mark, start.deferred_check, None
        if start.deferred_check is not None:
            self._context.step_when_done(self._copy, start.deferred_check)
        regression = self.tracker.take_regression()
        if regression is not None and shrunk_to is not None and start.progress is not None and start.loss is None:
            mark = TargetMark(topic_id="", end=regression[1])
            raise truncated_error(self._copy.range.flow, self._copy.target, mark, shrunk_to, start.progress.offset)

    def mark(self, attempt: CopyAttempt, writer: TargetWriter) -> TargetMark | None:
        """Return the mark to commit with the progress of ``attempt``."""
        if writer.atomic:
            outbox, verified = attempt.outbox, self.tracker.verified
            since = outbox.exact_end
            if outbox.target_end is None and verified is not None and verified.is_exact:
                since = verified.end
            return self.tracker.mark_at(outbox.expected_end, writer.producer_id, None, since)
        # What is in flight may never arrive: the mark excludes it.
        return self._acknowledged(attempt, writer)

    def _acknowledged(self, attempt: CopyAttempt, writer: TargetWriter) -> TargetMark | None:
        """Return the mark of all that is acknowledged: the next commit would say that the log holds it."""
        outbox = attempt.outbox
        return self.tracker.mark_at(outbox.log_end, writer.producer_id, outbox.last_batch)

    # Invariant: Nothing is committed before a new leader of the target is known to have all that was acknowledged: the
    #   marker would hide what is missing.
    # Test: tests/relay/partition/
    #   test_target_check.py::test_commit_waits_until_a_new_target_leader_is_known_to_have_all_records
    # Test: tests/relay/task/test_healing_on_fakes.py::test_loss_while_a_commit_waits_for_a_batch_is_mended
    def update(self, attempt: CopyAttempt, writer: TargetWriter, now: int, *, ended: bool) -> TargetShrank | None:
        """Process finished lookups, and compare the log if its leader has changed; ``ended``: the range was read.

        Return that the new leader lacks records that the last one had. Raises FlowError if the progress topic, which
        is readable only now, says that the target was another topic before; DeliveryTimeout if a commit, or the end of
        the range, has waited too long for the new leader's answer.
        """
        if self._record_check is not None and self._record_check.done():
            record_check, self._record_check = self._record_check, None
            if isinstance(error := record_check.exception(), FlowError):
                raise error
            if error is not None:
                _log.warning(
                    "%s: the copy began without its record in the progress topic, which is still unreadable: %s",
                    self._copy.target,
                    error,
                )
        if self._comparison is not None and self._comparison.done():
            compared, self._comparison = self._comparison, None
            if isinstance(late := compared.exception(), KafkaTimeout):
                self._check_deadline(attempt, late, now, ended=ended)
            elif not self.tracker.on_compared(result_of(compared)):
                return TargetShrank("the target has a new leader, and its log does not reach as far as the last one's")
        if self._comparison is None and (verified := self.tracker.mark_to_compare(self._leader_epoch())) is not None:
            attempt.outbox.process_answers(now)  # those of the last leader came before the metadata of the new one
            mark = self._acknowledged(attempt, writer) or verified
            self._comparison = self._context.compare_target(self._copy.target, mark, self._context.timeouts.stall_ms)
            self._context.step_when_done(self._copy, self._comparison)
        # A commit now would store a higher mark, and hide what the new leader lacks below it.
        attempt.comparing_target = self._comparison is not None
        return None

    def _leader_epoch(self) -> int | None:
        leader = self._context.target_leader(self._copy.target)
        # Brokers without reliable leader epochs have -1: another leader does not show by it.
        return None if leader is None or leader[1] < 0 else leader[1]

    def _check_deadline(self, attempt: CopyAttempt, error: KafkaTimeout, now: int, *, ended: bool) -> None:
        commits = attempt.commits
        age_ms = now - commits.uncommitted_since_ms
        if (commits.pending or ended) and age_ms >= self._context.timeouts.delivery_timeout_ms:
            # If nothing waits for it, a leader that is away delays nothing, and is compared again.
            raise expiry_error(self._copy.target, DeliveryPhase.METADATA, error, age_ms=age_ms)
