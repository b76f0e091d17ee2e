"""The source's side of a copy: how far it was read, and which fetched bytes are still needed."""

from __future__ import annotations

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.batch_pipeline import BatchPipeline, SubmitReencode
from mirror.relay.batches.output_batch import BufferRef
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.flow_control import SourceBudget
from mirror.relay.model.policy import CopyPolicy
from mirror.timing import FOREVER_MS


class SourceReader:
    """Reads the offsets from :attr:`position` to :attr:`end` into a :class:`BatchPipeline`."""

    def __init__(
        self,
        end: int,
        limits: TargetLimits,
        policy: CopyPolicy,
        batch_size: int,
        *,
        remake: SubmitReencode,
        budget: SourceBudget,
    ) -> None:
        self.end = end
        """The range's end. It may be changed only before :meth:`begin`."""
        self.held_bytes = 0
        """Fetched bytes that are still needed."""
        self.pipeline = BatchPipeline(
            limits, policy, batch_size, reencode=remake, on_held=self._on_held, on_released=self._on_part_done
        )
        self._budget = budget
        self._parts: set[BufferRef] = set()
        self.begin(0, 0)

    def begin(self, offset: int, now: int) -> None:
        """Restart at ``offset`` and release all buffered fetches."""
        self.position = offset
        """The next offset to fetch."""
        self.last_response_ms = now
        self.last_stable_offset = FOREVER_MS
        """As of the last response; FOREVER_MS before the first one."""
        self.error: BaseException | None = None
        """Ended the reading; what was read before it is still copied."""
        self.pipeline.restart(offset)
        for part in list(self._parts):
            self._release(part)  # the bytes stay in memory while the encoder reads them

    @property
    def ended(self) -> bool:
        """Whether nothing more will be read."""
        return self.error is not None or self.position >= self.end

    @property
    def caught_up(self) -> bool:
        """Whether all that the source had at its last response was handed to the producer."""
        return self.pipeline.empty and (self.ended or self.position >= self.last_stable_offset)

    def confirm_end(self, end: int) -> bool:
        """Accept ``end`` as the last stable offset if everything before it was read; return whether it was."""
        if self.pipeline.empty and self.position >= end:
            self.last_stable_offset = end
            return True
        return False

    def on_fetched(self, fetched: Fetched, now: int) -> bool:
        """Take what was fetched; return False if it was requested before :meth:`begin`."""
        if fetched.offset != self.position:
            return False
        self.last_response_ms = now
        if fetched.error is not None:
            self.error = fetched.error
        else:
            self.position, self.last_stable_offset = fetched.next_offset, fetched.last_stable_offset
            self.pipeline.add_fetched(fetched, self.end)
        return True

    def fail(self, error: BaseException) -> None:
        """End the reading: what comes next cannot be copied. What was handed to the producer before counts."""
        self.error = error
        self.pipeline.clear()

    def _on_held(self, part: BufferRef) -> None:
        self._parts.add(part)
        self.held_bytes += part.size
        self._budget.add(part.size)

    def _on_part_done(self, part: BufferRef) -> None:
        if part in self._parts:
            self._release(part)
            if part.fetched is not None:
                part.fetched.release()

    def _release(self, part: BufferRef) -> None:
        self._parts.remove(part)
        self.held_bytes -= part.size
        self._budget.release(part.size)
