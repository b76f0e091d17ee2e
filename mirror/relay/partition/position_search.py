"""Finds how far the source was copied, if a former attempt may have appended more than the progress says.

An attempt that copies by sequences commits its progress later than its batches, so the progress is a lower bound. The
fence of the present attempt froze the target's log for all earlier ones: what it holds between the progress and the
fence's marker is all that was appended. It is compared with the source, record by record.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Self

from mirror.client import Consumer, Fetched, OffsetAndMetadata, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.errors import FlowError, KafkaTimeout, LogTruncated, OffsetOutOfRange
from mirror.relay.batches.appended import ExpectedRecords, Shift, Unproved, compare, find_shifted
from mirror.relay.batches.own_appends import OwnAppends
from mirror.relay.batches.reencode import ReencodeSpec, one_at_a_time
from mirror.relay.batches.standing_appends import StandingAppends
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.committed import NO_TOTALS, Progress, Searched
from mirror.relay.progress.log_reading import read_log
from mirror.relay.progress.position import FoundPosition, PositionQuery
from mirror.relay.progress.target_log import TargetMark, truncated_error
from mirror.relay.progress.target_loss import TargetLoss
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decompress import MAX_DECOMPRESSED_BYTES
from mirror.wire.records import Batch

_FETCH_BYTES: Final = 1024 * 1024
_FETCH_WAIT_MS: Final = 5
"""A consumer that has read everything fetches again, and the next search with it waits for that response: with the
usual 500 ms, 300 searches took 38 s."""
_PATIENCE_MS: Final = 200
"""How long the marker is awaited in such short fetches, and in long ones afterwards: short ones burden the leader."""


class LogPositionSearch:
    """The :class:`PositionSearch` of a task. Each search waits, in a thread of its own.

    Its clients are created when they are needed, and kept: at most as many of each cluster as there were searches at
    once. They share the network threads with the other clients of the process.
    """

    def __init__(
        self,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        policy: CopyPolicy,
        *,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError, FlowError."""
        self._source: Final = _Consumers(source_options, "read_committed")
        self._target: Final = _Consumers(target_options, "read_uncommitted")
        self._patient_target: Final = _Consumers(target_options, "read_uncommitted", patient=True)
        self._spec: Final = ReencodeSpec(
            headers=policy.headers,
            transform=one_at_a_time(policy.transform) if policy.transform else None,
            max_source_bytes=max_decompressed_bytes,
        )

    def find(self, query: PositionQuery, timeout_ms: int) -> FoundPosition:
        """Return the position behind all that was appended before the fence.

        Raises FlowError (``position-unproved``) if the logs do not show it, KafkaTimeout if they could not be read, or
        the fence's marker was not replicated, within ``timeout_ms``; KafkaError. It may be called again: nothing is
        kept of a search.
        """
        timer = Timer(SystemClock(), timeout_ms)
        with self._target.lend() as consumer:
            try:
                return self._find(consumer, query, Timer(SystemClock(), min(timeout_ms, _PATIENCE_MS)), timer)
            except _NoMarkerError:
                if timer.expired():
                    raise
        with self._patient_target.lend() as consumer:
            return self._find(consumer, query, timer, timer)

    def _find(self, target: Consumer, query: PositionQuery, marker_timer: Timer, timer: Timer) -> FoundPosition:
        """Raise _NoMarkerError when ``marker_timer`` expires before the marker was read."""
        appends, log_start = _read_to_fence(target, query, marker_timer)
        nothing = appends.first is None and (log_start <= appends.start or query.appenders.ended)
        if nothing or not query.appenders.producer_ids:
            return FoundPosition(replace(query.progress, searched=_searched(appends)), NO_TOTALS)
        try:
            _check_mark(query)
            progress = self._compare(target, query, appends, log_start, timer)
        except Unproved as error:
            if query.loss is not None:
                raise _unhealed_error(query, query.loss, str(error)) from None
            raise _unproved_error(query, appends, str(error)) from None
        return _found(query, progress, appends)

    def _compare(
        self, target: Consumer, query: PositionQuery, appends: OwnAppends, log_start: int, timer: Timer
    ) -> Progress:
        """Read what was appended once more, and the source beside it. Raises Unproved."""
        start, first, end = appends.start, appends.first, appends.end
        with self._source.lend() as source:
            source_start, fetches = _read_source(source, query, timer)
            expected = ExpectedRecords(fetches, source_start, self._spec)
            lost = max(0, source_start - query.progress.offset)
            if first is None or end is None:
                return _unless_appended(query, expected, lost, log_start)
            own: Iterable[Batch] = (
                batch
                for fetched in read_log(target, query.target, _seek(first, None, query), end, timer)
                for batch in appends.own(fetched.batches)
            )
            shift = Shift(lost, max(0, min(first, log_start) - start))
            if isinstance(appends, StandingAppends):
                own = appends.known(own) if shift.possible else appends.copied(own, expected)
            if shift.possible:
                find_shifted(own, start, expected, shift, timestamps=not appends.has_append_time)
            else:
                compare(own, start, expected)
        position = expected.position
        if position is None:
            return query.progress
        epoch = position.leader_epoch if position.leader_epoch >= 0 else None
        return replace(query.progress, offset=position.offset, leader_epoch=epoch)

    def close(self) -> None:
        """Close the clients, those in use when their search ends."""
        for consumers in (self._source, self._target, self._patient_target):
            consumers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _NoMarkerError(KafkaTimeout):
    """The fence's marker was not read in time."""


class _Consumers:
    """The consumers of one cluster, which are lent to one search at a time."""

    def __init__(self, options: Mapping[str, object], isolation: str, *, patient: bool = False) -> None:
        cluster_keys = ClusterSettings.keys()
        self._options: Final = {
            **{key: value for key, value in options.items() if key in cluster_keys},
            "auto.offset.reset": "none",
            "isolation.level": isolation,
            "fetch.max.bytes": _FETCH_BYTES,
            "max.partition.fetch.bytes": _FETCH_BYTES,
            **({} if patient else {"fetch.max.wait.ms": _FETCH_WAIT_MS}),
        }
        ClusterSettings.parse({key: value for key, value in options.items() if key in cluster_keys})
        self._lock: Final = threading.Lock()
        self._idle: Final = list[Consumer]()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Consumer]:
        """Lend a consumer, which fetches nothing before and afterwards."""
        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = Consumer(self._options)
        kept = False
        try:
            yield consumer
            consumer.assign([])
            with self._lock:
                kept = not self._closed
                if kept:
                    self._idle.append(consumer)
        finally:
            if not kept:
                consumer.close(timeout_ms=0)

    def close(self) -> None:
        """Close those that are not in use, and the others when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle[:] = list(self._idle), []
        for consumer in idle:
            consumer.close(timeout_ms=0)


# --- the target


def _marked_end(query: PositionQuery) -> int:
    return 0 if query.progress.target is None else query.progress.target.end


def _start_of(query: PositionQuery) -> tuple[int, int | None]:
    """Return the target offset from which on batches are searched, and the leader epoch before it, if known."""
    searched, end = query.progress.searched, _marked_end(query)
    return (searched.end, searched.leader_epoch) if searched is not None and searched.end > end else (end, None)


def _seek(offset: int, leader_epoch: int | None, query: PositionQuery) -> OffsetAndMetadata:
    mark = query.progress.target
    topic_id = None if mark is None else stored.topic_id(mark.topic_id)
    return OffsetAndMetadata(offset, leader_epoch, topic_id=topic_id)


def _read_to_fence(consumer: Consumer, query: PositionQuery, timer: Timer) -> tuple[OwnAppends, int]:
    """Read the target up to the fence's marker; return what is there, and the offset where the reading began.

    A fetch returns nothing from the high watermark on, so the marker, and all before it, is replicated.
    """
    tp, (start, epoch) = query.target, _start_of(query)
    kind = OwnAppends if query.loss is None else StandingAppends
    try:
        try:
            log_start, fetches = _read_from(consumer, tp, _seek(start, epoch, query), OPEN_END, timer)
        except LogTruncated:
            # The log has lost the marker to which it was searched, and none of the records before.
            start = _marked_end(query)
            log_start, fetches = _read_from(consumer, tp, _seek(start, None, query), OPEN_END, timer)
        appends = kind(start, query.appenders.producer_ids, query.fence)
        for fetched in fetches:
            if appends.add(fetched.batches):
                break
    except KafkaTimeout as error:
        cause = error.__cause__
        reason = f": {cause}" if cause is not None else ": it is not written there, or not replicated"
        fence = query.fence
        raise _NoMarkerError(
            f"{tp}: the marker of the fence (producer {fence.producer_id}, epoch {fence.epoch}) was not read from the"
            f" target in the time there was{reason}"
        ) from cause
    return appends, log_start


def _check_mark(query: PositionQuery) -> None:
    if query.progress.target is None and query.progress.searched is None:
        raise Unproved("the progress does not say how far the target's log reached")


# --- the source


def _read_source(consumer: Consumer, query: PositionQuery, timer: Timer) -> tuple[int, Iterator[Fetched]]:
    """Return where the reading begins, at the progress or at the log's start behind it, and the fetches from there."""
    tp, progress = query.source, query.progress
    # All that was appended had been below the last stable offset.
    end = consumer.end_offsets([tp], timer.remaining_ms())[tp]
    seek = OffsetAndMetadata(progress.offset, progress.leader_epoch, topic_id=stored.topic_id(progress.topic_id))
    try:
        return _read_from(consumer, tp, seek, end, timer)
    except LogTruncated as error:
        raise Unproved(f"the source is not the log that was copied: {error}") from error


def _unless_appended(query: PositionQuery, expected: ExpectedRecords, lost: int, log_start: int) -> Progress:
    """Return the progress if nothing can have been appended behind it: the source has, and had, nothing there."""
    if not lost and expected.take() is None:
        return query.progress
    raise Unproved(f"the target's log begins at offset {log_start} now, so what was appended before is not there")


# --- both


def _read_from(
    consumer: Consumer, tp: TopicPartition, seek: OffsetAndMetadata, end: int, timer: Timer
) -> tuple[int, Iterator[Fetched]]:
    """Return the offset where the reading begins, and the fetches from there to ``end``.

    It begins at the log's start if that is behind ``seek``. If retention moves it further later, OffsetOutOfRange is
    raised.
    """
    while True:
        fetches = read_log(consumer, tp, seek, end, timer)
        try:
            first = next(fetches, None)
        except OffsetOutOfRange as error:
            log_start = consumer.beginning_offsets([tp], timer.remaining_ms())[tp]
            if log_start <= seek.offset:
                raise  # the log ends before
            if timer.expired():
                raise KafkaTimeout(f"{tp}: its log begins at offset {log_start} now, and there was no time") from error
            seek = OffsetAndMetadata(log_start, topic_id=seek.topic_id)
        else:
            return seek.offset, _chained(first, fetches)


def _chained(first: Fetched | None, rest: Iterable[Fetched]) -> Iterator[Fetched]:
    if first is not None:
        yield first
    yield from rest


def _found(query: PositionQuery, progress: Progress, appends: OwnAppends) -> FoundPosition:
    """Return the position, with a mark at the last own batch: markers of a fence may be followed by other ones."""
    mark, last = query.progress.target, appends.last
    if last is not None:
        topic_id = "" if mark is None else mark.topic_id
        epoch = appends.leader_epoch
        mark = TargetMark(
            topic_id=topic_id, end=last.end, leader_epoch=epoch, producer_id=last.producer_id, batch=last.batch
        )
    return FoundPosition(replace(progress, target=mark, searched=_searched(appends)), appends.totals)


def _searched(appends: OwnAppends) -> Searched | None:
    epoch = appends.leader_epoch
    return None if epoch is None or appends.end is None else Searched(appends.end, epoch)


def _unhealed_error(query: PositionQuery, loss: TargetLoss, reason: str) -> FlowError:
    unhealed = (
        f"what still stands from the target's offset {_marked_end(query)} on is not what the source has: {reason}"
    )
    copied_to = None if loss.progress is None else loss.progress.offset
    mark = TargetMark(topic_id="", end=loss.end)
    return truncated_error(loss.flow, query.target, mark, loss.cut, copied_to, unhealed)


def _unproved_error(query: PositionQuery, appends: OwnAppends, reason: str) -> FlowError:
    return FlowError(
        f"position-unproved: how far {query.source} was copied into {query.target} cannot be shown from the source's"
        f" offset {query.progress.offset} and the target's offset {appends.start} on, behind which an earlier"
        f" attempt appended {appends.totals.records} records: {reason}; if the flow's transform or headers were"
        " changed since, change them back for one run; otherwise compare the two partitions from these offsets on with"
        " kafka-console-consumer, and copy the rest under another flow name with from, or set start-over = true to copy"
        " again from the flow's start (what is still in the target is then there twice)"
    )
