"""Why a source does not have what comes next, by what it says of itself: where to go on behind a gap. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.errors import FlowError, LogTruncated
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.partition.source_reader import SourceReader
from mirror.relay.partition.states import FETCHED_AGAIN, LOOKS
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import Gap, GapKind, SourceState, classify


class SourceGapCheck:
    """The looks that one copy takes. ``silent``: it looks because the source, although asked, gives nothing.

    ``why_silent`` is what is known of that, behind a colon, or an empty text.
    """

    def __init__(
        self, one: Range, policy: CopyPolicy, reading: SourceReader, stall_ms: int, why_silent: Callable[[], str]
    ) -> None:
        self.silent = False
        self._in_vain = 0
        self._damage = (-1, 0)
        self._source: Final = TopicPartition(one.topic, one.partition)
        self._follows: Final = one.follows
        self._policy: Final = policy
        self._reading: Final = reading
        self._stall_ms: Final = stall_ms
        self._why_silent: Final = why_silent

    def given(self) -> None:
        """The source has given something."""
        self._in_vain = 0

    def again(self, offset: int) -> bool:
        """Whether what cannot be read at ``offset`` is to be fetched once more: it may have been damaged on its way."""
        at, times = self._damage
        self._damage = (offset, times + 1 if at == offset else 1)
        return self._damage[1] <= FETCHED_AGAIN

    def found(self, known: Progress, state: SourceState) -> Gap | None:
        """The gap behind ``known``, to be passed over; None where nothing is missing, and reading is worth another try.

        Where it is not: raises MirrorError. FlowError where a gap is not to be passed over, too.
        """
        reading = self._reading
        gap = self._gap(known, state)
        if gap is not None and self._policy.on_gap != "skip":
            raise FlowError(f"{self._source}: {gap}; {gap.advice()}")
        if gap is not None and not self._follows:
            reading.end = max(gap.resume, min(reading.end, state.end))
        if gap is not None:
            return gap
        if self.silent:
            raise FlowError(f"{self._source}: nothing came from the source for {self._stall_ms} ms{self._why_silent()}")
        if reading.error is not None:
            self._in_vain += 1
            if self._in_vain > LOOKS:
                raise as_mirror_error(reading.error)
        return None

    def _gap(self, known: Progress, state: SourceState) -> Gap | None:
        error = self._reading.error
        diverging = error.diverging_offset if isinstance(error, LogTruncated) else None
        gap = classify(known, state.topic_id, state.earliest, state.end, diverging=diverging)
        if gap is None and self.silent and not self._follows and state.end < self._reading.end:
            # Below what was planned; what is left is still to be copied.
            return Gap(GapKind.TRUNCATED, known.offset, known.offset, 0)
        return gap
