"""Asks both clusters what their logs have now, for the translation of offsets: partition by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.client import EARLIEST, LATEST, Admin, Outcomes, TopicPartition
from mirror.cluster.types import TopicDescription
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.offsets.epoch_ends import EpochEndCalls, known
from mirror.relay.offsets.segments import EpochEnds, Segment
from mirror.relay.progress.committed import Progress

_ALL: Final = "read_uncommitted"
"""Records of open transactions count, too."""


class TopicIds(NamedTuple):
    """The ids of the topics that exist on both sides, by name; an id that brokers do not have is empty."""

    source: Mapping[str, str]
    target: Mapping[str, str]


class LogStarts(NamedTuple):
    """Where the two logs of a partition begin."""

    source: int
    target: int


class LogEnds(NamedTuple):
    """Where the two logs of a partition end."""

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
        self.silent_sources: Final[set[TopicPartition]] = set()
        """Source partitions whose leaders have not answered."""
        self.silent_targets: Final[set[TopicPartition]] = set()
        """The same of the target."""

    def topic_ids(self, partitions: Mapping[TopicPartition, TopicPartition]) -> TopicIds:
        """Return the ids of the topics of both sides. Raises KafkaError."""
        calls = [
            admin.describe_topics_async({tp.topic for tp in tps}, self._timeout_ms)
            for admin, tps in ((self._source, partitions.keys()), (self._target, partitions.values()))
        ]
        for call in calls:
            for error in call.result().failed.values():
                raise error
        return TopicIds(*(ids_of(call.result()) for call in calls))

    def empty(self, partitions: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, LogEnds]:
        """Return the ends of these source partitions whose logs hold no records, and of their target partitions.

        Those that do not answer are left out.
        """
        if not partitions:
            return {}
        # The target first: what is appended there once the source was seen to be empty is not in front of its end.
        there = self._target.list_offsets(
            dict.fromkeys(partitions.values(), LATEST), isolation=_ALL, partial=True, timeout_ms=self._timeout_ms
        )
        calls = [
            self._source.list_offsets_async(
                dict.fromkeys(partitions, time), isolation=_ALL, timeout_ms=self._timeout_ms
            )
            for time in (EARLIEST, LATEST)
        ]
        starts, ends = (call.result() for call in calls)
        return {
            source: LogEnds(ends[source].offset, there[target].offset)
            for source, target in partitions.items()
            if source in starts and source in ends and target in there
            if starts[source].offset == ends[source].offset
        }

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
        calls = (
            EpochEndCalls(self._source, of_source, self._timeout_ms),
            EpochEndCalls(self._target, of_target, self._timeout_ms),
        )
        source_ends, target_ends = (call.read(partial=True) for call in calls)
        source_starts, target_starts = (call.result() for call in starts)
        found: dict[TopicPartition, KnownLogs] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for source, target in partitions.items():
            error: KafkaError | None = None
            for tp, begins, asked, ends, silent in (
                (source, source_starts, of_source, source_ends, self.silent_sources),
                (target, target_starts, of_target, target_ends, self.silent_targets),
            ):
                problem = begins.failed.get(tp)
                if problem is None and asked[tp] - ends[tp].keys():
                    problem = KafkaTimeout(f"{tp}: its leader has not answered where its leader epochs end")
                if isinstance(problem, KafkaTimeout):
                    silent.add(tp)
                error = error or problem
            if error is None:
                begin = LogStarts(source_starts[source].offset, target_starts[target].offset)
                ends_now = EpochEnds(source_ends[source], target_ends[target])
                found[source] = KnownLogs(source, target, copied[source], ends_now, begin)
            else:
                failed[source] = error
        return Outcomes(found, failed)


def ids_of(topics: Mapping[str, TopicDescription]) -> dict[str, str]:
    """Return the ids of these topics, by name; an id that brokers do not have is empty."""
    return {name: str(one.topic_id or "") for name, one in topics.items()}
