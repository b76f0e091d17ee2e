"""The source's side of a copy: how far it was read, and which fetched bytes are still needed."""

from __future__ import annotations

from typing import Final

from mirror.consumer.fetched import Fetched
from mirror.errors import ProtocolError
from mirror.relay.batches.aside import AsideOrigin
from mirror.relay.batches.batch_pipeline import BatchPipeline, SubmitReencode
from mirror.relay.batches.held_buffers import HeldBuffers
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.byte_limits import SourceBudget
from mirror.relay.model.policy import CopyPolicy
from mirror.timing import FOREVER_MS, deadline

MOST_THROTTLED_STALLS: Final = 10
"""How many times as long as on a silent broker records are awaited from one that throttles.

Not for ever: it never returns a batch that is larger than what the quota lets pass in all its samples, 11 s by default
(``quota.window.num``).
"""


class SourceReader:
    """Reads the offsets from :attr:`position` to :attr:`end` into a :class:`BatchPipeline`."""

    def __init__(
        self,
        end: int,
        limits: TargetLimits,
        policy: CopyPolicy,
        batch_size: int,
        *,
        reencode: SubmitReencode,
        budget: SourceBudget,
        is_foreign: IsForeign | None = None,
        origin: AsideOrigin | None = None,
    ) -> None:
        self.end = end
        """The range's end. It may be changed only before :meth:`begin`."""
        self._held: Final = HeldBuffers(budget)
        self.pipeline = BatchPipeline(
            limits, policy, batch_size, reencode=reencode, held=self._held, is_foreign=is_foreign, origin=origin
        )
        self.begin(0, 0)

    def begin(self, offset: int, now: int) -> None:
        """Restart at ``offset`` and release all buffered fetches."""
        self.position = offset
        """The next offset to fetch."""
        self.last_response_ms = now
        self.throttled_since_ms = FOREVER_MS
        """Since when the broker throttles and returns no records; FOREVER_MS if it does not."""
        self.last_stable_offset = FOREVER_MS
        """As of the last response; FOREVER_MS before the first one."""
        self.error: BaseException | None = None
        """Ended the reading; what was read before it is still copied."""
        self.pipeline.restart(offset)
        self._held.discount_all()

    @property
    def held_bytes(self) -> int:
        """Fetched bytes that are still needed."""
        return self._held.size

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

    def on_fetched(self, fetched: Fetched, now: int) -> None:
        """Take what was fetched since :meth:`begin`. It has to continue at :attr:`position`: any other is an error."""
        self.last_response_ms, self.throttled_since_ms = now, FOREVER_MS
        if fetched.error is not None:
            self.error = fetched.error
        elif fetched.offset != self.position:
            self.error = ProtocolError(
                f"{fetched.tp}: the source was read up to offset {self.position}, and the next fetch is from offset"
                f" {fetched.offset}: nothing from offset {self.position} on was copied; the next attempt reads it again"
            )
        else:
            self.position, self.last_stable_offset = fetched.next_offset, fetched.last_stable_offset
            self.pipeline.add_fetched(fetched, self.end)

    def on_throttled(self, until_ms: int, now: int) -> None:
        """The broker has answered without records at ``now``, and does so until ``until_ms``."""
        self.last_response_ms = max(until_ms, self.last_response_ms)
        self.throttled_since_ms = min(now, self.throttled_since_ms)

    def stalls_at_ms(self, stall_ms: int) -> int:
        """Return when the source counts as stalled if nothing comes from it before."""
        throttled_ms = deadline(self.throttled_since_ms, stall_ms * MOST_THROTTLED_STALLS)
        return min(deadline(self.last_response_ms, stall_ms), throttled_ms)

    def fail(self, error: BaseException) -> None:
        """End the reading: what comes next cannot be copied. What was handed to the producer before counts."""
        self.error = error
        self.pipeline.clear()
