"""Decides what to do if the target refuses a batch: re-encode it, skip a record, or stop."""

from __future__ import annotations

from typing import Final

from mirror.causes import BY_ERROR
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, CorruptBatch, FlowError, MirrorError, RecordRejected, RecordTooLarge
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import INVALID_TIMESTAMP, ReencodeReason
from mirror.relay.batches.remedies import Remedies
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.policy import CopyPolicy

_INVALID_RECORD: Final = 87
"""Kafka's ``Errors.INVALID_RECORD``."""


# Invariant: A refused record follows the policy that the flow names, and is never dropped silently: the next attempt
#   remedies its batch or stops in front of it, so that the batches before it are committed.
# Test: tests/relay/partition/test_refusals.py::test_batches_before_a_refused_one_are_copied
# Test: tests/copying/test_policies.py::test_refused_timestamps_follow_the_policy
def handle_refusal(
    error: BaseException,
    output: OutputBatch,
    remedies: Remedies,
    *,
    source: TopicPartition,
    policy: CopyPolicy,
    limits: TargetLimits,
) -> MirrorError | None:
    """Return None if the copy can resume from its progress, with one more of the ``remedies``; else the error.

    No record is ever dropped silently: only if a policy says so, and dropped records are counted.
    """
    at = f"{source}, the batch at offset {output.base_offset}"
    if output.aside:
        return _not_aside(error, output, source, policy)
    if isinstance(error, RecordTooLarge):
        return _too_large(error, output, remedies, source, policy)
    return handle_rejection(error, output, remedies, at, limits, goes_aside=policy.on_corrupt == "aside")


def handle_rejection(
    error: BaseException,
    output: OutputBatch,
    remedies: Remedies,
    at: str,
    limits: TargetLimits,
    *,
    goes_aside: bool,
) -> MirrorError | None:
    """Do what :func:`handle_refusal` does, for what is not too large."""
    if isinstance(error, RecordRejected) and error.code == INVALID_TIMESTAMP:
        # Re-encoded under any policy: only that shows which record is the cause.
        return None if remedies.apply(output, ReencodeReason.BAD_TIMESTAMP) else FlowError(f"{at}: {error}")
    if isinstance(error, RecordRejected) and error.code == _INVALID_RECORD and limits.compacted:
        # Re-encoded under any policy, each source batch alone: of merged batches it is not known which is the cause.
        if remedies.apply(output, ReencodeReason.NO_KEY):
            return None
        advice = 'a compacted topic takes no record without a key; set on-no-key = "skip" or "aside"'
        return FlowError(f"{at}: {error} ({advice})")
    damaged = goes_aside and isinstance(error, (RecordRejected, CorruptBatch))
    if damaged and remedies.apply(output, ReencodeReason.CORRUPT):
        return None  # if it cannot be decoded here, either, it goes aside
    if isinstance(error, (BrokerError, CorruptBatch)):
        error.args = (f"{at}: {error}",)
        return error
    return error if isinstance(error, MirrorError) else FlowError(f"{at}: {type(error).__name__}: {error}")


def _too_large(
    error: RecordTooLarge, output: OutputBatch, remedies: Remedies, source: TopicPartition, policy: CopyPolicy
) -> MirrorError | None:
    if remedies.apply(output, ReencodeReason.TOO_LARGE):
        return None
    if policy.on_too_large != "fail":
        remedies.skip_record(output)
        return None
    size = output.batch.size if output.batch is not None else 0
    # That of a segment has its own words, and is no limit of a batch alone.
    limit = "" if error.code in BY_ERROR else "; raise max.message.bytes of the target topic (and buffer.memory)"
    return FlowError(
        f"{source}: the record at offset {output.base_offset} ({size} bytes as a batch) is larger than the target"
        f" takes: {error}{limit}, or set"
        ' on-too-large = "skip" to leave such records out, or "aside"'
    )


# Invariant: What the aside topic does not take fails its partition in front of the record.
# Test: tests/relay/batches/test_aside.py::test_what_the_aside_topic_refuses_fails_the_partition
def _not_aside(error: BaseException, output: OutputBatch, source: TopicPartition, policy: CopyPolicy) -> FlowError:
    size = output.batch.size if output.batch is not None else 0
    too_large = isinstance(error, RecordTooLarge)
    advice = "; raise its max.message.bytes, or the flow's buffer.memory" if too_large else ""
    return FlowError(
        f"{source}: what is at offset {output.base_offset} ({', '.join(sorted(output.aside))}) cannot go aside:"
        f" {policy.aside} does not take its {size} bytes: {error}{advice}"
    )
