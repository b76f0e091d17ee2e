"""Calls about the committed offsets of groups. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from mirror.cluster.calls.keyed_call import GroupsCall, KeyedCall, coordinator
from mirror.cluster.calls.offset_calls import by_topic
from mirror.cluster.calls.routed_calls import CallAttempt, ClusterView, Failures, GroupCall, check
from mirror.cluster.coordinators import KeyType
from mirror.cluster.requests import Lane
from mirror.cluster.types import OffsetAndMetadata, Outcomes, TopicPartition
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.error_codes import GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, broker_error
from mirror.wire.messages.groups import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetCommitTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetDeleteTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchTopic,
)


class GroupOffsets(GroupCall[dict[TopicPartition, OffsetAndMetadata]]):
    """Fetch the committed offsets of a group; ``require_stable`` waits for pending transactions (KIP-447)."""

    api = Api.OFFSET_FETCH
    unique_keys = False

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
        self.tps = None if tps is None else frozenset(tps)
        self._found: dict[TopicPartition, OffsetAndMetadata] = {}

    def shares_with(self) -> Hashable:
        """Share with calls that read named partitions, also of other groups (KIP-709), equally stable."""
        return None if self.tps is None else (GroupOffsets, self._require_stable)

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetFetchRequest:
        """Request all partitions at once; None requests all that the group has."""
        del keys, view, timeout_ms
        return OffsetFetchRequest((_group_to_read(self.group, self.tps),), self._require_stable)

    def shared_request(self, attempts: Sequence[CallAttempt], view: ClusterView, timeout_ms: int) -> OffsetFetchRequest:
        """Request all partitions of all groups."""
        del view, timeout_ms
        wanted: dict[str, set[TopicPartition]] = {}
        for attempt in attempts:
            wanted.setdefault(attempt.call.group, set()).update(attempt.call.tps)
        groups = tuple(_group_to_read(group, tps) for group, tps in wanted.items())
        return OffsetFetchRequest(groups, self._require_stable)

    def accept(self, keys: Collection[str], response: OffsetFetchResponse) -> Failures:
        """Keep the offsets; a partition with a pending transaction makes the whole call wait."""
        del keys
        for group in response.groups:
            if group.group_id != self.group:
                continue
            error = check(_code_of(group), self.what, needs="Describe")
            for topic in group.topics:
                for entry in topic.partitions:
                    tp = TopicPartition(topic.name, entry.partition_index)
                    if self.tps is not None and tp not in self.tps:
                        continue
                    error = error or check(entry.error_code, f"{self.what}, {tp}", needs="Describe")
                    if entry.committed_offset >= 0:
                        self._found[tp] = _committed(entry)
            if error is not None:
                self._found.clear()
                return {self.group: error}
        return {}

    def result(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets by partition, without those that have none."""
        return self._found


class OffsetsOfGroups(GroupsCall[Outcomes[TopicPartition, OffsetAndMetadata]]):
    """Fetch committed offsets of groups, those of one coordinator with one request (KIP-709).

    Each partition has a result or an error of its own. Of a group whose partitions are not named, topics that this
    client may not describe are left out by the broker, and so are partitions whose first offset is in a transaction.
    """

    api = Api.OFFSET_FETCH
    needs = "Describe"

    def __init__(
        self,
        groups: Mapping[str, Collection[TopicPartition] | None],
        deadline_ms: int,
        timeout_ms: int,
        *,
        require_stable: bool = False,
    ) -> None:
        """With None, all of a group's partitions are fetched.

        With ``require_stable``, a pending transaction is the error of its partitions; without, their offsets before it
        are returned.
        """
        super().__init__("reading offsets of groups", groups, deadline_ms, timeout_ms)
        self._groups = dict(groups)
        self._require_stable = require_stable

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"reading offsets of group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetFetchRequest:
        """Request what groups of one coordinator have committed."""
        del view, timeout_ms
        return OffsetFetchRequest(
            tuple(_group_to_read(group, self._groups[group]) for group in keys), self._require_stable
        )

    def accept(self, keys: Collection[str], response: OffsetFetchResponse) -> Failures:
        """Set the result of each group."""
        for group in response.groups:
            self.set_result(group.group_id, _code_of(group), self._offsets(group))
        return self.unresolved(keys)

    def _offsets(self, group: OffsetFetchResponseGroup) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for topic in group.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                if entry.error_code:
                    what = f"{self.describe(group.group_id)}, {tp}"
                    failed[tp] = broker_error(entry.error_code, what, needs=self.needs)
                elif entry.committed_offset >= 0:
                    found[tp] = _committed(entry)
        return Outcomes(found, failed)


def _code_of(group: OffsetFetchResponseGroup) -> int:
    """Return the error of a group. One that does not exist has no offsets: not only Apache Kafka's brokers say so."""
    return 0 if group.error_code == GROUP_ID_NOT_FOUND else group.error_code


def _committed(entry: OffsetFetchResponsePartition) -> OffsetAndMetadata:
    epoch = entry.committed_leader_epoch if entry.committed_leader_epoch >= 0 else None
    return OffsetAndMetadata(entry.committed_offset, epoch, entry.metadata or "")


def _group_to_read(group: str, tps: Collection[TopicPartition] | None) -> OffsetFetchGroup:
    if tps is None:
        return OffsetFetchGroup(group, None)
    return OffsetFetchGroup(
        group, tuple(OffsetFetchTopic(topic, tuple(parts)) for topic, parts in by_topic(tps).items())
    )


def offset_commit_request(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    """Return the request that commits ``offsets`` for a group without members."""
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for (topic, number), (offset, epoch, metadata, _) in offsets.items():
        one = OffsetCommitPartition(number, offset, -1 if epoch is None else epoch, metadata)
        topics.setdefault(topic, []).append(one)
    return OffsetCommitRequest(group, tuple(OffsetCommitTopic(topic, tuple(of)) for topic, of in topics.items()))


class CommitGroupOffsets(GroupCall[None]):
    """Commit offsets for a group without members."""

    api = Api.OFFSET_COMMIT

    def __init__(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"committing offsets of group {group!r}", group, deadline_ms, timeout_ms)
        self._offsets = dict(offsets)

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetCommitRequest:
        """Request all partitions at once."""
        del keys, view, timeout_ms
        return offset_commit_request(self.group, self._offsets)

    def accept(self, keys: Collection[str], response: OffsetCommitResponse) -> Failures:
        """Fail as a whole: committing the same offsets again is harmless."""
        del keys
        for topic in response.topics:
            for entry in topic.partitions:
                operation = f"{self.what}, {topic.name}-{entry.partition_index}"
                error = check(entry.error_code, operation, needs="Read")
                if error is not None:
                    return {self.group: error}
        return {}

    def result(self) -> None:
        """Return nothing."""


class _EachOffset(KeyedCall[TopicPartition, None]):
    """A call about single offsets of one group, each with an outcome of its own."""

    lane = Lane.COORDINATOR

    def __init__(
        self, what: str, group: str, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"{what} offsets of group {group!r}", tps, deadline_ms, timeout_ms)
        self.group = group

    def describe(self, key: TopicPartition) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"{self.what}, {key}"

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[TopicPartition]]:
        """Route everything to the coordinator of the group, as soon as it is known."""
        node = coordinator(self.group, view)
        if node is None:
            why = view.coordinators.why_unknown(KeyType.GROUP, self.group)
            self.last_error = why or view.metadata.last_error or self.last_error
            return {}
        return {node: set(self.pending)}

    def reroute(self, keys: Collection[TopicPartition], view: ClusterView) -> None:
        """Look up the coordinator again."""
        del keys
        view.coordinators.forget(KeyType.GROUP, self.group)

    def set_results(self, topics: Iterable[OffsetCommitResponseTopic | OffsetDeleteResponseTopic]) -> None:
        """Set the outcome of each partition. The topics require the Read permission."""
        for topic in topics:
            for entry in topic.partitions:
                self.set_result(TopicPartition(topic.name, entry.partition_index), entry.error_code, None, needs="Read")


class CommitEachOffset(_EachOffset):
    """Commit offsets for a group without members: a refused one does not stop the others."""

    api = Api.OFFSET_COMMIT
    needs = "Read"
    final_codes = frozenset({UNKNOWN_TOPIC_OR_PARTITION})

    def __init__(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("committing", group, offsets.keys(), deadline_ms, timeout_ms)
        self._offsets = dict(offsets)

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> OffsetCommitRequest:
        """Request those that are not committed yet."""
        del view, timeout_ms
        return offset_commit_request(self.group, {tp: self._offsets[tp] for tp in keys})

    def accept(self, keys: Collection[TopicPartition], response: OffsetCommitResponse) -> Failures:
        """Set the result of each partition."""
        self.set_results(response.topics)
        return self.unresolved(keys)


class CommitOffsetsOfGroups(GroupsCall[Outcomes[TopicPartition, None]]):
    """Commit offsets for groups without members: each group that was answered in time has its outcome.

    Each partition has an outcome of its own, unless one of its group is to be retried: then all of these are.
    """

    api = Api.OFFSET_COMMIT
    needs = "Read"
    one_key = True

    def __init__(
        self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("committing offsets of groups", offsets, deadline_ms, timeout_ms)
        self._offsets = offsets

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"committing offsets of group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> OffsetCommitRequest:
        """Request what one group is to have committed."""
        del view, timeout_ms
        (group,) = keys
        return offset_commit_request(group, self._offsets[group])

    def accept(self, keys: Collection[str], response: OffsetCommitResponse) -> Failures:
        """Set the result of the group."""
        (group,) = keys
        wanted = self._offsets[group]
        codes = {
            tp: entry.error_code
            for topic in response.topics
            for entry in topic.partitions
            if (tp := TopicPartition(topic.name, entry.partition_index)) in wanted
        }
        failed = {
            tp: broker_error(code, f"{self.describe(group)}, {tp}", needs=self.needs)
            for tp, code in codes.items()
            if code
        }
        again = [error for tp, error in failed.items() if not CommitEachOffset.is_final(codes[tp])]
        if again:
            self.set_waiting(group, again[0])
        elif len(codes) == len(wanted):
            self.set_result(group, 0, Outcomes({tp: None for tp in codes if tp not in failed}, failed))
        return self.unresolved(keys)


class DeleteGroupOffsets(_EachOffset):
    """Delete offsets of a group (KIP-496); those of topics that a member reads are refused (code 86)."""

    api = Api.OFFSET_DELETE
    needs = "Delete"
    changes = True
    final_codes = frozenset({UNKNOWN_TOPIC_OR_PARTITION})
    missing_code = GROUP_ID_NOT_FOUND
    """A group without members is deleted with its last offset."""

    def __init__(self, group: str, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("deleting", group, tps, deadline_ms, timeout_ms)

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> OffsetDeleteRequest:
        """Request those that are not deleted yet."""
        del view, timeout_ms
        topics = tuple(
            OffsetDeleteTopic(topic, tuple(OffsetDeletePartition(p) for p in partitions))
            for topic, partitions in by_topic(keys).items()
        )
        return OffsetDeleteRequest(self.group, topics)

    def accept(self, keys: Collection[TopicPartition], response: OffsetDeleteResponse) -> Failures:
        """Set the result of each partition, unless the group is refused."""
        if response.error_code:
            for tp in keys:
                self.set_result(tp, response.error_code, None)
        self.set_results(response.topics)
        return self.unresolved(keys)
