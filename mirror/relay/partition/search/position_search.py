"""Finds how far the source was copied, if a former attempt may have appended more than the progress says.

An attempt that copies by sequences commits its progress later than its batches, and a partition of
``__consumer_offsets`` may have lost what was committed in transactions, so the progress is a lower bound. The
fence of the present attempt froze the target's log for all earlier ones: what it holds between the progress and the
fence's marker is all that was appended. It is compared with the source, record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from mirror.client import Consumer, Fetched, OffsetAndMetadata, TopicPartition
from mirror.closing import Closing
from mirror.errors import KafkaError, KafkaTimeout, LogTruncated, OffsetOutOfRange
from mirror.relay.batches.appended import Differs, ExpectedRecords, Shift, Unproved, compare, find_shifted
from mirror.relay.batches.own_appends import Committed, OwnAppends, committed_behind
from mirror.relay.batches.reencode import ReencodeSpec
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.batches.standing_appends import StandingAppends
from mirror.relay.batches.transforms import transform_of
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.origin.records import LogKey
from mirror.relay.origin.registry import LocalOrigin
from mirror.relay.partition.search.consumer_pool import ConsumerPool
from mirror.relay.partition.search.patient_reading import MIN_PATIENCE_MS, Patience, read_from
from mirror.relay.partition.search.search_results import (
    found_position,
    marked_end,
    searched_to,
    settled_mark,
    unhealed_error,
    unproved_error,
)
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.committed import NO_TOTALS, Progress
from mirror.relay.progress.log_reading import read_log
from mirror.relay.progress.position import FoundPosition, PositionQuery, TargetLogCut
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decompress import MAX_DECOMPRESSED_BYTES
from mirror.wire.records import Batch

_MARKER_PATIENCE_MS: Final = 100
"""How long the first slice waits for more of the target: fetches as short as these burden its leader."""
_MAX_PATIENCE_MS: Final = 32_000
"""If a slice has waited in vain, although there is more to read, the next one waits twice as long, up to this time."""


# Invariant: An attempt resumes behind what earlier ones have appended beyond the progress, which only the log says; a
#   log that is cut meanwhile is searched again.
# Test: tests/copying/test_sequences.py::test_appended_beyond_the_progress_is_found_in_the_log
# Test: tests/relay/task/test_restored_progress_on_fakes.py::test_what_is_appended_until_the_fence_is_not_sent_again
# Test: tests/relay/partition/
#   test_sequences_races.py::test_batch_of_an_earlier_attempt_that_arrives_before_the_late_marker_is_found
# Test: tests/relay/partition/search/
#   test_position_search.py::test_log_that_is_cut_while_it_is_searched_is_resolved_again
class LogPositionSearch(Closing):
    """The :class:`PositionSearch` of a task.

    Its clients are created when they are needed, and kept: at most as many of each cluster as slices were running at
    once. They share the network threads with the other clients of the process.
    """

    def __init__(
        self,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        policy: CopyPolicy,
        origin: LocalOrigin | None = None,
        *,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError, FlowError.

        ``origin`` decides which of the source's records are copied; None: all.
        """
        self._origin: Final = origin
        self.source: Final = ConsumerPool(source_options, "read_committed")
        self.target: Final = ConsumerPool(target_options, "read_uncommitted")
        self.spec: Final = ReencodeSpec(
            headers=policy.headers,
            transform=transform_of(policy),
            max_source_bytes=max_decompressed_bytes,
        )

    def foreign_finder(self, query: PositionQuery) -> IsForeign | None:
        """Return what decides which batches of the source are not copied; None if all are."""
        if self._origin is None:
            return None
        return self._origin.finder(LogKey.of(query.source, query.progress.topic_id))

    def begin(self, query: PositionQuery) -> LogSearch:
        """Return a search that has read nothing yet."""
        return LogSearch(query, self)

    # Invariant: Searches that begin together read what follows their progress with the same requests; each that finds
    #   more than its fence's marker, or an error, goes on alone from where it was.
    # Test: tests/relay/partition/search/test_reading_together.py::test_targets_of_many_searches_are_read_together
    # Test: tests/relay/partition/search/test_reading_together.py::test_search_meets_its_error_alone
    def read_together(self, searches: Sequence[LogSearch], on_read: Callable[[LogSearch], None]) -> None:
        """As :meth:`PositionSearch.read_together`."""
        reading = {search.target: search for search in searches}
        late = [search for search in searches if reading[search.target] is not search]
        timer = Timer(SystemClock(), _MARKER_PATIENCE_MS)
        with suppress(KafkaError), self.target.lend() as consumer:
            consumer.assign(reading, paused=True)
            for tp, search in reading.items():
                consumer.seek(tp, search.position)
            consumer.resume(reading)
            while reading and not (timer.expired() or self.target.closed):
                for fetched in consumer.poll(timer.remaining_ms()):
                    if fetched.tp in reading and reading[fetched.tp].take_together(fetched):
                        consumer.incremental_unassign([fetched.tp])
                        on_read(reading.pop(fetched.tp))
        for search in (*late, *reading.values()):
            on_read(search)

    def close(self) -> None:
        """Close the clients, those in use when their slice ends, which is soon."""
        for consumers in (self.source, self.target):
            consumers.close()


class LogSearch:
    """The search for one exact position, in slices; only one thread at a time advances it."""

    def __init__(self, query: PositionQuery, clients: LogPositionSearch) -> None:
        self._query: Final = query
        self._clients: Final = clients
        self._clock: Final = SystemClock()
        self._stopped = False
        self._late: KafkaTimeout | None = None
        self._patience_ms = _MARKER_PATIENCE_MS
        self._first_is_covered = False
        """Whether the first transaction is in the progress, although it may not be the first that there was."""
        self.advanced_ms = self._clock.now()
        self._begin()

    def _begin(self) -> None:
        query = self._query
        searched, start = query.progress.searched, marked_end(query)
        if searched is not None and searched.end > start:
            self._restart(searched.end, searched.leader_epoch)
        else:
            self._restart(start, None)

    def _restart(self, start: int, leader_epoch: int | None, log_start: int = 0) -> None:
        """Read the target from ``start`` on, or from ``log_start`` if the log begins behind it."""
        self._farthest = -1, -1
        self._validated = leader_epoch is not None
        self._log_start = max(start, log_start)
        query = self._query
        kind = OwnAppends if query.loss is None else StandingAppends
        mark = query.progress.target
        mark_end = OPEN_END if self._first_is_covered or mark is None else mark.end
        committed = _committed_behind(query, start)
        self._appends = kind(start, query.appenders.producer_ids, query.fence, committed, mark_end)
        self._next = _seek(self._log_start, leader_epoch, self._query)

    @property
    def _counts_from(self) -> int:
        """The target offset behind which nothing is missing if the log begins there."""
        mark = self._query.progress.target
        start = self._appends.start
        return start if mark is None else max(start, mark.end, self._appends.covered_end or 0)

    @property
    def awaited_offset(self) -> int | None:
        """The target offset at which more is awaited; None once the fence's marker was read."""
        return self._next.offset if self._appends.end is None else None

    @property
    def target(self) -> TopicPartition:
        """The partition that is searched."""
        return self._query.target

    @property
    def position(self) -> OffsetAndMetadata:
        """Where the target is read next."""
        return self._next

    def take_together(self, fetched: Fetched) -> bool:
        """Take what was read of the target for several searches; return whether that was the last fetch of this one."""
        if fetched.error is not None:
            return True
        try:
            self._take(fetched)
        except KafkaError:
            self._begin()
            return True
        return self._appends.end is not None

    @property
    def settled(self) -> bool:
        """As :attr:`OpenSearch.settled`."""
        in_log = self._log_start <= self._counts_from or self._query.appenders.ended
        return self._appends.end is not None and self._appends.first is None and in_log

    def _settled_position(self) -> FoundPosition:
        query, appends = self._query, self._appends
        mark = settled_mark(query, appends)
        return FoundPosition(replace(query.progress, target=mark, searched=searched_to(appends)), NO_TOTALS)

    def advance(self) -> FoundPosition | None:
        """Read on until the position is found, or nothing more comes for a while; then return None.

        Raises FlowError ``position-unproved``, TargetLogCut, ClientClosed after :meth:`stop`, KafkaError.
        """
        if self.settled:
            return self._settled_position()
        try:
            with self._clients.target.lend() as target:
                if self._appends.end is None:
                    self._read_to_fence(target)
                return self._conclude(target)
        except KafkaTimeout as error:
            self._late = error
            self._patience_ms = min(_MAX_PATIENCE_MS, 2 * self._patience_ms)
            return None

    def stop(self) -> None:
        """Have a slice that is running raise ClientClosed soon. May be called from any thread."""
        self._stopped = True

    def timeout_error(self) -> KafkaTimeout:
        """Return the error of a search that has not advanced for too long."""
        cause = self._late.__cause__ if self._late is not None else None
        if self._appends.end is not None:
            return KafkaTimeout(f"{self._query.target}: what was appended was not compared in time: {self._late}")
        reason = f": {cause}" if cause is not None else ": it is not written there, or not replicated"
        fence = self._query.fence
        error = KafkaTimeout(
            f"{self._query.target}: the marker of the fence (producer {fence.producer_id}, epoch {fence.epoch}) was not"
            f" read from the target in the time there was{reason}"
        )
        error.__cause__ = cause
        return error

    def _timer(self, patience_ms: int) -> Patience:
        return Patience(self._clock, patience_ms, lambda: self._stopped or self._clients.target.closed)

    def _advanced(self, phase: int, offset: int) -> None:
        """Something was read that no slice before has read, since the last restart."""
        if (phase, offset) > self._farthest:
            self._farthest = phase, offset
            self.advanced_ms = self._clock.now()

    # --- the target, up to the fence's marker

    def _read_to_fence(self, target: Consumer) -> None:
        """Read on. A fetch returns nothing from the high watermark on: the marker, and all before it, is replicated."""
        tp, timer = self._query.target, self._timer(self._patience_ms)
        while self._appends.end is None:
            try:
                for fetched in read_log(target, tp, self._next, OPEN_END, timer):
                    self._take(fetched)
                    timer.extend()
                    if self._appends.end is not None:
                        break
            except OffsetOutOfRange as error:
                log_start = target.beginning_offsets([tp], MIN_PATIENCE_MS)[tp]
                if log_start <= self._next.offset:
                    raise TargetLogCut(f"{tp} ends before offset {self._next.offset} now") from error
                self._restart(self._appends.start, None, log_start)
            except LogTruncated as error:
                if not self._validated:
                    raise TargetLogCut(f"{tp} was cut back while it was searched: {error}") from error
                # The log has lost the marker to which it was searched, and none of the records before.
                self._restart(marked_end(self._query), None)

    def _take(self, fetched: Fetched) -> None:
        self._appends.add(fetched.batches)
        epoch = max((batch.leader_epoch for batch in fetched.batches if isinstance(batch, Batch)), default=-1)
        self._next = _seek(fetched.next_offset, epoch if epoch >= 0 else None, self._query)
        self._validated = False
        self._advanced(0, fetched.next_offset)

    # --- both logs, beside each other

    def _conclude(self, target: Consumer) -> FoundPosition | None:
        if self.settled:
            return self._settled_position()
        query, appends = self._query, self._appends
        try:
            _check_mark(query)
            return found_position(query, self._compare(target), appends)
        except Unproved as error:
            if isinstance(error, Differs) and appends.first_is_uncertain:
                # It does not continue the progress, so that it is the one that has stored it.
                self._first_is_covered = True
                self._restart(appends.start, None)
                return None
            if query.loss is not None:
                raise unhealed_error(query, query.loss, str(error)) from None
            raise unproved_error(query, appends, str(error)) from None
        except (OffsetOutOfRange, LogTruncated):
            # Retention, or a new leader, has removed what was to be compared: see what is left.
            self._restart(appends.start, None)
            return None

    def _compare(self, target: Consumer) -> Progress:
        """Read what was appended once more, and the source beside it. Raises Unproved."""
        query, appends, timer = self._query, self._appends, self._timer(max(MIN_PATIENCE_MS, self._patience_ms))
        start, first, end = appends.start, appends.first, appends.end
        with self._clients.source.lend() as source:
            source_start, fetches = _read_source(source, query, timer)
            expected = ExpectedRecords(
                fetches, source_start, self._clients.spec, is_foreign=self._clients.foreign_finder(query)
            )
            lost = max(0, source_start - query.progress.offset)
            if first is None or end is None:
                return _unless_appended(query, expected, lost, self._log_start)
            # A log may begin within a batch (DeleteRecords); its leader returns that batch whole.
            begin = _seek(max(first, self._log_start), None, query)
            own = self._own(read_log(target, query.target, begin, end, timer), timer)
            shift = Shift(lost, max(0, min(first, self._log_start) - self._counts_from))
            if isinstance(appends, StandingAppends):
                own = appends.known(own) if shift.possible else appends.copied(own, expected)
            if shift.possible:
                find_shifted(
                    own,
                    start,
                    expected,
                    shift,
                    timestamps=not appends.has_append_time,
                    first_is_uncertain=appends.first_is_uncertain,
                )
            else:
                compare(own, start, expected)
        position = expected.position
        if position is None:
            return query.progress
        epoch = position.leader_epoch if position.leader_epoch >= 0 else None
        return replace(query.progress, offset=position.offset, leader_epoch=epoch)

    def _own(self, fetches: Iterable[Fetched], timer: Patience) -> Iterable[Batch]:
        for fetched in fetches:
            timer.extend()
            self._advanced(1, fetched.next_offset)
            yield from self._appends.own(fetched.batches)


# --- the target


# Invariant: A claim is a lower bound, whichever way the next attempt goes: what commits were lost of is found in the
#   log, and a transaction counts only where it continues the source at the progress.
# Test: tests/relay/task/test_lost_commits_on_fakes.py::test_nothing_is_doubled_whichever_way_the_next_attempt_goes
# Test: tests/relay/task/
#   test_lost_commits_on_fakes.py::test_transaction_that_may_have_stored_the_progress_counts_at_the_progress_only
# Test: tests/relay/task/
#   test_lost_commits_on_fakes.py::test_log_that_ends_with_the_progress_costs_no_fence_and_no_request
# Test: tests/copying/test_lost_commits.py::test_records_whose_commits_were_lost_are_not_copied_again
# Test: tests/relay/partition/search/
#   test_position_search.py::test_transaction_that_has_stored_the_progress_may_be_deleted_and_the_next_one_counts
def _committed_behind(query: PositionQuery, start: int) -> Committed:
    """Return which transactions behind ``start`` count; all do behind an anchor, and behind the marker of a fence."""
    mark = query.progress.target
    if query.loss is not None or mark is None or start != marked_end(query):
        return Committed.ALL
    return committed_behind(mark)


def _seek(offset: int, leader_epoch: int | None, query: PositionQuery) -> OffsetAndMetadata:
    mark = query.progress.target
    topic_id = None if mark is None else stored.topic_id(mark.topic_id)
    return OffsetAndMetadata(offset, leader_epoch, topic_id=topic_id)


def _check_mark(query: PositionQuery) -> None:
    if query.progress.target is None and query.progress.searched is None:
        raise Unproved("the progress does not say how far the target's log reached")


# --- the source


def _read_source(consumer: Consumer, query: PositionQuery, timer: Patience) -> tuple[int, Iterator[Fetched]]:
    """Return where the reading begins, at the progress or at the log's start behind it, and the fetches from there."""
    tp, progress = query.source, query.progress
    # All that was appended had been below the last stable offset.
    end = consumer.end_offsets([tp], MIN_PATIENCE_MS)[tp]
    seek = OffsetAndMetadata(progress.offset, progress.leader_epoch, topic_id=stored.topic_id(progress.topic_id))
    try:
        return read_from(consumer, tp, seek, end, timer)
    except LogTruncated as error:
        raise Unproved(f"the source is not the log that was copied: {error}") from error


def _unless_appended(query: PositionQuery, expected: ExpectedRecords, lost: int, log_start: int) -> Progress:
    """Return the progress if nothing can have been appended behind it: the source has, and had, nothing there."""
    if not lost and expected.take() is None:
        return query.progress
    raise Unproved(f"the target's log begins at offset {log_start} now, so what was appended before is not there")
