"""Compares the target's log with what was written to it, while a range is copied into it. No I/O."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from mirror.errors import DeliveryPhase, FlowError, KafkaTimeout
from mirror.relay.partition.attempt import CopyAttempt, TargetShrank
from mirror.relay.partition.context import CopyContext, CopyHandle
from mirror.relay.partition.expiries import expiry_error
from mirror.relay.partition.states import result_of
from mirror.relay.progress.lookups import StartPosition
from mirror.relay.progress.target_log import TargetLogTracker, TargetMark, truncated_error

if TYPE_CHECKING:
    from mirror.relay.partition.target_writer import TargetWriter

_log: Final = logging.getLogger(__name__)


class TargetLogCheck:
    """The mark of the target's log of one copy, over all its attempts, and its comparison with new leaders' logs."""

    def __init__(self, copy: CopyHandle, context: CopyContext) -> None:
        self.tracker: Final = TargetLogTracker()
        self._copy: Final = copy
        self._context: Final = context
        self._record_check: Future[None] | None = None
        self._comparison: Future[TargetMark | None] | None = None

    def begin(self, start: StartPosition) -> None:
        """The start was resolved. Raises FlowError if the attempt before had shown that the log lost records."""
        self.tracker.verified, self._record_check, self._comparison = start.mark, start.deferred_check, None
        if start.deferred_check is not None:
            self._context.step_when_done(self._copy, start.deferred_check)
        if (regression := self.tracker.take_regression()) is not None and start.progress is not None:
            # The acknowledged offset is sufficient proof, even if the log has grown again since.
            acked, log_end = regression
            mark = TargetMark(topic_id="", end=log_end)
            raise truncated_error(self._copy.range.flow, self._copy.target, mark, acked, start.progress.offset)

    def mark(self, attempt: CopyAttempt, writer: TargetWriter) -> TargetMark | None:
        """Return the mark to commit with the progress of ``attempt``."""
        if writer.atomic:
            return self.tracker.mark_at(attempt.outbox.expected_end, writer.producer_id, None)
        # What is in flight may never arrive: the mark excludes it.
        return self._acknowledged(attempt, writer)

    def _acknowledged(self, attempt: CopyAttempt, writer: TargetWriter) -> TargetMark | None:
        """Return the mark of all that is acknowledged: the next commit would say that the log holds it."""
        outbox = attempt.outbox
        return self.tracker.mark_at(outbox.log_end, writer.producer_id, outbox.last_batch)

    def update(self, attempt: CopyAttempt, writer: TargetWriter, now: int, *, ended: bool) -> None:
        """Process finished lookups, and compare the log if its leader has changed; ``ended``: the range was read.

        Raises TargetShrank if the new leader lacks records that the last one had; FlowError if the progress topic,
        which is readable only now, says that the target was another topic before; DeliveryTimeout if a commit, or the
        end of the range, has waited too long for the new leader's answer.
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
                msg = "the target has a new leader, and its log does not reach as far as the last one's"
                raise TargetShrank(msg)
        if self._comparison is None and (verified := self.tracker.mark_to_compare(self._leader_epoch())) is not None:
            attempt.outbox.process_answers(now)  # those of the last leader came before the metadata of the new one
            mark = self._acknowledged(attempt, writer) or verified
            self._comparison = self._context.compare_target(self._copy, mark, self._context.timeouts.stall_ms)
            self._context.step_when_done(self._copy, self._comparison)
        # A commit now would store a higher mark, and hide what the new leader lacks below it.
        attempt.comparing_target = self._comparison is not None

    def _leader_epoch(self) -> int | None:
        leader = self._context.target_leader(self._copy)
        return None if leader is None else leader[1]

    def _check_deadline(self, attempt: CopyAttempt, error: KafkaTimeout, now: int, *, ended: bool) -> None:
        commits = attempt.commits
        age_ms = now - commits.uncommitted_since_ms
        if (commits.pending or ended) and age_ms >= self._context.timeouts.delivery_timeout_ms:
            # If nothing waits for it, a leader that is away delays nothing, and is compared again.
            raise expiry_error(self._copy.target, DeliveryPhase.METADATA, error, age_ms=age_ms)
