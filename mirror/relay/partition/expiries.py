"""The errors of a copy that expires or cannot continue, and its expiries as plain values."""

from __future__ import annotations

from typing import Any, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import (
    BatchTooLarge,
    BrokerError,
    CorruptBatch,
    DeliveryCause,
    DeliveryPhase,
    DeliveryTimeout,
    KafkaError,
    MirrorError,
)
from mirror.relay.batches.output_batch import OutputBatch


class DeliveryFailure(NamedTuple):
    """The target did not take a batch, or a commit (then ``output`` is None)."""

    error: BaseException
    output: OutputBatch | None


class TargetShrank(NamedTuple):
    """The target's log is shorter than it was: it was recreated, or lost records."""

    reason: str


def expiry_error(
    tp: TopicPartition, phase: DeliveryPhase, error: KafkaError, *, age_ms: int, may_have_been_written: bool = False
) -> DeliveryTimeout:
    """Return the error of an expiry outside of the producer: while ``tp`` was opened, checked or committed.

    In the phase METADATA the cause is the partition's leader, in all others the transaction coordinator.
    """
    last = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
    cause = DeliveryCause.COORDINATOR
    if phase is DeliveryPhase.METADATA:
        cause = DeliveryCause.NO_LEADER if isinstance(last, BrokerError) else DeliveryCause.NO_ANSWER
    unknown = "; it may have been committed" if may_have_been_written else ""
    return DeliveryTimeout(
        f"{tp}: delivery.timeout.ms was over after {age_ms} ms ({phase.value}, {cause.value}): {last}{unknown}",
        topic=tp.topic,
        partition=tp.partition,
        age_ms=age_ms,
        queued_ms=age_ms,
        attempts=1,
        phase=phase,
        cause=cause,
        last_error=last,
        may_have_been_written=may_have_been_written,
    )


def expiry_record(error: BaseException, output: OutputBatch | None, unix_ms: int) -> dict[str, Any]:
    """Describe an expiry at ``unix_ms`` as plain values, with the source offsets of its batch if it has one."""
    fields: dict[str, Any] = (
        error.describe()
        if isinstance(error, DeliveryTimeout)
        else {
            "phase": DeliveryPhase.COMMITTING.value,
            "cause": DeliveryCause.COORDINATOR.value,
            "last_error": str(error),
        }
    )
    fields["time_ms"] = unix_ms
    if output is not None:
        fields["start"], fields["end"] = output.base_offset, output.next_offset
    return fields


def unreadable(error: MirrorError, source: TopicPartition, offset: int) -> MirrorError:
    """Return ``error`` with the partition and offset, and with advice if the batch at ``offset`` cannot be read."""
    if isinstance(error, CorruptBatch):
        advice = "mend the source's log, or make another replica the leader"
    elif isinstance(error, BatchTooLarge):
        advice = "if you trust its producer, raise the flow's buffer.memory to more than a quarter of the batch's size"
    else:
        return error
    reason = str(error).removeprefix(f"{source}: ")
    return type(error)(f"{source}: nothing from offset {offset} on was copied: {reason}; {advice}")
