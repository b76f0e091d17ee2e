"""Looks up where the source's partitions begin and end, and where a flow begins and ends in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, TopicPartition
from mirror.spark.planning.open_transactions import high_watermarks
from mirror.spark.planning.range_planner import NO_LEADER, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from mirror.client import Admin, OffsetResult, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.config.positions import Position
    from mirror.errors import KafkaError
    from mirror.relay.progress.committed import Progress


class _OffsetLookup:
    """Looks up offsets on a source. A partition that did not answer once is not looked up again."""

    def __init__(self, source: Admin, call_timeout_ms: int | None) -> None:
        self.failed: dict[TopicPartition, KafkaError] = {}
        self._source = source
        self._call_timeout_ms = call_timeout_ms

    def offsets(self, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
        """Return the offsets of the partitions that answer. Raises KafkaError if none does."""
        return {tp: result.offset for tp, result in self.results(partitions, spec).items()}

    def results(self, partitions: Iterable[TopicPartition], spec: int) -> Mapping[TopicPartition, OffsetResult]:
        """Return the offsets of the partitions that answer, with leader epochs. Raises KafkaError if none does."""
        specs = {tp: spec for tp in partitions if tp not in self.failed}
        if not specs:
            return {}
        found = self._source.list_offsets(specs, partial=True, timeout_ms=self._call_timeout_ms)
        if not found:
            raise next(iter(found.failed.values()))
        self.failed.update(found.failed)
        return found


class SourceOffsets:
    """Reads the source's offsets in two steps: log start offsets at once, ends in :meth:`partitions`.

    Read the target's progress between the two steps. If it is read after the ends, the progress of a stream, whose
    tasks continue to copy, may lie beyond the ends, as if the log had been truncated. If it is read before the starts,
    it may lie before records that retention has deleted since, as if these had not been copied.
    """

    def __init__(
        self,
        flow: FlowConfig,
        topics: Mapping[str, TopicDescription],
        source: Admin,
        *,
        call_timeout_ms: int | None = None,
    ) -> None:
        """Look up the log start offset of every partition of ``topics`` that has a leader.

        A partition without a leader would delay the others by the whole ``default.api.timeout.ms``. For the same
        reason ``call_timeout_ms`` bounds each call. Raises KafkaError if no partition's leader answers.
        """
        self._flow: Final = flow
        self._partitions: Final = [(topic, partition) for topic in topics.values() for partition in topic.partitions]
        self._with_leader: Final = [
            TopicPartition(topic.name, partition.partition)
            for topic, partition in self._partitions
            if partition.leader != NO_LEADER
        ]
        self._source: Final = source
        self._call_timeout_ms: Final = call_timeout_ms
        self._lookup: Final = _OffsetLookup(source, call_timeout_ms)
        starts = self._lookup.results(self._with_leader, EARLIEST)
        self._earliest: Final = {tp: result.offset for tp, result in starts.items()}
        # For the end, the leader of a log without epochs (formats before version 2) reports its own epoch all the same.
        self._have_epochs: Final = {tp for tp, result in starts.items() if result.leader_epoch >= 0}

    def target_partitions(self, *, excluded: Container[str] = ()) -> set[TopicPartition]:
        """Return the target partitions, without those of the ``excluded`` source topics."""
        return {
            TopicPartition(self._flow.target_topic(topic.name), partition.partition)
            for topic, partition in self._partitions
            if topic.name not in excluded
        }

    def partitions(self, is_initial: Callable[[TopicPartition], bool] | None = None) -> list[SourcePartition]:
        """Return all source partitions with their offsets.

        A partition that is not initial (None: all are) appeared while the flow ran: ``start = "latest"`` copies it
        from its first record. Raises KafkaError if no partition's leader answers.
        """
        flow, lookup, earliest = self._flow, self._lookup, self._earliest
        last = lookup.results(self._with_leader, LATEST)
        end = {tp: result.offset for tp, result in last.items()}
        epochs = {tp: result.leader_epoch for tp, result in last.items() if tp in self._have_epochs}
        first = dict(first_offsets(flow, lookup.offsets, earliest, end))
        if is_initial is not None and flow.begins_at_end:
            first |= {tp: offset for tp, offset in earliest.items() if not is_initial(tp)}
        until = _until_offsets(lookup, self._with_leader, flow.end_position)
        high = high_watermarks(self._source, end, call_timeout_ms=self._call_timeout_ms)
        return [
            SourcePartition(
                topic=topic.name,
                target_topic=flow.target_topic(topic.name),
                partition=partition.partition,
                topic_id=str(topic.topic_id or ""),
                leader=NO_LEADER if error else partition.leader,
                earliest=earliest.get(tp, 0),
                end=end.get(tp, 0),
                first=first.get(tp, 0),
                until=until.get(tp),
                high_watermark=high.get(tp, 0),
                error=str(error or ""),
                leader_epoch=epochs.get(tp),
            )
            for topic, partition in self._partitions
            for tp in [TopicPartition(topic.name, partition.partition)]
            for error in [lookup.failed.get(tp)]
        ]

    def compared(
        self, partitions: Iterable[SourcePartition], progress: Mapping[TopicPartition, Progress]
    ) -> list[SourcePartition]:
        """Return ``partitions`` with where they diverge from what was copied, of those that end at their ``progress``.

        An unclean election may have cut such a log back, and it has grown again to just there. Nothing is read behind
        the progress then, which would show it. Only another leader epoch than that of the progress is asked about.
        """
        found = {TopicPartition(one.topic, one.partition): one for one in partitions}
        copied: dict[TopicPartition, Progress] = {}
        for tp, one in found.items():
            known = progress.get(TopicPartition(one.target_topic, one.partition))
            if known is None or known.offset != one.end or None in {one.leader_epoch, known.leader_epoch}:
                continue
            if known.leader_epoch != one.leader_epoch and known.topic_id in {"", one.topic_id}:
                copied[tp] = known
        epochs = {tp: known.leader_epoch for tp, known in copied.items() if known.leader_epoch is not None}
        if epochs:
            ends = self._source.epoch_ends_async(epochs, self._call_timeout_ms).result()
            for tp, epoch_end in ends.items():
                if 0 <= epoch_end.end_offset < copied[tp].offset:
                    found[tp] = replace(found[tp], diverging=epoch_end.end_offset)
        return [*found.values()]


def first_offsets(
    flow: FlowConfig,
    look_up: Callable[[Collection[TopicPartition], int], Mapping[TopicPartition, int]],
    earliest: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """Return where partitions without progress begin, by the flow's ``from`` or ``start``.

    ``look_up`` returns the offsets of a time (ms since 1970; -1: no record is as late) of the partitions that answer. A
    time after the last record stands for the end, and an offset before the log's start for that start.
    """
    position = flow.start_position
    if position is not None and position.offset is not None:
        return {tp: max(position.offset, offset) for tp, offset in earliest.items()}
    timestamp_ms = flow.start_timestamp_ms if position is None else position.timestamp_ms
    if timestamp_ms is None:
        return earliest if flow.start == "earliest" else end
    found = look_up(earliest.keys(), timestamp_ms)
    return {tp: offset if 0 <= offset < end[tp] else end[tp] for tp, offset in found.items() if tp in end}


def _until_offsets(
    lookup: _OffsetLookup, partitions: Iterable[TopicPartition], position: Position | None
) -> Mapping[TopicPartition, int]:
    """Return where the flow ends, without partitions that have no record of that time yet."""
    if position is None:
        return {}
    if position.timestamp_ms is None:
        return dict.fromkeys(partitions, position.offset or 0)
    return {tp: offset for tp, offset in lookup.offsets(partitions, position.timestamp_ms).items() if offset >= 0}
