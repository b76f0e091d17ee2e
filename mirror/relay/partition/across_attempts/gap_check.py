"""Decides, by the source's own log bounds, why it does not return the next offset, and where to resume. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.errors import FlowError, LogTruncated
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.partition.attempts.source_reader import MOST_THROTTLED_STALLS, SourceReader
from mirror.relay.partition.limits import MAX_REFETCHES, MAX_UNEXPLAINED_GAPS
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import Gap, GapKind, SourceState, find_gap
from mirror.timing import FOREVER_MS


class SourceGapCheck:
    """The gap checks of one copy, over all its attempts."""

    def __init__(
        self, copied: Range, policy: CopyPolicy, reader: SourceReader, stall_ms: int, source_error: Callable[[], str]
    ) -> None:
        """``source_error`` returns the source's last error as ``': <error>'``, or ``''``."""
        self.stalled = False
        """Whether the check is made because the source returned nothing, without an error."""
        self._unexplained = 0
        self._damaged_offset = -1
        self._fetches_of_damaged = 0
        self._source: Final = TopicPartition(copied.topic, copied.partition)
        self._open_ended: Final = copied.open_ended
        self._policy: Final = policy
        self._reader: Final = reader
        self._stall_ms: Final = stall_ms
        self._source_error: Final = source_error
        self._stall_error = ""
        self._silent_ms = stall_ms

    def begin(self, *, stalled: bool) -> None:
        """The check begins, while the partition is still read; ``stalled``: because nothing came from the source."""
        self.stalled = stalled
        # Afterwards the consumer does not know the partition any more.
        self._stall_error = self._source_error() if stalled else ""
        throttled = self._reader.throttled_since_ms < FOREVER_MS
        self._silent_ms = self._stall_ms * (MOST_THROTTLED_STALLS if throttled else 1)

    def on_fetched(self) -> None:
        """The source has returned records."""
        self._unexplained = 0

    def may_refetch(self, offset: int) -> bool:
        """Count a damaged batch at ``offset``; whether to fetch it again: it may have been damaged on its way."""
        self._fetches_of_damaged = self._fetches_of_damaged + 1 if offset == self._damaged_offset else 1
        self._damaged_offset = offset
        return self._fetches_of_damaged <= MAX_REFETCHES

    # Invariant: A gap is decided from the exact position: what retention has deleted behind a lower bound may have been
    #   appended.
    # Test: tests/relay/partition/test_sequences.py::test_gap_begins_behind_what_was_appended
    def needs_exact(self, progress: Progress, state: SourceState) -> bool:
        """Whether the partition has to be acquired before anything is known about a gap behind ``progress``.

        Earlier attempts may have appended what retention has deleted since. A topic that was recreated, or cut back
        below the progress, has a gap wherever the exact position is.
        """
        gap = self._gap(progress, state)
        return gap is not None and gap.kind is GapKind.RETENTION

    def evaluate(self, progress: Progress, state: SourceState) -> Gap | None:
        """Return the gap behind ``progress`` to resume after, or None if nothing is missing and reading may be retried.

        Raises FlowError if the flow's policy forbids to skip the gap, or the source has stalled; the reader's error, as
        MirrorError, if the source has reported a gap that does not exist too often.
        """
        reader = self._reader
        gap = self._gap(progress, state)
        if gap is None and not self.stalled and reader.error is not None:
            self._unexplained += 1
            if self._unexplained > MAX_UNEXPLAINED_GAPS:
                gap = self._made_again(progress, state)
                if gap is None:
                    raise as_mirror_error(reader.error)
        if gap is not None and self._policy.on_gap != "skip":
            raise FlowError(f"{self._source}: {gap}; {gap.advice()}")
        if gap is not None and not self._open_ended:
            reader.end = max(gap.resume, min(reader.end, state.end))
        if gap is not None:
            return gap
        if self.stalled:
            raise FlowError(f"{self._source}: nothing came from the source for {self._silent_ms} ms{self._stall_error}")
        return None

    def _made_again(self, progress: Progress, state: SourceState) -> Gap | None:
        """Return the gap of a topic without an id if its log has neither the copied leader epoch nor a later one.

        An election adds an epoch to a log, so that no loss of records explains this.
        """
        error = self._reader.error
        if state.topic_id or not isinstance(error, LogTruncated) or error.diverging_offset is not None:
            return None
        return Gap(GapKind.RECREATED, progress.offset, state.earliest, 0, f" (it has no id to show it): {error}")

    def _gap(self, progress: Progress, state: SourceState) -> Gap | None:
        error = self._reader.error
        diverging = error.diverging_offset if isinstance(error, LogTruncated) else None
        gap = find_gap(progress, state.topic_id, state.earliest, state.end, diverging=diverging)
        if gap is None and self.stalled and not self._open_ended and state.end < self._reader.end:
            # The source ends before the planned end; what is left is still to be copied.
            return Gap(GapKind.TRUNCATED, progress.offset, progress.offset, 0)
        return gap
