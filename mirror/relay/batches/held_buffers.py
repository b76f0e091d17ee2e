"""Counts the fetched and re-encoded bytes that a copy still needs. No I/O."""

from __future__ import annotations

from typing import Final

from mirror.relay.batches.output_batch import BufferRef
from mirror.relay.byte_limits import SourceBudget


class HeldBuffers:
    """The buffers of one copy, which count against the budget of its task."""

    def __init__(self, budget: SourceBudget) -> None:
        self.size = 0
        """Bytes."""
        self._budget: Final = budget
        self._buffers: Final[set[BufferRef]] = set()

    def add(self, buffer: BufferRef) -> None:
        """Count ``buffer``, which is needed from now on."""
        self._buffers.add(buffer)
        self.size += buffer.size
        self._budget.add(buffer.size)

    def release(self, buffer: BufferRef) -> None:
        """Release the memory of ``buffer``, which has no reference any more."""
        if buffer in self._buffers:
            self._discount(buffer)
            if buffer.fetched is not None:
                buffer.fetched.release()

    def discount_all(self) -> None:
        """Count nothing any more. The memory stays: a batch may still be sent, or encoded, from its bytes."""
        for buffer in list(self._buffers):
            self._discount(buffer)

    def _discount(self, buffer: BufferRef) -> None:
        self._buffers.remove(buffer)
        self.size -= buffer.size
        self._budget.release(buffer.size)
