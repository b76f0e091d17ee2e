"""Writes where a flow continues: its progress, an anchor, the beginning of its offset index, and a progress record.

The progress is written last but for its record: what is written before it is void without it, so that a takeover that
was cut short can be done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from mirror.client import Admin, Producer, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.offsets.offset_topic import OffsetTopic
from mirror.relay.offsets.segments import Segment
from mirror.relay.offsets.segments import key_of as segment_key
from mirror.relay.partition.across_attempts.anchoring import anchor_at
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.anchors import Anchor, AnchorCount
from mirror.relay.progress.anchors import key_of as anchor_key
from mirror.relay.progress.committed import Beginning, Progress, group_of, to_offset
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.relay.progress.target_log import TargetMark
from mirror.takeover.continuation import Continuation
from mirror.takeover.index_seeds import segments
from mirror.takeover.matching import Pair


class Seed(NamedTuple):
    """What is written for one partition."""

    progress: Progress
    anchor: Anchor
    segments: Sequence[Segment]


def seed_of(
    decision: Continuation, pairs: Sequence[Pair], source_cluster_id: str, now_ms: int, *, exactly_once: bool
) -> Seed:
    """Return what is to be written for a partition that is settled (``now_ms``: since 1970). Pure.

    The target's log up to its end is MirrorMaker 2's, and all that the flow copies is behind it.
    """
    source, target, offset = decision.source_log, decision.target_log, decision.next_offset
    assert source is not None  # noqa: S101 - it is settled
    assert target is not None  # noqa: S101
    assert offset is not None  # noqa: S101
    progress = Progress(
        offset=offset,
        leader_epoch=source.leader_epoch,
        source_cluster_id=source_cluster_id,
        topic_id=source.topic_id,
        source_topic=decision.source.topic,
        time_ms=now_ms,
        target=TargetMark(topic_id=target.topic_id, end=target.end, leader_epoch=target.leader_epoch),
        generation=now_ms,
        anchor=AnchorCount(0, now_ms),
        series=now_ms,
    )
    assert progress.target is not None  # noqa: S101 - just made
    anchor = anchor_at(progress, progress.target, now_ms, exactly_once=exactly_once)
    extents = () if decision.match is None else decision.match.extents
    found = segments(pairs, extents, decision.anchor, anchor)
    first = found[0] if found else None
    beginning = Beginning(offset, target.end) if first is None else Beginning(first.start, first.target_start)
    return Seed(replace(progress, beginning=beginning), anchor, found)


class Seeding:
    """Writes seeds to the target. Its calls wait; use it in one thread."""

    def __init__(
        self, flow: str, target_options: Mapping[str, object], target: Admin, *, exactly_once: bool, timeout_ms: int
    ) -> None:
        """``target_options`` are dotted keys, of which the cluster's are used. Raises ConfigError."""
        self._flow: Final = flow
        self._options: Final = cluster_options(target_options)
        self._target: Final = target
        self._exactly_once: Final = exactly_once
        self._timeout_ms: Final = timeout_ms
        self._progress_topic: Final = ProgressTopic(self._options, flow)
        self._offset_topic: Final = OffsetTopic(self._options, flow)

    def write_index(self, seeds: Mapping[TopicPartition, Seed]) -> dict[TopicPartition, KafkaError]:
        """Write the index and the anchors of these partitions; return the errors of those that lack something."""
        written = {segment_key(tp, one): one for tp, seed in seeds.items() for one in seed.segments}
        errors = {key.tp: error for key, error in self._offset_topic.write(written, self._timeout_ms).items()}
        anchors = {anchor_key(tp, seed.anchor): seed.anchor for tp, seed in seeds.items()}
        not_written = self._progress_topic.write_anchors(anchors, self._timeout_ms)
        return errors | {key.tp: error for key, error in not_written.items()}

    # Invariant: A takeover can be done again with the same result: its progress is committed last, in a transaction of
    #   the flow's own id, which begins a new series.
    # Test: tests/takeover/test_takeover_on_fakes.py::test_a_takeover_is_done_again_with_the_same_result
    def commit(self, tp: TopicPartition, seed: Seed) -> None:
        """Commit the progress of a target partition. Raises KafkaError.

        Exactly once, a copy of the flow that still runs is fenced first.
        """
        offset, group = to_offset(seed.progress), group_of(self._flow, tp)
        if not self._exactly_once:
            self._target.commit_offset_async(group, tp, offset, self._timeout_ms).result()
            return
        options = {"transactional.id": transactional_id(self._flow, tp), "max.block.ms": self._timeout_ms}
        producer = Producer({**self._options, **options})
        try:
            producer.init_transactions(self._timeout_ms)
            producer.begin_transaction()
            producer.send_offsets_to_transaction({tp: offset}, group, self._timeout_ms)
            producer.commit_transaction(self._timeout_ms)
        finally:
            producer.close(timeout_ms=0)

    def write_records(self, seeds: Mapping[TopicPartition, Seed]) -> list[KafkaError]:
        """Write the progress records, from which forgotten progress is restored; return the errors."""
        records = {tp: ProgressRecord(seed.progress, seed.anchor.target.end) for tp, seed in seeds.items()}
        return [*self._progress_topic.write(records, self._timeout_ms).values()]
