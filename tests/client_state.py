"""What a client has at the moment: the one place in the tests that knows where it keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.cluster.types import TopicPartition

if TYPE_CHECKING:
    from mirror.client import Admin, Consumer, Producer
    from mirror.runtime.memory.buffer_memory import MemoryShare
    from mirror.runtime.memory.send_claim import UnansweredSends
    from mirror.runtime.pending_requests import PendingRequests


def is_in_use(consumer: Consumer) -> bool:
    """Whether a thread is in one of its calls."""
    return consumer._use._owner is not None


def pending(client: Admin | Producer) -> PendingRequests:
    """The calls that wait for an answer."""
    return client._asked


def memory(producer: Producer) -> MemoryShare:
    return producer._memory


def unanswered(producer: Producer) -> UnansweredSends:
    """The batches that have no outcome."""
    return producer._unanswered


def place(producer: Producer, tp: TopicPartition) -> Any:
    """What it keeps of a partition that it sends to."""
    return producer._place(*tp)
