"""What a target's refusal of a batch means: to make it anew, to leave a record out, or to stop."""

from __future__ import annotations

from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, FlowError, MirrorError, RecordRejected, RecordTooLarge
from mirror.relay.batches.batch_pipeline import BatchPipeline
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import Reason
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.policy import CopyPolicy

INVALID_TIMESTAMP: Final = 32
INVALID_RECORD: Final = 87


def handle_refusal(
    error: BaseException,
    piece: OutputBatch,
    feed: BatchPipeline,
    *,
    source: TopicPartition,
    policy: CopyPolicy,
    limits: TargetLimits,
) -> MirrorError | None:
    """None where the copy can go on from its progress, having taught ``feed`` what to make differently; else why not.

    No record is ever dropped silently: a policy has to say so, and what it drops is counted.
    """
    at = f"{source}, the batch at offset {piece.base_offset}"
    if isinstance(error, RecordTooLarge):
        return _too_large(error, piece, feed, source, policy)
    if isinstance(error, RecordRejected) and error.code == INVALID_TIMESTAMP:
        # Made anew under any policy: only then is it known which record it is.
        return None if feed.apply_remedy(piece, Reason.BAD_TIMESTAMP) else FlowError(f"{at}: {error}")
    if isinstance(error, RecordRejected) and error.code == INVALID_RECORD and limits.compacted:
        # Made anew under any policy, each for itself: of many that were put together it is not known which one it is.
        if feed.apply_remedy(piece, Reason.NO_KEY):
            return None
        advice = 'a compacted topic takes no record without a key; set on-no-key = "skip" to leave such records out'
        return FlowError(f"{at}: {error} ({advice})")
    if isinstance(error, BrokerError):
        error.args = (f"{at}: {error}",)
        return error
    return error if isinstance(error, MirrorError) else FlowError(f"{at}: {type(error).__name__}: {error}")


def _too_large(
    error: RecordTooLarge, piece: OutputBatch, feed: BatchPipeline, source: TopicPartition, policy: CopyPolicy
) -> MirrorError | None:
    if feed.apply_remedy(piece, Reason.TOO_LARGE):
        return None
    if policy.on_too_large == "skip":
        feed.skip_record(piece)
        return None
    size = piece.batch.size if piece.batch is not None else 0
    return FlowError(
        f"{source}: the record at offset {piece.base_offset} ({size} bytes as a batch) is larger than the target takes:"
        f" {error}; raise max.message.bytes of the target topic (and buffer.memory), or set"
        ' on-too-large = "skip" to leave such records out'
    )
