"""Classifies the failures of an attempt: retry immediately, expire, or end the copy. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mirror.cluster.types import TopicPartition
from mirror.errors import (
    AuthorizationFailed,
    BrokerError,
    CorruptBatch,
    DeliveryPhase,
    DeliveryTimeout,
    Fenced,
    FlowError,
    KafkaTimeout,
    RecordRejected,
    TransactionExpired,
)
from mirror.relay.batches.batch_pipeline import BatchPipeline
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.refusals import handle_refusal
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.expiries import DeliveryFailure, expiry_error, expiry_record
from mirror.relay.partition.limits import MAX_ABORTS_IN_A_ROW
from mirror.relay.progress.committed import StartChanged
from mirror.timing import FOREVER_MS, deadline


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The outcome of an attempt that is not to be retried immediately."""

    outcome: Outcome
    error: str = ""
    expiry: dict[str, Any] | None = None
    """The expiry as the result records it."""


class FailureClassifier:
    """Classifies the failures of one copy's attempts. An outcome of None means: retry immediately."""

    def __init__(
        self,
        source: TopicPartition,
        target: TopicPartition,
        policy: CopyPolicy,
        pipeline: BatchPipeline,
        unix_ms: Callable[[], int],
    ) -> None:
        self.expiries = self.aborts = self.failed_attempts = 0
        """Consecutive ones, with no commit in between."""
        self._fences_in_doubt = 0
        self._in_doubt_until_ms = FOREVER_MS
        self._source: Final = source
        self._target: Final = target
        self._policy: Final = policy
        self._pipeline: Final = pipeline
        self._unix_ms: Final = unix_ms

    def on_committed(self) -> None:
        """Reset the failure counters after a successful commit."""
        self.expiries = self.aborts = self.failed_attempts = 0

    # Invariant: A copy is not fenced by its own delayed requests: as many fences are retried as it has requests without
    #   a response.
    # Test: tests/relay/partition/
    #   test_target_failures.py::test_fence_that_may_be_a_delayed_request_of_the_copy_is_retried_once_per_request
    def on_fenced_others(self, in_doubt: int, *, answered: bool, request_timeout_ms: int) -> None:
        """The copy has fenced earlier attempts, or tried to: ``in_doubt`` is :attr:`TargetWriter.fences_in_doubt`.

        After the coordinator has ``answered``, it executes older requests within ``request_timeout_ms``; a commit does
        not show that it has.
        """
        now_ms = self._unix_ms()
        if now_ms >= self._in_doubt_until_ms:
            self._fences_in_doubt = 0
        self._fences_in_doubt += in_doubt
        if answered or in_doubt:
            self._in_doubt_until_ms = deadline(now_ms, request_timeout_ms) if answered else FOREVER_MS

    def delivery_outcome(
        self, failure: DeliveryFailure, *, committed: int, committing_ms: int
    ) -> AttemptOutcome | None:
        """Classify a batch, or a commit after ``committing_ms``, that failed; progress is at offset ``committed``.

        Raises MirrorError for what no retry can mend; :meth:`outcome_of` classifies that.
        """
        error, output = failure.error, failure.output
        refusal = isinstance(error, RecordRejected) or not isinstance(error, BrokerError)
        if isinstance(error, (DeliveryTimeout, Fenced, TransactionExpired)):
            return self.outcome_of(error, output)
        may_abort = self.aborts < MAX_ABORTS_IN_A_ROW
        if isinstance(error, CorruptBatch) and may_abort:
            self.aborts += 1  # it was damaged in memory: it is read again
            return None
        if output is not None and refusal:
            self._apply_remedy(error, output, committed)
            return None
        if isinstance(error, KafkaTimeout):
            phase = DeliveryPhase.COMMITTING
            return self.outcome_of(
                expiry_error(self._target, phase, error, age_ms=committing_ms, may_have_been_written=True)
            )
        if isinstance(error, BrokerError) and not isinstance(error, AuthorizationFailed) and may_abort:
            # The state of a producer that brokers have lost does not matter to the next producer.
            self.aborts += 1
            return None
        if output is not None and not isinstance(error, AuthorizationFailed):
            self._apply_remedy(error, output, committed)
            return None
        operation = "" if output is not None else "progress was not committed: "
        raise FlowError(f"{self._target}: {operation}{error}") from error

    def _apply_remedy(self, error: BaseException, output: OutputBatch, committed: int) -> None:
        """Have the pipeline re-encode or skip what was refused. Raises MirrorError if there is no remedy."""
        pipeline = self._pipeline
        reason = handle_refusal(
            error, output, pipeline.remedies, source=self._source, policy=self._policy, limits=pipeline.limits
        )
        if reason is not None and output.base_offset == committed:
            raise reason
        if reason is not None:
            self._pipeline.stop_at(output, reason)  # everything before it is still copied

    def outcome_of(self, error: BaseException, output: OutputBatch | None = None) -> AttemptOutcome | None:
        """Classify an error that ends the attempt, of the batch ``output`` if it is a batch's."""
        if isinstance(error, StartChanged):
            return None  # the next attempt reads where it begins again
        if isinstance(error, Fenced) and self._fences_in_doubt and self._unix_ms() < self._in_doubt_until_ms:
            # It may be a delayed request of this copy itself that fenced it: retry, once per request in doubt.
            self._fences_in_doubt -= 1
            return None
        if isinstance(error, (DeliveryTimeout, TransactionExpired)):
            self.expiries += 1
            where = f"{self._source}, the batch at offset {output.base_offset}: " if output is not None else ""
            return AttemptOutcome(Outcome.EXPIRED, f"{where}{error}", expiry_record(error, output, self._unix_ms()))
        outcome = Outcome.FENCED if isinstance(error, Fenced) else Outcome.FAILED
        self.failed_attempts += outcome is Outcome.FAILED
        return AttemptOutcome(outcome, str(error) or type(error).__name__)
