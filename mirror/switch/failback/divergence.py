"""Finds where the tail of each partition begins: the exact position behind all that the flow has appended.

By sequences the progress is a lower bound, and what it lacks is in the log of the other cluster. So each partition is
fenced under the flow's own transactional id, as an attempt to copy it would do, and its log is compared with that of
the old cluster. The flow is held meanwhile; its next run searches again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import LATEST, Admin, BufferMemory, TopicPartition
from mirror.closing import Closing
from mirror.config.flow_rules import source_options, target_options
from mirror.errors import FlowError, KafkaTimeout
from mirror.producer.settings import ProducerSettings
from mirror.relay.offsets.offset_topic import OffsetTopic
from mirror.relay.offsets.segments import Segment, key_of
from mirror.relay.origin.registry import LocalOrigin, open_origin
from mirror.relay.partition.across_attempts.anchoring import anchor_at
from mirror.relay.partition.search.position_search import LogPositionSearch, LogSearch
from mirror.relay.partition.writers.fence import (
    PartitionTransactions,
    fence_and_find,
    read_latest_progress,
    transactional_id,
)
from mirror.relay.progress.committed import Beginning, Progress
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.position import Appenders, FoundPosition, PositionQuery
from mirror.relay.progress.target_log import TargetMark
from mirror.switch.failback.tail import Span

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.producer.batch.queue import ProducerId
    from mirror.relay.progress.target_loss import TargetLoss

_MEMORY: Final = 1024 * 1024
_THREADS: Final = 8
_TURNS: Final = 10
"""A search that reads nothing new ends after so many turns: each waits twice as long, from 100 ms to 32 s."""


def find_positions(
    config: MirrorConfig, flow: FlowConfig, tps: Collection[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, int]:
    """Return up to which offset of the old cluster the flow has copied each of these partitions, exactly.

    Raises KafkaError; FlowError ``position-unproved`` where that cannot be shown.
    """

    def lost(tp: TopicPartition) -> Progress:
        raise FlowError(f"progress-lost: flow {flow.name} has no progress in {tp} any more")

    with _Positions(config, flow, timeout_ms, lost) as positions:
        return {tp: progress.offset for tp, progress in positions.each(tps, lambda _, progress: progress).items()}


def skip_tails(
    config: MirrorConfig, flow: FlowConfig, spans: Mapping[TopicPartition, Span], now_ms: int, timeout_ms: int
) -> None:
    """Have the flow go on behind these offsets of the old cluster, which it never copies; it may be repeated.

    Where nothing was copied, its copy begins there. The offset index gets a segment without copies, so that groups
    pass the tail, and verification begins behind it.
    Raises KafkaError, FlowError.
    """
    if not spans:
        return
    with Admin(config.clusters[flow.source].client_options()) as source:
        ends = source.list_offsets(dict.fromkeys(spans, LATEST), isolation="read_uncommitted", timeout_ms=timeout_ms)
        cluster_id = source.describe_cluster(timeout_ms=timeout_ms).cluster_id
        topics = source.describe_topics({tp.topic for tp in spans}, timeout_ms=timeout_ms)

    def begun(tp: TopicPartition) -> Progress:
        return Progress(
            offset=spans[tp].end,
            leader_epoch=None,
            source_cluster_id=cluster_id,
            topic_id=str(topics[tp.topic].topic_id or ""),
            source_topic=tp.topic,
            target=_end_of(config, flow, tp, timeout_ms),
            generation=now_ms,
            series=now_ms,
        )

    def behind(tp: TopicPartition, found: Progress) -> Progress:
        assert found.target is not None  # noqa: S101 - the search needs it
        epoch, copied = ends[tp].leader_epoch, found.target.end
        return replace(
            found,
            offset=max(found.offset, spans[tp].end),
            leader_epoch=epoch if epoch >= 0 else None,
            time_ms=now_ms,
            beginning=Beginning(max(found.offset, spans[tp].end), copied),
        )

    topic = OffsetTopic(cluster_options(target_options(config, flow)), flow.name)

    def write(tp: TopicPartition, progress: Progress) -> None:
        assert progress.target is not None  # noqa: S101 - as above
        end = anchor_at(progress, progress.target, now_ms, exactly_once=True)
        segment = Segment(spans[tp].start, progress.target.end, end, b"")
        for error in topic.write({key_of(tp, segment): segment}, timeout_ms).values():
            raise error

    with _Positions(config, flow, timeout_ms, begun) as positions:
        positions.each(spans, behind, write)


def _end_of(config: MirrorConfig, flow: FlowConfig, tp: TopicPartition, timeout_ms: int) -> TargetMark:
    """Return the end of a partition's log on the flow's target. Raises KafkaError, FlowError."""
    with Admin(config.clusters[flow.target].client_options()) as target:
        topic = target.describe_topics([tp.topic], partial=True, timeout_ms=timeout_ms).get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            raise FlowError(
                f"{tp} is missing on {flow.target}, so that its flow cannot go on behind the tail: create it with"
                " the partitions of the old cluster, and repeat this"
            )
        end = target.list_offsets({tp: LATEST}, isolation="read_uncommitted", timeout_ms=timeout_ms)[tp]
        epoch = end.leader_epoch if end.leader_epoch >= 0 else None
        return TargetMark(topic_id=str(topic.topic_id or ""), end=end.offset, leader_epoch=epoch)


def origin_of(config: MirrorConfig, flow: FlowConfig, timeout_ms: int) -> LocalOrigin | None:
    """Return what decides which records of the old cluster were produced there; None if the flow copies all.

    Raises KafkaError, FlowError.
    """
    options = cluster_options(target_options(config, flow))
    return open_origin(flow.name, source_options(config, flow), options, flow.copy_policy(), timeout_ms)


class _Positions(Closing):
    """Fences partitions as attempts to copy them do, and finds their exact positions."""

    def __init__(
        self, config: MirrorConfig, flow: FlowConfig, timeout_ms: int, begin: Callable[[TopicPartition], Progress]
    ) -> None:
        """``begin`` returns the progress of a partition that has none."""
        self._begin: Final = begin
        self._flow: Final = flow.name
        self._timeout_ms: Final = timeout_ms
        self._options: Final = cluster_options(target_options(config, flow))
        with ExitStack() as stack:
            self._admin: Final = stack.enter_context(Admin(self._options))
            origin = origin_of(config, flow, timeout_ms)
            if origin is not None:
                stack.enter_context(origin)
            sources = source_options(config, flow)
            self._search: Final = stack.enter_context(
                LogPositionSearch(sources, self._options, flow.copy_policy(), origin)
            )
            self._stack: Final = stack.pop_all()

    def close(self) -> None:
        """Close the clients."""
        self._stack.close()

    def each(
        self,
        tps: Collection[TopicPartition],
        change: Callable[[TopicPartition, Progress], Progress],
        before: Callable[[TopicPartition, Progress], None] = lambda _, __: None,
    ) -> dict[TopicPartition, Progress]:
        """Return the progress of each partition at its exact position.

        If ``change`` returns another one, that is claimed instead, once ``before`` was called with it. Raises
        KafkaError, FlowError.
        """
        with ThreadPoolExecutor(_THREADS, "position") as pool:
            return dict(zip(tps, pool.map(lambda tp: self._one(tp, change, before), tps), strict=True))

    def _one(
        self,
        tp: TopicPartition,
        change: Callable[[TopicPartition, Progress], Progress],
        before: Callable[[TopicPartition, Progress], None],
    ) -> Progress:
        settings = ProducerSettings.parse({**self._options, "transactional.id": transactional_id(self._flow, tp)})
        transactions = PartitionTransactions(self._flow, tp, settings, BufferMemory(_MEMORY))
        finding = _Finding(tp, self._search.begin)
        try:
            transactions.producer.init_transactions(self._timeout_ms)
            progress = read_latest_progress(self._admin, self._flow, tp, self._timeout_ms).result()
            if progress is None:
                progress = self._begin(tp)
            found = fence_and_find(transactions, finding, progress, progress.way, self._timeout_ms).result().progress
            changed = change(tp, found)
            if changed != found:
                before(tp, changed)
                transactions.claim(changed, self._timeout_ms).result()
            return changed
        finally:
            finding.close()
            transactions.close(self._timeout_ms).result()


class _Finding:
    """One search, in a thread of its own (:class:`mirror.relay.partition.writers.fence.Search`)."""

    def __init__(self, tp: TopicPartition, begin: Callable[[PositionQuery], LogSearch]) -> None:
        self._tp: Final = tp
        self._begin: Final = begin
        self._pool: Final = ThreadPoolExecutor(1, "search")
        self._search: LogSearch | None = None

    @property
    def advanced_ms(self) -> int:
        return 0 if self._search is None else self._search.advanced_ms

    def find(
        self, progress: Progress, appenders: Appenders, fence: ProducerId, timeout_ms: int, loss: TargetLoss | None
    ) -> Future[FoundPosition]:
        query = PositionQuery(
            source=self._tp, target=self._tp, progress=progress, appenders=appenders, fence=fence, loss=loss
        )
        del timeout_ms
        return self._pool.submit(self._advance, query)

    def _advance(self, query: PositionQuery) -> FoundPosition:
        search = self._search = self._begin(query)
        last_ms, waited = search.advanced_ms, 0
        while (found := search.advance()) is None:
            waited = 0 if search.advanced_ms != last_ms else waited + 1
            last_ms = search.advanced_ms
            if waited > _TURNS:
                raise search.timeout_error()
        return found

    def timeout_error(self) -> KafkaTimeout | None:
        return None if self._search is None else self._search.timeout_error()

    def close(self) -> None:
        if self._search is not None:
            self._search.stop()
        self._pool.shutdown()
