"""What a copy needs around it, as the task that runs it gives it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mirror.backoff import Backoff
from mirror.meters import Histogram
from mirror.relay.feed import Remake
from mirror.relay.gaps import SourceState
from mirror.relay.pace import Holdings, Window
from mirror.relay.progress import Progress
from mirror.relay.target_log import TargetMark

if TYPE_CHECKING:
    from mirror.relay.carriers import Carrier
    from mirror.relay.partition import PartitionCopy
    from mirror.relay.watching import Watcher


@dataclass(frozen=True, slots=True)
class Settled:
    """Where a copy begins: at ``progress``, found or restored, or (None) where its flow does.

    ``target_end`` is the end of its target's log, and ``mark`` what is known of that. Where it begins without the notes
    having been read, ``later`` fails with FlowError as soon as they say that the target did hold something.
    """

    progress: Progress | None
    target_end: int
    mark: TargetMark | None = None
    later: Future[None] | None = None


class Site(Protocol):
    """The task around a copy. Nothing of it waits."""

    @property
    def window(self) -> Window:
        """What is under way to the target."""
        ...

    @property
    def holdings(self) -> Holdings:
        """What was taken from the source."""
        ...

    @property
    def backoff(self) -> Backoff:
        """How long an expired copy rests (KIP-580)."""
        ...

    @property
    def watcher(self) -> Watcher:
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

    def carrier(self, copy: PartitionCopy) -> Carrier:
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
    ) -> Future[Settled]:
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


@dataclass(slots=True, kw_only=True)
class Times:
    """The times that a copy keeps to, in ms."""

    delivery_ms: int
    request_ms: int
    stall_ms: int
    commit_ms: int
    commit_min_ms: int
