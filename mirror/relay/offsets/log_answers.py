"""Asks both clusters what their logs have now, for the translation of offsets: partition by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.client import EARLIEST, Admin, Outcomes, TopicPartition
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.offsets.epoch_ends import known, read_epoch_ends
from mirror.relay.offsets.segments import EpochEnds, Segment
from mirror.relay.progress.committed import Progress


class LogStarts(NamedTuple):
    """Where the two logs of a partition begin."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class KnownLogs:
    """What both clusters have now of a partition."""

    source: TopicPartition
    target: TopicPartition
    progress: Progress
    ends: EpochEnds
    starts: LogStarts


class LogAnswers:
    """Calls of both clusters. They wait."""

    def __init__(self, source: Admin, target: Admin, timeout_ms: int) -> None:
        """``timeout_ms`` limits each call: a leader that does not answer costs that time, not the other partitions."""
        self._source: Final = source
        self._target: Final = target
        self._timeout_ms: Final = timeout_ms

    def topic_ids(
        self, partitions: Mapping[TopicPartition, TopicPartition]
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the ids of the source and target topics, by name, without those that do not exist. Raises KafkaError.

        An id that brokers do not have is empty.
        """
        calls = [
            admin.describe_topics_async({tp.topic for tp in tps}, self._timeout_ms)
            for admin, tps in ((self._source, partitions.keys()), (self._target, partitions.values()))
        ]
        for call in calls:
            for error in call.result().failed.values():
                raise error
        source, target = ({name: str(one.topic_id or "") for name, one in call.result().items()} for call in calls)
        return source, target

    def logs(
        self,
        partitions: Mapping[TopicPartition, TopicPartition],
        copied: Mapping[TopicPartition, Progress],
        segments: Mapping[TopicPartition, Iterable[Segment]],
    ) -> Outcomes[TopicPartition, KnownLogs]:
        """Return what is in the logs of these source partitions, and where what was copied ends now."""
        starts = (
            self._source.list_offsets_async(dict.fromkeys(partitions, EARLIEST), timeout_ms=self._timeout_ms),
            self._target.list_offsets_async(dict.fromkeys(partitions.values(), EARLIEST), timeout_ms=self._timeout_ms),
        )
        of_source, of_target = {}, {}
        for source, progress in copied.items():
            target = partitions[source]
            of_source[source] = known({progress.leader_epoch, *(one.end.leader_epoch for one in segments[target])})
            of_target[target] = known({one.end.target.leader_epoch for one in segments[target]})
        source_ends = read_epoch_ends(self._source, of_source, self._timeout_ms, partial=True)
        target_ends = read_epoch_ends(self._target, of_target, self._timeout_ms, partial=True)
        source_starts, target_starts = (call.result() for call in starts)
        found: dict[TopicPartition, KnownLogs] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for source, target in partitions.items():
            error = source_starts.failed.get(source) or target_starts.failed.get(target)
            for tp, asked, ends in ((source, of_source, source_ends), (target, of_target, target_ends)):
                if error is None and asked[tp] - ends[tp].keys():
                    error = KafkaTimeout(f"{tp}: its leader has not answered where its leader epochs end")
            if error is None:
                begin = LogStarts(source_starts[source].offset, target_starts[target].offset)
                ends_now = EpochEnds(source_ends[source], target_ends[target])
                found[source] = KnownLogs(source, target, copied[source], ends_now, begin)
            else:
                failed[source] = error
        return Outcomes(found, failed)
