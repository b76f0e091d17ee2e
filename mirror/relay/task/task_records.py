"""The records that a task writes in the background: anchors, the offset index, and now and then its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from mirror.relay.offsets.offset_topic import OffsetKeeper
from mirror.relay.offsets.segments import Segment, key_of
from mirror.relay.partition.context import CopyHandle
from mirror.relay.progress import anchors
from mirror.relay.progress.anchor_keeper import AnchorKeeper
from mirror.relay.progress.anchors import Anchor, AnchorKey
from mirror.relay.task.lazy_writing import LazyWriting

_PROGRESS_TOPIC_INTERVAL_MS: Final = 3_600_000
_MOST_SEGMENTS: Final = 2_048
"""So many segments of the offset index wait at most; a full one takes 2 KB. What is lost is found in the logs."""


class TaskRecords:
    """The records of one task, best effort. Used on the task's thread."""

    def __init__(
        self,
        keeper: AnchorKeeper | None,
        offsets: OffsetKeeper | None,
        submit: Callable[..., Future[Any]],
        now: int,
        unix_ms: int,
    ) -> None:
        """``keeper`` and ``offsets``: None if anchors, or the offset index, are not written.

        ``submit`` runs a call in a thread that may block. ``now`` is in monotonic ms, and ``unix_ms`` the same time
        since 1970.
        """
        self._anchors: Final = None if keeper is None else LazyWriting(keeper.write, submit)
        self._segments: Final = None if offsets is None else LazyWriting(offsets.write, submit, _MOST_SEGMENTS)
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
