"""What is asked of the clusters when a copy cannot just go on: was its progress forgotten, what has the source now.

Most of these calls wait, each for ``default.api.timeout.ms`` at most, in threads of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Final

from mirror.client import EARLIEST, LATEST, Admin, OffsetResult, TopicPartition
from mirror.cluster.topics import Outcomes
from mirror.errors import FlowError, KafkaError
from mirror.relay.carriers import done, then
from mirror.relay.gaps import SourceState
from mirror.relay.orders import Orders, from_offset, place_of
from mirror.relay.progress_log import Kept, ProgressLog
from mirror.relay.site import Settled


class Inquiries:
    """Answers for one task's copies; safe to use from several threads."""

    def __init__(
        self,
        flow: str,
        source: Admin,
        target: Admin,
        notes: ProgressLog,
        targets: Collection[TopicPartition],
        *,
        start_over: bool,
        timeout_ms: int,
    ) -> None:
        """``timeout_ms`` is for looking whether a note is still true; the calls of Admin have their own default."""
        self._flow: Final = flow
        self._timeout_ms: Final = timeout_ms
        self._source: Final = source
        self._target: Final = target
        self._notes: Final = notes
        self._targets: Final = frozenset(targets)
        self._start_over: Final = start_over

    def source_state(self, tp: TopicPartition) -> SourceState:
        """What the source has of ``tp``. Raises KafkaError; FlowError where its topic is gone."""
        topics = self._source.describe_topics([tp.topic])
        if tp.topic not in topics:
            msg = f"{tp}: the source topic is gone"
            raise FlowError(msg)
        return SourceState(
            topic_id=str(topics[tp.topic].topic_id or ""),
            earliest=self._source.list_offsets({tp: EARLIEST})[tp].offset,
            end=self._source.list_offsets({tp: LATEST}, isolation="read_committed")[tp].offset,
        )

    def target_bounds(self, tp: TopicPartition, timeout_ms: int) -> Future[tuple[int, int]]:
        """Where the log of target ``tp`` begins and ends, without waiting: a leader that is away takes no thread."""
        first = self._target.list_offsets_async({tp: EARLIEST}, timeout_ms=timeout_ms)
        end = self._target.list_offsets_async({tp: LATEST}, timeout_ms=timeout_ms)
        return then(first, lambda begins: then(end, lambda ends: done((_offset(begins, tp), _offset(ends, tp)))))

    def read_notes(self) -> dict[TopicPartition, Kept]:
        """What is noted of the targets' progress. Raises KafkaError."""
        return self._notes.read(self._targets)

    def settle(self, tp: TopicPartition, bounds: tuple[int, int], kept: Kept | None) -> Settled:
        """There is no progress for target ``tp``: whether it was forgotten, is lost, or never was. Raises KafkaError.

        ``bounds`` are those of its log, ``kept`` is what was noted of it.

        A group without members loses its offsets after ``offsets.retention.minutes``. Then a note in the progress topic
        restores it, if nothing was written since. Otherwise a partition that holds or held anything is no place to
        begin: what is in it would be there twice.
        """
        first, end = bounds
        if kept is not None and self._notes.still_true(tp, kept, self._timeout_ms):
            return Settled(kept.progress, kept.target_end)
        if kept is None and end == 0:
            return Settled(None, 0)
        if self._start_over:
            return Settled(None, end)
        holds = f"holds offsets {first} to {end - 1}" if end > first else f"held records (its log begins at {first})"
        about = "the note of it no longer fits" if kept is not None else "there is no note of it"
        raise FlowError(
            f"progress-lost: target {tp} {holds}, but flow {self._flow} has no progress for it, and {about}: it was"
            " idle for longer than the target's offsets.retention.minutes, its offsets were deleted, or others write"
            " there; to copy again from the flow's start, records already there once more, set start-over = true"
        )

    def orders(self) -> Future[Orders | None]:
        """What the flow's runs are told just now."""
        group, tp = place_of(self._flow)
        found = self._target.group_offsets_async(group, [tp], self._timeout_ms)
        return then(found, lambda offsets: done(from_offset(offsets.get(tp))))

    def keep(self, notes: dict[TopicPartition, Kept], timeout_ms: int) -> dict[TopicPartition, KafkaError]:
        """Note down these; what could not be, with its reason."""
        return self._notes.keep(notes, timeout_ms) if notes else {}


def _offset(found: Outcomes[TopicPartition, OffsetResult], tp: TopicPartition) -> int:
    if tp in found.failed:
        raise found.failed[tp]
    return found[tp].offset
