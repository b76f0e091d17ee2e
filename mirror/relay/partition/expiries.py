"""What is said of a copy that did not get through: expiries as values and errors, in the words of their phase."""

from __future__ import annotations

from typing import Any

from mirror.cluster.types import TopicPartition
from mirror.errors import (
    BatchTooLarge,
    BrokerError,
    CorruptBatch,
    DeliveryCause,
    DeliveryPhase,
    DeliveryTimeout,
    FlowError,
    KafkaError,
    MirrorError,
)
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.model.ranges import Range
from mirror.relay.progress.committed import Progress


def timed_out(
    tp: TopicPartition, phase: DeliveryPhase, error: KafkaError, *, age_ms: int, may_have_been_written: bool = False
) -> DeliveryTimeout:
    """The expiry of a partition that could not even begin, or not end: who was asked did not get through.

    That is its leader in the phase METADATA, and its coordinator otherwise.
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


def told(error: BaseException, piece: OutputBatch | None, wall_ms: int) -> dict[str, Any]:
    """An expiry as plain values: what its error says, the source offsets of its batch, and when it was."""
    about: dict[str, Any] = (
        error.describe()
        if isinstance(error, DeliveryTimeout)
        else {
            "phase": DeliveryPhase.COMMITTING.value,
            "cause": DeliveryCause.COORDINATOR.value,
            "last_error": str(error),
        }
    )
    about["time_ms"] = wall_ms
    if piece is not None:
        about["start"], about["end"] = piece.base_offset, piece.next_offset
    return about


def other_source(one: Range, progress: Progress) -> FlowError:
    """Two deployments under one name."""
    return FlowError(
        f"{one.target_topic}-{one.partition}: its progress was kept by a flow {one.flow!r} from another source cluster "
        f"({progress.source_cluster_id}, not {one.source_cluster_id}); give one of the two flows another name"
    )


def unreadable(error: MirrorError, source: TopicPartition, offset: int) -> MirrorError:
    """``error``, with where it is, and what is to be done where the batch at ``offset`` cannot be read."""
    if isinstance(error, CorruptBatch):
        advice = "mend the source's log, or make another replica the leader"
    elif isinstance(error, BatchTooLarge):
        advice = "if its producer is to be trusted, raise the flow's buffer.memory to more than a quarter of its size"
    else:
        return error
    what = str(error).removeprefix(f"{source}: ")
    return type(error)(f"{source}: nothing from offset {offset} on was copied: {what}; {advice}")
