"""What is asked of the clusters when a copy cannot just go on: was its progress forgotten, what has the source now.

These calls wait, each for ``default.api.timeout.ms`` at most, in threads of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final

from mirror.client import EARLIEST, LATEST, Admin, TopicPartition
from mirror.errors import FlowError, KafkaError
from mirror.relay.gaps import SourceState
from mirror.relay.progress_log import Kept, ProgressLog
from mirror.relay.site import Settled


class Inquiries:
    """Answers for one task's copies; safe to use from several threads."""

    def __init__(
        self,
        source: Admin,
        target: Admin,
        notes: ProgressLog,
        targets: Collection[TopicPartition],
        *,
        start_over: bool,
        timeout_ms: int,
    ) -> None:
        """``timeout_ms`` is for looking whether a note is still true; the calls of Admin have their own default."""
        self._timeout_ms: Final = timeout_ms
        self._source: Final = source
        self._target: Final = target
        self._notes: Final = notes
        self._targets: Final = frozenset(targets)
        self._start_over: Final = start_over
        self._lock: Final = threading.Lock()
        self._read: dict[TopicPartition, Kept] | None = None

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

    def settle(self, flow: str, tp: TopicPartition) -> Settled:
        """There is no progress for target ``tp``: whether it was forgotten, is lost, or never was. Raises KafkaError.

        A group without members loses its offsets after ``offsets.retention.minutes``. Then a note in the progress topic
        restores it, if nothing was written since. Otherwise a partition that holds or held anything is no place to
        begin: what is in it would be there twice.
        """
        first = self._target.list_offsets({tp: EARLIEST})[tp].offset
        end = self._target.list_offsets({tp: LATEST})[tp].offset
        kept = self._note(tp)
        if kept is not None and self._notes.still_true(tp, kept, self._timeout_ms):
            return Settled(kept.progress, kept.target_end)
        if kept is None and end == 0:
            return Settled(None, 0)
        if self._start_over:
            return Settled(None, end)
        holds = f"holds offsets {first} to {end - 1}" if end > first else f"held records (its log begins at {first})"
        about = "the note of it no longer fits" if kept is not None else "there is no note of it"
        raise FlowError(
            f"progress-lost: target {tp} {holds}, but flow {flow} has no progress for it, and {about}: it was idle for"
            " longer than the target's offsets.retention.minutes, its offsets were deleted, or others write there; to"
            " copy again from the flow's start, records already there once more, set start-over = true"
        )

    def _note(self, tp: TopicPartition) -> Kept | None:
        with self._lock:
            if self._read is None:
                self._read = self._notes.read(self._targets)
            return self._read.get(tp)

    def keep(self, notes: dict[TopicPartition, Kept], timeout_ms: int) -> dict[TopicPartition, KafkaError]:
        """Note down these; what could not be, with its reason."""
        return self._notes.keep(notes, timeout_ms) if notes else {}
