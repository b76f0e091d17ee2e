"""What a copy needs around it, as the task that runs it gives it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from mirror.backoff import Backoff
from mirror.meters import Histogram
from mirror.relay.batches.batch_pipeline import Remake
from mirror.relay.flow_control import SendWindow, SourceBudget
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookups import StartPosition
from mirror.relay.progress.target_log import TargetMark

if TYPE_CHECKING:
    from mirror.relay.model.observer import TaskObserver
    from mirror.relay.partition.machine import PartitionCopy
    from mirror.relay.partition.target_writer import TargetWriter


class CopyContext(Protocol):
    """The task around a copy. Nothing of it waits."""

    @property
    def window(self) -> SendWindow:
        """What is under way to the target."""
        ...

    @property
    def holdings(self) -> SourceBudget:
        """What was taken from the source."""
        ...

    @property
    def backoff(self) -> Backoff:
        """How long an expired copy rests (KIP-580)."""
        ...

    @property
    def watcher(self) -> TaskObserver:
        """Who looks on."""
        ...

    @property
    def commits(self) -> Histogram:
        """How long commits take, of all copies."""
        ...

    def wall(self) -> int:
        """Milliseconds since 1970."""
        ...

    def leader(self, copy: PartitionCopy) -> tuple[int, int] | None:
        """The node that leads its target partition, and its leader epoch, as last heard; asks nobody."""
        ...

    def why_no_leader(self, copy: PartitionCopy) -> str:
        """Why no leader of its target partition is known, behind a colon, as last heard; "" where one is."""
        ...

    def carrier(self, copy: PartitionCopy) -> TargetWriter:
        """A new way to the target."""
        ...

    def read_from(self, copy: PartitionCopy, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        """Read the source from ``offset`` on; with an epoch it is checked against the log first (KIP-320).

        Nothing is read of a topic with another id than ``topic_id``, if it is not empty: TopicRecreated comes instead.
        """
        ...

    def stop_reading(self, copy: PartitionCopy) -> None:
        """Until :meth:`read_from`."""
        ...

    def look(self, copy: PartitionCopy) -> Future[SourceState]:
        """What the source has now, asked with more care where it is not the topic that was copied."""
        ...

    def settle(
        self, copy: PartitionCopy, progress: Progress | None, mark: TargetMark | None, timeout_ms: int
    ) -> Future[StartPosition]:
        """Whether the target holds what ``progress`` and ``mark`` say; without progress, whether it was forgotten.

        FlowError where progress is lost, or the target's log was made again or lost records. KafkaTimeout where the
        target partition does not answer within ``timeout_ms``.
        """
        ...

    def compare(self, copy: PartitionCopy, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """``mark`` as it holds for the present leader; None where the target has to be settled again."""
        ...

    def remake(self, copy: PartitionCopy) -> Remake:
        """Encodes for this copy, elsewhere."""
        ...

    def watch(self, copy: PartitionCopy, future: Future[Any]) -> None:
        """Have :meth:`PartitionCopy.step` called when ``future`` is done."""
        ...

    def answered(self, copy: PartitionCopy, failed: bool) -> None:
        """A batch was answered for: have the copy stepped soon; at once if it ``failed``. On the network thread."""
        ...

    def may_retry(self, copy: PartitionCopy) -> bool:
        """Whether an expired copy is tried again: it must not keep the task alive alone."""
        ...

    def why_silent(self, copy: PartitionCopy) -> str:
        """Why the source gives nothing, behind a colon; or an empty text."""
        ...
