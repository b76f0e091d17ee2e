"""What a task provides to its copies (:class:`CopyContext`), and what it uses of them (:class:`CopyHandle`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from mirror.backoff import Backoff
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.meters import Histogram
from mirror.relay.batches.batch_pipeline import SubmitReencode
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.byte_limits import SendWindow, SourceBudget
from mirror.relay.model.policy import CopyTimeouts
from mirror.relay.model.ranges import Range
from mirror.relay.model.way import Way
from mirror.relay.offsets.segments import Segment
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.target_log import TargetMark

if TYPE_CHECKING:
    from mirror.relay.batches.slow_records import SlowRecords
    from mirror.relay.model.observer import TaskObserver
    from mirror.relay.partition.writers.target_writer import TargetWriter


class CopyHandle(Protocol):
    """The copy of one partition, as its task sees it."""

    def __hash__(self) -> int:
        """Hash by identity: copies queue in the send window, and are members of sets."""
        ...

    @property
    def range(self) -> Range:
        """The range that is copied."""
        ...

    @property
    def source(self) -> TopicPartition:
        """The source partition."""
        ...

    @property
    def target(self) -> TopicPartition:
        """The target partition."""
        ...

    @property
    def awaits_acknowledgement(self) -> bool:
        """Whether an acknowledgement should wake the task. Also called from network threads."""
        ...

    def step(self, now: int) -> None:
        """Make all the progress that is possible without waiting."""
        ...

    # --- the source

    @property
    def wants_more(self) -> bool:
        """Whether it can use more of the source."""
        ...

    @property
    def held_bytes(self) -> int:
        """Fetched bytes that it still needs."""
        ...

    @property
    def awaits_first_response(self) -> bool:
        """Whether it reads, and the source has not reported its end yet."""
        ...

    def on_fetched(self, fetched: Fetched, now: int) -> None:
        """Take the batches of a fetch, or its error; it was requested after the last :meth:`CopyContext.read_from`."""
        ...

    def on_source_response(self, response: LastResponse, now: int) -> None:
        """This is the last response of the source's broker, also if it had nothing of the partition."""
        ...

    def on_fetch_skipped(self, now: int, *, budget_exhausted: bool = False) -> None:
        """Nothing is fetched at ``now``: the source cannot be blamed for its silence."""
        ...


class CopyContext(Protocol):
    """What the copies of a task share. No call waits."""

    @property
    def timeouts(self) -> CopyTimeouts:
        """The timeouts and intervals of the task's clients."""
        ...

    @property
    def send_window(self) -> SendWindow:
        """The bytes in flight to the target."""
        ...

    @property
    def source_budget(self) -> SourceBudget:
        """The fetched bytes that copies hold."""
        ...

    @property
    def backoff(self) -> Backoff:
        """The backoff of expired copies (KIP-580)."""
        ...

    @property
    def observer(self) -> TaskObserver:
        """Receives spans and results."""
        ...

    @property
    def slow_records(self) -> SlowRecords | None:
        """Finds late records that belong to a trace; None: they are not asked for."""
        ...

    @property
    def latency(self) -> Histogram:
        """Receives, for each record, how long it took from the source's append to the target's acknowledgement."""
        ...

    @property
    def commit_durations(self) -> Histogram:
        """The durations of all copies' commits."""
        ...

    def unix_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def keep_anchor(self, copy: CopyHandle, anchor: Anchor) -> None:
        """Write ``anchor`` to the flow's progress topic some time, if that is possible."""
        ...

    def keep_segments(self, copy: CopyHandle, segments: Sequence[Segment]) -> None:
        """Write ``segments`` to the flow's offset topic some time, if that is possible."""
        ...

    def target_leader(self, target: TopicPartition) -> tuple[int, int] | None:
        """Return (node, leader epoch) of the target partition from cached metadata."""
        ...

    def no_leader_reason(self, target: TopicPartition) -> str:
        """Return why cached metadata has no leader of the target partition, as ``': <reason>'``, or ``''``."""
        ...

    def new_writer(self, copy: CopyHandle, way: Way | None) -> TargetWriter:
        """Create the writer of another attempt, which goes this ``way``; None: at least once."""
        ...

    def may_acquire(self, copy: CopyHandle, *, quiet: bool = False) -> bool:
        """Whether ``copy`` may begin to acquire its partition, as few others do; if not, it is stepped when it may.

        ``quiet``: it has no records to send, so that those that have some go first.
        """
        ...

    def on_acquiring(self, call: Future[Any]) -> None:
        """A copy acquires its partition until ``call`` is done."""
        ...

    def read_from(self, copy: CopyHandle, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        """Fetch from ``offset``; a leader epoch is validated against the source's log first (KIP-320).

        If ``topic_id`` is not empty and the topic has another id, the fetch ends with TopicRecreated.
        """
        ...

    def stop_reading(self, copy: CopyHandle) -> None:
        """Fetch nothing until :meth:`read_from`."""
        ...

    def source_state(self, source: TopicPartition, copied_topic: str) -> Future[SourceState]:
        """Look up the source partition's id and bounds; carefully if its topic is not the one that was copied."""
        ...

    def resolve_start(
        self,
        target: TopicPartition,
        progress: Progress | None,
        mark: TargetMark | None,
        timeout_ms: int,
        shrunk_to: int | None,
        *,
        source_topic: str,
        continues: bool = False,
        to_end: bool = False,
    ) -> Future[StartPosition]:
        """Check that the target holds what ``progress`` and ``mark`` say; without progress, whether it was lost.

        Where another topic than ``source_topic`` was copied, a policy that starts over begins behind all that is there.
        ``continues``: who has committed it has checked it, so that only another topic or leader is checked.
        ``to_end``: whether the end of the target's log is wanted, too.
        ``shrunk_to`` is an offset at which the target has acknowledged a batch although its log had reached further.
        FlowError if progress is lost, or the target's log was recreated or lost records, and the policy does not mend
        that. KafkaTimeout if the target partition does not answer within ``timeout_ms``.
        """
        ...

    def compare_target(self, target: TopicPartition, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """Return ``mark`` for the present leader; None if its log may lack records, and has to be resolved again."""
        ...

    def reencoder(self, source: TopicPartition) -> SubmitReencode:
        """Return a function that re-encodes batches of ``source`` in another thread; partitions take turns."""
        ...

    def foreign_finder(self, source: TopicPartition, topic_id: Callable[[], str]) -> IsForeign | None:
        """Return what decides which batches of the source are not copied; None if all are.

        ``topic_id`` returns the id of the topic that is read: it changes where that was made again.
        """
        ...

    def step_when_done(self, copy: CopyHandle, future: Future[Any]) -> None:
        """Step ``copy`` when ``future`` is done."""
        ...

    def on_batch_answered(self, copy: CopyHandle, failed: bool) -> None:
        """Step ``copy`` soon, and immediately if a batch ``failed``. Called on the network thread."""
        ...

    def may_retry(self) -> bool:
        """Whether copies that have expired may be retried: they must not be the only ones that keep the task alive."""
        ...

    def may_fence_again(self) -> bool:
        """Whether the control record, as read a short while ago, names this run: what has fenced a copy is no other."""
        ...

    def source_error(self, source: TopicPartition) -> str:
        """Return the last error of the source partition as ``': <error>'``, or ``''``."""
        ...
