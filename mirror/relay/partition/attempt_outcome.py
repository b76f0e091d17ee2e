"""What the end of an attempt means for its copy: to begin anew at once, to have expired, or to be over. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mirror.cluster.types import TopicPartition
from mirror.errors import (
    AuthorizationFailed,
    BrokerError,
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
from mirror.relay.batches.refusals import remedy
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.attempt import DeliveryFailed
from mirror.relay.partition.expiries import timed_out, told
from mirror.relay.partition.states import ABORTS
from mirror.timing import FOREVER_MS, deadline

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The copy ends as ``outcome``, for what ``error`` says; ``expiry`` is what its result tells of one."""

    outcome: Outcome
    error: str = ""
    expiry: dict[str, Any] | None = None


class FailureClassifier:
    """Rules on the attempts of one copy, and knows what was tried before. A ruling of None: begin anew at once."""

    def __init__(
        self,
        source: TopicPartition,
        target: TopicPartition,
        policy: CopyPolicy,
        facts: TargetLimits,
        feed: BatchPipeline,
        wall: Callable[[], int],
    ) -> None:
        self.expiries = self.aborts = 0
        """In a row, with nothing committed in between."""
        self._fences_in_doubt = 0
        self._doubted_until_ms = FOREVER_MS
        self._source: Final = source
        self._target: Final = target
        self._policy: Final = policy
        self._facts: Final = facts
        self._feed: Final = feed
        self._wall: Final = wall

    def committed(self) -> None:
        """The copy gets on: what went wrong before counts no more."""
        self.expiries = self.aborts = 0

    def fenced(self, in_doubt: int, *, answered: bool, patience_ms: int) -> None:
        """The copy has fenced others, or tried to: ``in_doubt`` of its requests were not answered.

        Each of them may still be carried out, and then fence this attempt or the next. Once the coordinator has
        ``answered``, it works off what it was sent before within ``patience_ms``; a commit is no sign that it has.
        """
        self._fences_in_doubt += in_doubt
        self._doubted_until_ms = deadline(self._wall(), patience_ms) if answered else FOREVER_MS

    def lost(self, lost: DeliveryFailed, *, copied: int, committing_ms: int) -> AttemptOutcome | None:
        """On a batch, or a commit under way for ``committing_ms``, that was not taken; all up to ``copied`` is kept.

        Raises MirrorError for what cannot be mended: to be ruled on by :meth:`failed`.
        """
        error, piece = lost.error, lost.piece
        refusal = isinstance(error, RecordRejected) or not isinstance(error, BrokerError)
        if isinstance(error, (DeliveryTimeout, Fenced, TransactionExpired)):
            return self.failed(error, piece)
        if piece is not None and refusal:
            self._refused(error, piece, copied)
            return None
        if isinstance(error, KafkaTimeout):
            phase = DeliveryPhase.COMMITTING
            return self.failed(timed_out(self._target, phase, error, age_ms=committing_ms, may_have_been_written=True))
        if isinstance(error, BrokerError) and not isinstance(error, AuthorizationFailed) and self.aborts < ABORTS:
            # What the brokers have forgotten of a producer, they learn again of the next one.
            self.aborts += 1
            return None
        if piece is not None and not isinstance(error, AuthorizationFailed):
            self._refused(error, piece, copied)
            return None
        what = "" if piece is not None else "progress was not kept: "
        raise FlowError(f"{self._target}: {what}{error}") from error

    def _refused(self, error: BaseException, piece: OutputBatch, copied: int) -> None:
        reason = remedy(error, piece, self._feed, source=self._source, policy=self._policy, facts=self._facts)
        if reason is not None and piece.base_offset == copied:
            raise reason
        if reason is not None:
            self._feed.stop_at(piece, reason)  # what comes before it is to be copied all the same

    def failed(self, error: BaseException, piece: OutputBatch | None = None) -> AttemptOutcome | None:
        """On an error that ends the attempt; ``piece`` is the batch that it befell."""
        if isinstance(error, Fenced) and self._fences_in_doubt and self._wall() < self._doubted_until_ms:
            # By a late copy of what this copy itself had asked, it may be; believed once for each.
            self._fences_in_doubt -= 1
            return None
        if isinstance(error, (DeliveryTimeout, TransactionExpired)):
            self.expiries += 1
            where = f"{self._source}, the batch at offset {piece.base_offset}: " if piece is not None else ""
            return AttemptOutcome(Outcome.EXPIRED, f"{where}{error}", told(error, piece, self._wall()))
        outcome = Outcome.FENCED if isinstance(error, Fenced) else Outcome.FAILED
        return AttemptOutcome(outcome, str(error) or type(error).__name__)
