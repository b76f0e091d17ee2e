"""What a copy's buffers count, and when their memory is released."""

from __future__ import annotations

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.held_buffers import HeldBuffers
from mirror.relay.batches.output_batch import BufferRef
from mirror.relay.byte_limits import SourceBudget
from tests.relay.hand_context import SOURCE


class _Part:
    held = 10

    def __init__(self) -> None:
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


def _held() -> tuple[HeldBuffers, BufferRef, _Part, SourceBudget]:
    budget, part = SourceBudget(100), _Part()
    held = HeldBuffers(budget)
    buffer = BufferRef(10, held.release, Fetched(tp=SOURCE, offset=0, next_offset=1, part=part), references=2)
    held.add(buffer)
    return held, buffer, part, budget


def test_memory_is_released_with_the_last_reference() -> None:
    held, buffer, part, budget = _held()
    buffer.release()
    assert (held.size, budget.held, part.releases) == (10, 10, 0)
    buffer.release()
    assert (held.size, budget.held, part.releases) == (0, 0, 1)


def test_memory_that_is_not_counted_any_more_is_not_reused() -> None:
    """The attempt has ended: the producer may still send a batch from these bytes, and the encoder may read them."""
    held, buffer, part, budget = _held()
    held.discount_all()
    assert (held.size, budget.held) == (0, 0)
    for _ in range(2):
        buffer.release()
    assert (held.size, budget.held, part.releases) == (0, 0, 0)
