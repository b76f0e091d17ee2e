"""The records that a task writes in the background: anchors, the offset index, and now and then its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, TypeVar

from mirror.client import TopicPartition
from mirror.relay.model.policy import SEGMENTS_MS
from mirror.relay.offsets.offset_topic import OffsetKeeper
from mirror.relay.offsets.segments import Segment, key_of
from mirror.relay.partition.context import CopyHandle
from mirror.relay.progress import anchors
from mirror.relay.progress.anchor_keeper import AnchorKeeper
from mirror.relay.progress.anchors import Anchor, AnchorKey

K = TypeVar("K")
V = TypeVar("V")

_PROGRESS_TOPIC_INTERVAL_MS: Final = 3_600_000
_MOST_SEGMENTS: Final = 2_048
"""So many segments of the offset index wait at most; a full one takes 2 KB. What is lost is found in the logs."""
_LONGEST_S: Final = 10.0
"""How long the end of a task waits for what is being written."""
_AFTER_FAILURE_MS: Final = 60_000
"""The time between writes while they fail: each may occupy a thread for some seconds, for which lookups wait. It does
not grow: it is longer than most backoffs become, and a task writes for all of its partitions together."""

Write = Callable[[Mapping[K, V], Mapping[TopicPartition, TopicPartition]], bool]
"""Writes records, by key, and returns whether it did. The source partitions are by target partition."""


class LazyWriting(Generic[K, V]):
    """Records, best effort: each has a key, and a later one of the same key replaces it. Used on the task's thread."""

    def __init__(
        self,
        write: Write[K, V],
        submit: Callable[..., Future[Any]],
        most_pending: int | None = None,
        *,
        interval_ms: int = SEGMENTS_MS,
    ) -> None:
        """``submit`` runs a call in a thread that may block. Writes begin at least ``interval_ms`` apart.

        At most ``most_pending`` records wait, and the oldest ones are lost first; None: any number.
        """
        self._interval_ms: Final = interval_ms
        self._write: Final = write
        self._submit: Final = submit
        self._most_pending: Final = most_pending
        self._pending: dict[K, V] = {}
        self._sources: dict[TopicPartition, TopicPartition] = {}
        """Of what is pending, by target partition."""
        self._in_flight: dict[K, V] = {}
        self._writing: Future[Any] | None = None
        self._next_ms = 0

    def add(self, source: TopicPartition, target: TopicPartition, key: K, value: V) -> None:
        """Have ``value`` written with the others."""
        self._sources[target] = source
        self._pending[key] = value
        if self._most_pending is not None and len(self._pending) > self._most_pending:
            del self._pending[next(iter(self._pending))]

    def write_due(self, now: int) -> None:
        """Begin to write what has been gathered, once in an interval, unless a write is in progress."""
        if not self._pending or now < self._next_ms or (self._writing is not None and not self._writing.done()):
            return
        failed = self._writing is not None and not self._writing.result()
        self._next_ms = now + (_AFTER_FAILURE_MS if failed else self._interval_ms)
        records, self._pending = self._pending, {}
        sources, self._sources = self._sources, {}
        self._in_flight = records
        self._writing = self._submit(self._write, records, sources)

    def take_rest(self) -> dict[K, V]:
        """Return what may not be written yet, for the caller to write it; called when the task has ended."""
        in_flight = {} if self._writing is None or self._writing.done() else self._in_flight
        records, self._pending = {**in_flight, **self._pending}, {}
        return records

    def write_rest(self) -> None:
        """Wait for what is being written, and write the rest.

        Not if the last write has failed, or takes too long: another one would take as long.
        """
        if self._writing is not None:
            wait([self._writing], _LONGEST_S)
            if not self._writing.done() or not self._writing.result():
                return
        if self._pending:
            self._write(self._pending, self._sources)
            self._pending = {}


class TaskRecords:
    """The records of one task, best effort. Used on the task's thread."""

    def __init__(
        self,
        keeper: AnchorKeeper | None,
        offsets: OffsetKeeper | None,
        submit: Callable[..., Future[Any]],
        now: int,
        unix_ms: int,
        *,
        segments_ms: int = SEGMENTS_MS,
    ) -> None:
        """``keeper`` and ``offsets``: None if anchors, or the offset index, are not written.

        ``submit`` runs a call in a thread that may block. ``now`` is in monotonic ms, and ``unix_ms`` the same time
        since 1970. Writes of segments begin at least ``segments_ms`` apart.
        """
        self._anchors: Final = None if keeper is None else LazyWriting(keeper.write, submit)
        self._segments: Final = (
            None if offsets is None else LazyWriting(offsets.write, submit, _MOST_SEGMENTS, interval_ms=segments_ms)
        )
        # By the time since 1970, so that short jobs that follow each other write once an hour together.
        self._write_progress_at = now + _PROGRESS_TOPIC_INTERVAL_MS - unix_ms % _PROGRESS_TOPIC_INTERVAL_MS

    def keep_anchor(self, copy: CopyHandle, anchor: Anchor) -> None:
        """Write it with those of other copies."""
        if self._anchors is not None:
            self._anchors.add(copy.source, copy.target, anchors.key_of(copy.target, anchor), anchor)

    def keep_segments(self, copy: CopyHandle, segments: Sequence[Segment]) -> None:
        """Write them with those of other copies."""
        if self._segments is not None:
            for segment in segments:
                self._segments.add(copy.source, copy.target, key_of(copy.target, segment), segment)

    def is_progress_due(self, now: int) -> bool:
        """Whether the progress is to be written to the progress topic at ``now``, in monotonic ms: once an hour."""
        due = now >= self._write_progress_at
        if due:
            self._write_progress_at = now + _PROGRESS_TOPIC_INTERVAL_MS
        return due

    def write_due(self, now: int) -> None:
        """Begin to write what is due at ``now``, in monotonic ms."""
        for writing in (self._anchors, self._segments):
            if writing is not None:
                writing.write_due(now)

    def unwritten_anchors(self) -> dict[AnchorKey, Anchor]:
        """Return the anchors that were not written, once the task has ended."""
        return {} if self._anchors is None else self._anchors.take_rest()

    def write_offsets(self) -> None:
        """Write what is left of the offset index, once the task has ended, and wait for it."""
        if self._segments is not None:
            self._segments.write_rest()
