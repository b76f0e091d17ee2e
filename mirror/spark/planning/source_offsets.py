"""Where the source's partitions begin and end, and where a flow begins and ends in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, TopicPartition
from mirror.spark.planning.open_transactions import high_watermarks
from mirror.spark.planning.range_planner import NO_LEADER, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from mirror.client import Admin, OffsetResult, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.config.positions import Position
    from mirror.errors import KafkaError


class _Asking:
    """Asks a source for offsets. Who does not answer is not asked again, and no reason to wait for the others."""

    def __init__(self, source: Admin, within_ms: int | None) -> None:
        self.failed: dict[TopicPartition, KafkaError] = {}
        self._source = source
        self._within_ms = within_ms

    def offsets(self, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
        """Raises KafkaError where nobody answers."""
        return {tp: result.offset for tp, result in self.results(partitions, spec).items()}

    def results(self, partitions: Iterable[TopicPartition], spec: int) -> Mapping[TopicPartition, OffsetResult]:
        """As :meth:`offsets`, with their leader epochs."""
        asked = {tp: spec for tp in partitions if tp not in self.failed}
        if not asked:
            return {}
        found = self._source.list_offsets(asked, partial=True, timeout_ms=self._within_ms)
        if not found:
            raise next(iter(found.failed.values()))
        self.failed.update(found.failed)
        return found


class SourceOffsets:
    """A look at the source in two steps: where its logs begin, at once, and where they end (:meth:`partitions`).

    The target's progress belongs between the two. Read after the ends, that of a stream, whose tasks go on copying, may
    lie beyond them, as if the log had been cut back; read before the beginnings, it may lie before what retention has
    taken since, as if that had not been copied.
    """

    def __init__(
        self,
        flow: FlowConfig,
        wanted: Mapping[str, TopicDescription],
        source: Admin,
        *,
        within_ms: int | None = None,
    ) -> None:
        """Every partition of the ``wanted`` topics is asked for.

        One without a leader is not: the answer would take the whole ``default.api.timeout.ms``, and its neighbours
        would wait with it. ``within_ms`` bounds each question, for the same reason.

        Raises KafkaError where no partition's leader answers.
        """
        self._flow: Final = flow
        self._parts: Final = [(topic, each) for topic in wanted.values() for each in topic.partitions]
        self._led: Final = [
            TopicPartition(topic.name, each.partition) for topic, each in self._parts if each.leader != NO_LEADER
        ]
        self._source: Final = source
        self._within_ms: Final = within_ms
        self._asking: Final = _Asking(source, within_ms)
        first = self._asking.results(self._led, EARLIEST)
        self._earliest: Final = {tp: result.offset for tp, result in first.items()}
        # A leader of a log without epochs (formats before version 2) tells its own for the end all the same.
        self._have_epochs: Final = {tp for tp, result in first.items() if result.leader_epoch >= 0}

    def targets(self, *, but_for: Container[str] = ()) -> set[TopicPartition]:
        """Where they are copied to; nothing of the source topics ``but_for``."""
        return {
            TopicPartition(self._flow.target_topic(topic.name), each.partition)
            for topic, each in self._parts
            if topic.name not in but_for
        }

    def partitions(self, known: Collection[TopicPartition] | None = None) -> list[SourcePartition]:
        """All of them, with their offsets.

        Those that are not ``known`` (None: all are) came while the flow ran: ``start = "latest"`` means all of them.

        Raises KafkaError where no partition's leader answers.
        """
        flow, asking, earliest = self._flow, self._asking, self._earliest
        last = asking.results(self._led, LATEST)
        end = {tp: result.offset for tp, result in last.items()}
        epochs = {tp: result.leader_epoch for tp, result in last.items() if tp in self._have_epochs}
        first = dict(_first_offsets(flow, asking, earliest, end))
        if known is not None and flow.start == "latest" and flow.start_position is None:
            first |= {tp: offset for tp, offset in earliest.items() if tp not in known}
        until = _until_offsets(asking, self._led, flow.end_position)
        high = high_watermarks(self._source, end, within_ms=self._within_ms)
        return [
            SourcePartition(
                topic=topic.name,
                target_topic=flow.target_topic(topic.name),
                partition=each.partition,
                topic_id=str(topic.topic_id or ""),
                leader=NO_LEADER if error else each.leader,
                earliest=earliest.get(tp, 0),
                end=end.get(tp, 0),
                first=first.get(tp, 0),
                until=until.get(tp),
                high_watermark=high.get(tp, 0),
                error=str(error or ""),
                leader_epoch=epochs.get(tp),
            )
            for topic, each in self._parts
            for tp in [TopicPartition(topic.name, each.partition)]
            for error in [asking.failed.get(tp)]
        ]


def _first_offsets(
    flow: FlowConfig, asking: _Asking, earliest: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Where partitions without progress begin: the flow's ``from`` or ``start``.

    A time after the last record means the end; an offset that the log does not have any more, its beginning.
    """
    begins = flow.start_position
    if begins is not None and begins.offset is not None:
        return {tp: max(begins.offset, offset) for tp, offset in earliest.items()}
    timestamp_ms = flow.start_timestamp_ms if begins is None else begins.timestamp_ms
    if timestamp_ms is None:
        return earliest if flow.start == "earliest" else end
    found = asking.offsets(earliest, timestamp_ms)
    return {tp: offset if 0 <= offset < end[tp] else end[tp] for tp, offset in found.items() if tp in end}


def _until_offsets(
    asking: _Asking, partitions: Iterable[TopicPartition], ends: Position | None
) -> Mapping[TopicPartition, int]:
    """Where the flow ends; nothing for a partition that has no record of that time yet."""
    if ends is None:
        return {}
    if ends.timestamp_ms is None:
        return dict.fromkeys(partitions, ends.offset or 0)
    return {tp: offset for tp, offset in asking.offsets(partitions, ends.timestamp_ms).items() if offset >= 0}
