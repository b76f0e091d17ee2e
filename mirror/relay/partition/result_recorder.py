"""What one range's copy has done, for its result: what the target keeps, what is counted, and how it went. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.timeline import CopyPhase, CopyTimeline, EventName, TimelineRecorder
from mirror.relay.partition.expiries import other_source
from mirror.relay.progress.committed import NOTHING, Progress, ProgressTotals
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.model.observer import TaskObserver
    from mirror.relay.partition.attempt import CopyAttempt
    from mirror.relay.partition.attempt_outcome import AttemptOutcome
    from mirror.relay.partition.outbox import CommitCounts, Outbox
    from mirror.relay.partition.source_reader import SourceReader


class ResultRecorder:
    """``known`` is the progress that the target has, None before it was asked; ``target_end`` its end after that.

    ``topic_id`` is the source topic that is read: the planned one until something newer is known.

    ``handed`` is what had been sent when the result was handed over, None before: what is copied from then on is told
    with the progress, for whoever goes on from there.
    """

    def __init__(self, one: Range, wall: Callable[[], int], now: int, watcher: TaskObserver) -> None:
        self.result: Final = RangeResult.begun(one, one.start)
        self.known: Progress | None = None
        self.target_end: int | None = None
        self.is_kept = False
        self.handed: ProgressTotals | None = None
        self.topic_id = one.topic_id
        self.chronicle: Final = TimelineRecorder(wall, now, partial(watcher.passed, one))
        self._watcher: Final = watcher
        self._range: Final = one
        self._wall: Final = wall
        self._began_ms: Final = now

    @property
    def kept(self) -> tuple[Progress, int] | None:
        """The committed progress, with the target's end after it, where that is known: for the progress topic."""
        if self.known is None or self.target_end is None or not self.is_kept:
            return None
        if self.result.outcome is Outcome.FENCED:
            return None  # whoever took over has a newer one
        return self.known, self.target_end

    def begins_at(self, progress: Progress) -> bool:
        """An attempt begins at ``progress``; whether it is the first. Raises FlowError: it is another source's."""
        if progress.source_cluster_id not in {"", self._range.source_cluster_id}:
            raise other_source(self._range, progress)
        first = self.known is None
        if first:
            self.result.start = progress.offset
            if self._range.follows:
                self._count(progress.left)
        self.known = progress
        self.result.end = progress.offset
        return first

    def is_of_another_topic(self, progress: Progress) -> bool:
        """Whether the topic was deleted and made again since."""
        return bool(progress.topic_id and self.topic_id) and progress.topic_id != self.topic_id

    @property
    def copied_topic(self) -> str:
        """The id of the topic that the progress belongs to, as far as is known: by the progress, else by the plan."""
        return (self.known.topic_id if self.known is not None else "") or self.topic_id

    def reads(self, topic_id: str) -> None:
        """An attempt reads from the topic with this id; empty: not known. From here on it goes into the progress."""
        self.topic_id = topic_id or self.topic_id

    def is_to_be_kept_anew(self, progress: Progress, renew_ms: int) -> bool:
        """Whether it was kept ``renew_ms`` ago, or earlier (0: it never is); or tells of what is counted here."""
        return self.counts(progress) or (renew_ms > 0 and self._wall() - progress.time_ms >= renew_ms)

    def counts(self, progress: Progress) -> bool:
        """Whether ``progress`` tells of something ``left``, which is counted now.

        As long as it does, it is to be kept anew with each attempt: an idle partition would commit nothing else, and
        have it counted in each epoch.
        """
        return self._range.follows and progress.left != NOTHING

    def reads_anew(self, copying: CopyAttempt | None) -> None:
        """The attempt goes on in another place than ``copying``, and counts from nothing: what that left is added."""
        if self.handed is not None and copying is not None:
            self.handed = self.handed.less(copying.commits.kept)

    def _count(self, left: ProgressTotals) -> None:
        self.result.records += left.records
        self.result.batches += left.batches
        self.result.bytes += left.bytes

    def progress(self, offset: int, leader_epoch: int | None, sent: ProgressTotals = NOTHING) -> Progress:
        """As it is to be kept, with ``sent`` by the attempt so far."""
        return Progress(
            offset=offset,
            leader_epoch=None if leader_epoch is None or leader_epoch < 0 else leader_epoch,
            source_cluster_id=self._range.source_cluster_id,
            topic_id=self.topic_id,
            time_ms=self._wall(),
            left=NOTHING if self.handed is None else sent.less(self.handed),
        )

    def committed(
        self,
        tally: CommitCounts,
        copying: CopyAttempt,
        reading: SourceReader,
        *,
        atomic: bool,
        leader: tuple[int, int] | None,
    ) -> None:
        """A commit took ``tally`` with it; ``leader`` (node, epoch) is the target partition's."""
        outbox, commits = copying.outbox, copying.commits
        tally.into(self.result)
        self.known, self.is_kept = commits.known, True
        self.result.end = commits.known.offset
        if outbox.target_end is not None:
            # Behind a transaction's records stands its marker.
            self.target_end = outbox.target_end + int(atomic)
        chronicle = self.chronicle
        chronicle.led("source", commits.known.leader_epoch)
        if leader is not None:
            chronicle.led("target", leader[1], leader[0])
        self._begin_story(outbox, reading)
        chronicle.committed(
            self.result.end,
            None if reading.stable_end == FOREVER_MS else reading.stable_end,
            records=self.result.records,
            size=self.result.bytes,
            last_ms=outbox.acked_time_ms,
            took_ms=commits.took_ms,
        )

    def goes_on(self, copying: CopyAttempt, reading: SourceReader, now: int) -> None:
        """The attempt has taken a step."""
        outbox, chronicle = copying.outbox, self.chronicle
        if not chronicle.begun:
            self._begin_story(outbox, reading)
        elif reading.stable_end != FOREVER_MS:
            chronicle.end = reading.stable_end
        if outbox.throttled_ms:
            chronicle.throttled(outbox.throttled_ms)
            outbox.throttled_ms = 0
        chronicle.enter(copying.phase, now)

    def had_nothing_to_fetch(self, copying: CopyAttempt, reading: SourceReader) -> None:
        """The source's first answer says that it had nothing new: the wait for it was idle time."""
        self._begin_story(copying.outbox, reading)
        if self.chronicle.phase is CopyPhase.FETCHING:
            self.chronicle.was(CopyPhase.IDLE)

    def _begin_story(self, outbox: Outbox, reading: SourceReader) -> None:
        """Once the source has said how far it goes, and how old its first record is."""
        heard = reading.stable_end != FOREVER_MS and (outbox.first_time_ms is not None or reading.caught_up)
        if heard and not self.chronicle.begun:
            self.chronicle.begins(self.result.start, reading.stable_end, outbox.first_time_ms)

    def ends(self, after: AttemptOutcome | None, attempt: int, why: str) -> None:
        """An attempt is over, with this ruling."""
        if after is not None and after.expiry is not None:
            # Without a batch of its own it is all that was to be copied that has waited.
            at = self.result.end
            offsets = {"start": at, "end": at if self._range.follows else max(at, self._range.end)}
            self.result.expiries.append({**offsets, **after.expiry})
        if after is not None and after.outcome is Outcome.FENCED:
            self.chronicle.happened(EventName.FENCED, error=after.error)
        if why:
            self.chronicle.attempted(attempt, why)

    def passed_over(self, kind: str, offsets: int) -> None:
        """A gap in the source."""
        self.chronicle.happened(EventName.GAP, kind=kind, offsets=offsets)

    def begins_anew(self, attempt: int, error: str | None, backoff_ms: int) -> None:
        """After an attempt that failed: another one, in ``backoff_ms``."""
        self.chronicle.happened(EventName.RETRY, attempt=attempt, error=error, backoff_ms=backoff_ms)

    def close(self, now: int, after: AttemptOutcome, stuck_since_ms: int | None) -> None:
        """The result stands."""
        one = self.result
        one.outcome, one.error = after.outcome, after.error or None
        one.seconds = max(0.001, (now - self._began_ms) / 1000)
        if after.outcome is Outcome.UNFINISHED:
            one.stuck_since_ms = stuck_since_ms
        one.story = self._story(now)
        self._watcher.done(self._range, one)

    def _story(self, now: int) -> CopyTimeline:
        story, one = self.chronicle.told(now), self._range
        story.sick_since_ms, story.sick_trace, story.last_trace = one.sick_since_ms, one.sick_trace, one.last_trace
        if story.lag_before is None and one.source_end:
            # The source was never heard: what it had when this was planned.
            story.lag_before = max(0, one.source_end - self.result.start)
            story.lag_after = max(0, one.source_end - self.result.end)
        return story

    def so_far(self, now: int, after: AttemptOutcome, stuck_since_ms: int | None) -> RangeResult:
        """What is told of an epoch that ends now, while the copy goes on."""
        one = self.result
        told = replace(one, skipped=dict(one.skipped), deep=dict(one.deep), gaps=dict(one.gaps))
        told.expiries = [*one.expiries]
        told.outcome, told.error, told.stuck_since_ms = after.outcome, after.error or None, stuck_since_ms
        told.seconds = max(0.001, (now - self._began_ms) / 1000)
        told.story = self._story(now)
        self._watcher.done(self._range, told)
        return told
