"""Calls about offsets: of logs, and of groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mirror.cluster.calls import ClusterView, Failures, GroupCall, LeaderCall, check, left_out
from mirror.cluster.coordinators import KeyType
from mirror.cluster.keyed_call import GROUP_ID_NOT_FOUND, KeyedCall, coordinator
from mirror.cluster.requests import Lane
from mirror.cluster.types import OffsetAndMetadata, OffsetResult, Outcomes, TopicPartition, V
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.error_codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, broker_error
from mirror.wire.messages.admin import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from mirror.wire.messages.epochs import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from mirror.wire.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mirror.wire.messages.groups import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)


def by_topic(tps: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Partitions grouped by topic, both in order."""
    groups: dict[str, list[int]] = {}
    for tp in sorted(tps):
        groups.setdefault(tp.topic, []).append(tp.partition)
    return groups


def _offsets_at(
    times: Mapping[TopicPartition, int], view: ClusterView, timeout_ms: int, *, read_committed: bool
) -> ListOffsetsRequest:
    def partition(tp: TopicPartition) -> ListOffsetsPartition:
        leader = view.metadata.leader(tp)
        return ListOffsetsPartition(tp.partition, times[tp], leader.epoch if leader else -1)

    topics = tuple(
        ListOffsetsTopic(topic, tuple(partition(TopicPartition(topic, p)) for p in partitions))
        for topic, partitions in by_topic(times.keys()).items()
    )
    return ListOffsetsRequest(int(read_committed), topics, timeout_ms)


class ListOffsets(LeaderCall[dict[TopicPartition, OffsetResult]]):
    """Offsets by time; EARLIEST and LATEST are times too."""

    api = Api.LIST_OFFSETS

    def __init__(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool, deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("listing offsets", times.keys(), deadline_ms, timeout_ms)
        self._times = dict(times)
        self._read_committed = read_committed
        self._found: dict[TopicPartition, OffsetResult] = {}

    def request(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> ListOffsetsRequest:
        """With the leader epoch we know, so that a stale leader says so (KIP-320)."""
        times = {tp: self._times[tp] for tp in keys}
        return _offsets_at(times, view, min(timeout_ms, 2**31 - 1), read_committed=self._read_committed)

    def accept(self, keys: Collection[TopicPartition], response: ListOffsetsResponse) -> Failures:
        """Per partition."""
        failures: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for told in topic.partitions:
                tp = TopicPartition(topic.name, told.partition_index)
                error = check(told.error_code, f"listing offsets of {tp}", needs="Describe")
                if error is not None:
                    failures[tp] = error
                else:
                    self._found[tp] = OffsetResult(told.offset, told.timestamp, told.leader_epoch)
        return failures | left_out(keys, self._found, failures)

    def result(self) -> dict[TopicPartition, OffsetResult]:
        """By partition."""
        return self._found


class LeadersCall(KeyedCall[TopicPartition, V], LeaderCall[Outcomes[TopicPartition, V]]):
    """A call over partitions that share no fate, each answered by its leader."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[TopicPartition]]:
        """As every leader's call, and each partition without a leader knows why."""
        routes = super().route(view)
        for tp in self.pending:
            why = view.metadata.why_unknown(tp) if view.metadata.leader(tp) is None else None
            if why is None and view.metadata.leaderless(tp):
                why = broker_error(LEADER_NOT_AVAILABLE, str(tp))
            if why is not None:
                self.waiting(tp, why)
        return routes


class ListEachOffset(LeadersCall[OffsetResult]):
    """As :class:`ListOffsets`; a partition that is refused fails alone."""

    api = Api.LIST_OFFSETS
    needs = "Describe"

    def __init__(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool, deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("listing offsets", times.keys(), deadline_ms, timeout_ms)
        self._times = dict(times)
        self._read_committed = read_committed

    def about(self, key: TopicPartition) -> str:
        """For errors."""
        return f"listing offsets of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> ListOffsetsRequest:
        """With the leader epoch we know (KIP-320)."""
        times = {tp: self._times[tp] for tp in keys}
        return _offsets_at(times, view, timeout_ms, read_committed=self._read_committed)

    def accept(self, keys: Collection[TopicPartition], response: ListOffsetsResponse) -> Failures:
        """Per partition."""
        for topic in response.topics:
            for told in topic.partitions:
                found = OffsetResult(told.offset, told.timestamp, told.leader_epoch)
                tp = TopicPartition(topic.name, told.partition_index)
                self.take(tp, told.error_code, found)
        return self.open(keys)


class EpochEndOffsets(LeadersCall[int]):
    """Where each partition's log left a leader epoch: the first offset of a later one, as its leader has it."""

    api = Api.OFFSET_FOR_LEADER_EPOCH
    needs = "Describe"

    def __init__(self, epochs: Mapping[TopicPartition, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("looking up leader epochs", epochs.keys(), deadline_ms, timeout_ms)
        self._epochs = dict(epochs)

    def about(self, key: TopicPartition) -> str:
        """For errors."""
        return f"looking up leader epoch {self._epochs[key]} of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> OffsetForLeaderEpochRequest:
        """With the leader epoch we know, so that a stale leader says so (KIP-320)."""
        del timeout_ms

        def partition(tp: TopicPartition) -> EpochPartition:
            leader = view.metadata.leader(tp)
            return EpochPartition(tp.partition, self._epochs[tp], leader.epoch if leader else -1)

        return OffsetForLeaderEpochRequest(
            tuple(
                EpochTopic(topic, tuple(partition(TopicPartition(topic, p)) for p in partitions))
                for topic, partitions in by_topic(keys).items()
            )
        )

    def accept(self, keys: Collection[TopicPartition], response: OffsetForLeaderEpochResponse) -> Failures:
        """Per partition."""
        for topic in response.topics:
            for told in topic.partitions:
                self.take(TopicPartition(topic.topic, told.partition), told.error_code, told.end_offset)
        return self.open(keys)


class DeleteRecords(LeadersCall[int]):
    """Records to delete, as partition -> offset before which they go; -1: all that are replicated (KIP-107).

    Each partition's result is the log's new start.
    """

    api = Api.DELETE_RECORDS
    needs = "Delete"

    def __init__(self, before: Mapping[TopicPartition, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("deleting records", before.keys(), deadline_ms, timeout_ms)
        self._before = dict(before)

    def about(self, key: TopicPartition) -> str:
        """For errors."""
        return f"deleting records of {key} before offset {self._before[key]}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> DeleteRecordsRequest:
        """One leader's partitions."""
        del view
        topics = tuple(
            DeleteRecordsTopic(
                topic, tuple(DeleteRecordsPartition(p, self._before[TopicPartition(topic, p)]) for p in partitions)
            )
            for topic, partitions in by_topic(keys).items()
        )
        return DeleteRecordsRequest(topics, timeout_ms)

    def accept(self, keys: Collection[TopicPartition], response: DeleteRecordsResponse) -> Failures:
        """Per partition."""
        for topic in response.topics:
            for told in topic.partitions:
                tp, start = TopicPartition(topic.name, told.partition_index), told.low_watermark
                self.take(tp, told.error_code, start)
        return self.open(keys)


class GroupOffsets(GroupCall[dict[TopicPartition, OffsetAndMetadata]]):
    """What a group has committed; ``require_stable`` waits out pending transactions (KIP-447)."""

    api = Api.OFFSET_FETCH

    def __init__(
        self,
        group: str,
        tps: Collection[TopicPartition] | None,
        deadline_ms: int,
        timeout_ms: int,
        *,
        require_stable: bool = True,
    ) -> None:
        super().__init__(f"reading offsets of group {group!r}", group, deadline_ms, timeout_ms)
        self._require_stable = require_stable
        self._tps = None if tps is None else tuple(tps)
        self._found: dict[TopicPartition, OffsetAndMetadata] = {}

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetFetchRequest:
        """All partitions in one; None asks for all that the group has."""
        del keys, view, timeout_ms
        topics = None
        if self._tps is not None:
            topics = tuple(OffsetFetchTopic(topic, tuple(parts)) for topic, parts in by_topic(self._tps).items())
        return OffsetFetchRequest((OffsetFetchGroup(self.group, topics),), self._require_stable)

    def accept(self, keys: Collection[str], response: OffsetFetchResponse) -> Failures:
        """One group; a partition with a pending transaction makes all of it wait."""
        del keys
        for group in response.groups:
            error = check(group.error_code, self.what, needs="Describe")
            for topic in group.topics:
                for told in topic.partitions:
                    tp = TopicPartition(topic.name, told.partition_index)
                    error = error or check(told.error_code, f"{self.what}, {tp}", needs="Describe")
                    if told.committed_offset >= 0:
                        epoch = told.committed_leader_epoch if told.committed_leader_epoch >= 0 else None
                        self._found[tp] = OffsetAndMetadata(told.committed_offset, epoch, told.metadata or "")
            if error is not None:
                self._found.clear()
                return {self.group: error}
        return {}

    def result(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """By partition; absent where nothing is committed."""
        return self._found


class CommitGroupOffsets(GroupCall[None]):
    """Offsets to commit for a group without members."""

    api = Api.OFFSET_COMMIT

    def __init__(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"committing offsets of group {group!r}", group, deadline_ms, timeout_ms)
        self._offsets = dict(offsets)

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetCommitRequest:
        """All partitions in one."""
        del keys, view, timeout_ms
        topics = tuple(
            OffsetCommitTopic(topic, tuple(self._partition(TopicPartition(topic, p)) for p in parts))
            for topic, parts in by_topic(self._offsets.keys()).items()
        )
        return OffsetCommitRequest(self.group, topics)

    def _partition(self, tp: TopicPartition) -> OffsetCommitPartition:
        offset = self._offsets[tp]
        epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
        return OffsetCommitPartition(tp.partition, offset.offset, epoch, offset.metadata)

    def accept(self, keys: Collection[str], response: OffsetCommitResponse) -> Failures:
        """All or nothing: committing the same again is harmless."""
        del keys
        for topic in response.topics:
            for told in topic.partitions:
                about = f"{self.what}, {topic.name}-{told.partition_index}"
                error = check(told.error_code, about, needs="Read")
                if error is not None:
                    return {self.group: error}
        return {}

    def result(self) -> None:
        """Nothing to tell but success."""


class DeleteGroupOffsets(KeyedCall[TopicPartition, None]):
    """Offsets that a group is to forget (KIP-496); those of topics that a member reads are refused (code 86)."""

    api = Api.OFFSET_DELETE
    lane = Lane.COORDINATOR
    needs = "Delete"
    final = frozenset({UNKNOWN_TOPIC_OR_PARTITION})
    gone = GROUP_ID_NOT_FOUND
    """A group without members ends with its last offset."""

    def __init__(self, group: str, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"deleting offsets of group {group!r}", tps, deadline_ms, timeout_ms)
        self.group = group

    def about(self, key: TopicPartition) -> str:
        """For errors."""
        return f"{self.what}, {key}"

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[TopicPartition]]:
        """All to the group's coordinator, once it is known."""
        node = coordinator(self.group, view)
        if node is None:
            why = view.coordinators.why_unknown(KeyType.GROUP, self.group)
            self.last_error = why or view.metadata.last_error or self.last_error
            return {}
        return {node: set(self.pending)}

    def reroute(self, keys: Collection[TopicPartition], view: ClusterView) -> None:
        """Look the coordinator up again."""
        del keys
        view.coordinators.forget(KeyType.GROUP, self.group)

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> OffsetDeleteRequest:
        """All that are still there."""
        del view, timeout_ms
        topics = tuple(
            OffsetDeleteTopic(topic, tuple(OffsetDeletePartition(p) for p in partitions))
            for topic, partitions in by_topic(keys).items()
        )
        return OffsetDeleteRequest(self.group, topics)

    def accept(self, keys: Collection[TopicPartition], response: OffsetDeleteResponse) -> Failures:
        """Per partition, unless the group itself is refused. On the topics, Read is the permission that it takes."""
        if response.error_code:
            for tp in keys:
                self.take(tp, response.error_code, None)
        for topic in response.topics:
            for told in topic.partitions:
                self.take(TopicPartition(topic.name, told.partition_index), told.error_code, None, needs="Read")
        return self.open(keys)
