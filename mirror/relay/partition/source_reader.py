"""The source's side of a copy: how far it was read, and what of that is not done with."""

from __future__ import annotations

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.batch_pipeline import BatchPipeline, Remake
from mirror.relay.batches.output_batch import BufferRef
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.flow_control import SourceBudget
from mirror.relay.model.policy import CopyPolicy
from mirror.timing import FOREVER_MS


class SourceReader:
    """Reads ``[at, end)``; ``stable_end`` is the last stable offset as of the last answer, ``heard_ms`` its time.

    ``held`` are the bytes that are still needed, ``error`` is what ended the reading. ``ended``: nothing more is to
    come; whatever moves ``at`` or brings an ``error`` says so. ``end`` is changed only before it begins anew.
    """

    def __init__(
        self,
        end: int,
        facts: TargetLimits,
        policy: CopyPolicy,
        batch_size: int,
        *,
        remake: Remake,
        holdings: SourceBudget,
    ) -> None:
        self.end = end
        self.held = 0
        self.feed = BatchPipeline(facts, policy, batch_size, remake=remake, took=self._took, part_done=self._part_done)
        self._holdings = holdings
        self._parts: set[BufferRef] = set()
        self.begin(0, 0)

    def begin(self, offset: int, now: int) -> None:
        """Anew, from ``offset`` on. Nothing of before is needed: its bytes go when nobody can read them any more."""
        self.at, self.heard_ms, self.stable_end = offset, now, FOREVER_MS
        self.error: BaseException | None = None
        self.ended = self.at >= self.end
        self.feed.begin(offset)
        for part in list(self._parts):
            self._let_go(part)

    @property
    def caught_up(self) -> bool:
        """Whether the source had no more when it was last heard of, and all of it was handed on."""
        return self.feed.idle and (self.ended or self.at >= self.stable_end)

    def ends_at(self, stable_end: int) -> bool:
        """The source answered without records, and ends there; whether that is where this stands."""
        if self.feed.idle and self.at >= stable_end:
            self.stable_end = stable_end
            return True
        return False

    def take_in(self, fetched: Fetched, now: int) -> bool:
        """What was fetched; False where it was asked for before :meth:`begin`."""
        if fetched.offset != self.at:
            return False
        self.heard_ms = now
        if fetched.error is not None:
            self.error, self.ended = fetched.error, True
        else:
            self.at, self.stable_end = fetched.next_offset, fetched.last_stable_offset
            self.ended = self.ended or self.at >= self.end  # behind an error more may come in, and is not wanted
            self.feed.take_in(fetched, self.end)
        return True

    def fail(self, error: BaseException) -> None:
        """What comes next cannot be copied; what was handed on before counts."""
        self.error, self.ended = error, True
        self.feed.cut()

    def _took(self, part: BufferRef) -> None:
        self._parts.add(part)
        self.held += part.size
        self._holdings.took(part.size)

    def _part_done(self, part: BufferRef) -> None:
        if part in self._parts:
            self._let_go(part)
            if part.fetched is not None:
                part.fetched.release()

    def _let_go(self, part: BufferRef) -> None:
        self._parts.remove(part)
        self.held -= part.size
        self._holdings.let_go(part.size)
