"""Calls about the offsets of logs. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from mirror.cluster.calls.keyed_call import KeyedCall
from mirror.cluster.calls.routed_calls import CallAttempt, ClusterView, Failures, LeaderCall, check, left_out
from mirror.cluster.types import EpochEndOffset, OffsetResult, Outcomes, TopicPartition, V
from mirror.errors import KafkaError, UnsupportedVersion
from mirror.wire.api import Api
from mirror.wire.error_codes import LEADER_NOT_AVAILABLE, broker_error
from mirror.wire.integers import INT32_MAX
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


def by_topic(tps: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, both sorted."""
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


def _epochs_at(epochs: Mapping[TopicPartition, int], view: ClusterView) -> OffsetForLeaderEpochRequest:
    def partition(tp: TopicPartition) -> EpochPartition:
        leader = view.metadata.leader(tp)
        return EpochPartition(tp.partition, epochs[tp], leader.epoch if leader else -1)

    return OffsetForLeaderEpochRequest(
        tuple(
            EpochTopic(topic, tuple(partition(TopicPartition(topic, p)) for p in partitions))
            for topic, partitions in by_topic(epochs.keys()).items()
        )
    )


class ListOffsets(LeaderCall[dict[TopicPartition, OffsetResult]]):
    """List offsets by time; EARLIEST and LATEST are times too."""

    api = Api.LIST_OFFSETS

    def __init__(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool, deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("listing offsets", times.keys(), deadline_ms, timeout_ms)
        self._times = dict(times)
        self._read_committed = read_committed
        self._found: dict[TopicPartition, OffsetResult] = {}

    def request(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> ListOffsetsRequest:
        """Send the known leader epoch, so that a stale leader refuses the request (KIP-320)."""
        times = {tp: self._times[tp] for tp in keys}
        return _offsets_at(times, view, min(timeout_ms, INT32_MAX), read_committed=self._read_committed)

    def accept(self, keys: Collection[TopicPartition], response: ListOffsetsResponse) -> Failures:
        """Set the result of each partition."""
        failures: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                error = check(entry.error_code, f"listing offsets of {tp}", needs="Describe")
                if error is not None:
                    failures[tp] = error
                else:
                    self._found[tp] = OffsetResult(entry.offset, entry.timestamp, entry.leader_epoch)
        return failures | left_out(keys, self._found, failures)

    def result(self) -> dict[TopicPartition, OffsetResult]:
        """Return the results by partition."""
        return self._found


class LeadersCall(KeyedCall[TopicPartition, V], LeaderCall[Outcomes[TopicPartition, V]]):
    """A call over partitions, each answered by its leader, that fail one by one."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[TopicPartition]]:
        """Route by leader, and keep the reason for each partition without one."""
        routes = super().route(view)
        for tp in self.pending:
            why = view.metadata.why_unknown(tp) if view.metadata.leader(tp) is None else None
            if why is None and view.metadata.leaderless(tp):
                why = broker_error(LEADER_NOT_AVAILABLE, str(tp))
            if why is not None:
                self.set_waiting(tp, why)
        return routes


class ListEachOffset(LeadersCall[OffsetResult]):
    """List offsets as :class:`ListOffsets` does; a partition that is refused fails alone."""

    api = Api.LIST_OFFSETS
    needs = "Describe"

    def __init__(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool, deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("listing offsets", times.keys(), deadline_ms, timeout_ms)
        self.times = dict(times)
        self._read_committed = read_committed

    def shares_with(self) -> Hashable:
        """Share with calls of the same isolation level."""
        return ListEachOffset, self._read_committed

    def shared_request(self, attempts: Sequence[CallAttempt], view: ClusterView, timeout_ms: int) -> ListOffsetsRequest:
        """Request all partitions."""
        times = {tp: attempt.call.times[tp] for attempt in attempts for tp in attempt.keys}
        return _offsets_at(times, view, min(timeout_ms, INT32_MAX), read_committed=self._read_committed)

    def describe(self, key: TopicPartition) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"listing offsets of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> ListOffsetsRequest:
        """Send the known leader epoch (KIP-320)."""
        times = {tp: self.times[tp] for tp in keys}
        return _offsets_at(times, view, timeout_ms, read_committed=self._read_committed)

    def accept(self, keys: Collection[TopicPartition], response: ListOffsetsResponse) -> Failures:
        """Set the result of each partition."""
        for topic in response.topics:
            for entry in topic.partitions:
                found = OffsetResult(entry.offset, entry.timestamp, entry.leader_epoch)
                tp = TopicPartition(topic.name, entry.partition_index)
                self.set_result(tp, entry.error_code, found)
        return self.unresolved(keys)


class EpochEndOffsets(LeadersCall[EpochEndOffset | None]):
    """Get the end offset of a leader epoch of each partition: the first offset of a later epoch at its leader.

    None if the leader does not offer that API, as other implementations of the protocol.
    """

    api = Api.OFFSET_FOR_LEADER_EPOCH
    needs = "Describe"

    def __init__(self, epochs: Mapping[TopicPartition, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("looking up leader epochs", epochs.keys(), deadline_ms, timeout_ms)
        self.epochs = dict(epochs)

    def shares_with(self) -> Hashable:
        """Share with all calls of this kind."""
        return EpochEndOffsets

    def shared_request(
        self, attempts: Sequence[CallAttempt], view: ClusterView, timeout_ms: int
    ) -> OffsetForLeaderEpochRequest:
        """Request all partitions."""
        del timeout_ms
        return _epochs_at({tp: attempt.call.epochs[tp] for attempt in attempts for tp in attempt.keys}, view)

    def describe(self, key: TopicPartition) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"looking up leader epoch {self.epochs[key]} of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> OffsetForLeaderEpochRequest:
        """Send the known leader epoch, so that a stale leader refuses the request (KIP-320)."""
        del timeout_ms
        return _epochs_at({tp: self.epochs[tp] for tp in keys}, view)

    def accept_absent_api(self, keys: Collection[TopicPartition], error: UnsupportedVersion) -> bool:
        """Return None for ``keys``: unlike an epoch that a log does not know, that says nothing about the log."""
        del error
        for tp in keys:
            self.set_result(tp, 0, None)
        return True

    def accept(self, keys: Collection[TopicPartition], response: OffsetForLeaderEpochResponse) -> Failures:
        """Set the result of each partition."""
        for topic in response.topics:
            for entry in topic.partitions:
                found = EpochEndOffset(entry.leader_epoch, entry.end_offset)
                self.set_result(TopicPartition(topic.topic, entry.partition), entry.error_code, found)
        return self.unresolved(keys)


class DeleteRecords(LeadersCall[int]):
    """Delete records, by partition -> offset before which they are deleted; -1: all that are replicated (KIP-107).

    The result of a partition is the new start of its log.
    """

    api = Api.DELETE_RECORDS
    needs = "Delete"
    changes = True

    def __init__(self, before: Mapping[TopicPartition, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("deleting records", before.keys(), deadline_ms, timeout_ms)
        self._before = dict(before)

    def describe(self, key: TopicPartition) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"deleting records of {key} before offset {self._before[key]}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> DeleteRecordsRequest:
        """Request the partitions of one leader."""
        del view
        topics = tuple(
            DeleteRecordsTopic(
                topic, tuple(DeleteRecordsPartition(p, self._before[TopicPartition(topic, p)]) for p in partitions)
            )
            for topic, partitions in by_topic(keys).items()
        )
        return DeleteRecordsRequest(topics, timeout_ms)

    def accept(self, keys: Collection[TopicPartition], response: DeleteRecordsResponse) -> Failures:
        """Set the result of each partition."""
        for topic in response.topics:
            for entry in topic.partitions:
                tp, start = TopicPartition(topic.name, entry.partition_index), entry.low_watermark
                self.set_result(tp, entry.error_code, start)
        return self.unresolved(keys)
