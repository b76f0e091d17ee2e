"""Public thread-safe API for topics, configurations, groups, logs and permissions."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from mirror.cluster.acls import AclBinding, AclFilter, AclOperation
from mirror.cluster.admin.acls import CreateAcls, DeleteAcls, DescribeAcls
from mirror.cluster.admin.cluster import DescribeCluster, DescribeLogDirs
from mirror.cluster.admin.configs import DescribeConfigs, DescribeTopicConfigs, IncrementalAlterConfigs
from mirror.cluster.admin.groups import (
    DeleteGroups,
    DescribeConsumerGroups,
    DescribeGroups,
    GroupOperations,
    ListGroups,
)
from mirror.cluster.admin.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeEachTopic,
    DescribeTopics,
    TopicIds,
)
from mirror.cluster.admin.transactions import (
    DescribeProducers,
    DescribeTransactions,
    ListTransactions,
    TransactionalIdOperations,
)
from mirror.cluster.calls import Call
from mirror.cluster.events import CompletableEvent
from mirror.cluster.keyed_call import KeyedCall
from mirror.cluster.offset_calls import (
    CommitGroupOffsets,
    DeleteGroupOffsets,
    DeleteRecords,
    EpochEndOffsets,
    GroupOffsets,
    ListEachOffset,
)
from mirror.cluster.offset_commits import CommitOffset
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    EpochEndOffset,
    GroupDescription,
    GroupListing,
    K,
    LogDir,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    Outcomes,
    ProducerState,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    V,
)
from mirror.errors import ClientClosed, KafkaError, UnsupportedVersion
from mirror.meters import NetworkSnapshot
from mirror.runtime import arguments
from mirror.runtime.admin_results import as_asked, merged, not_found, pass_on
from mirror.runtime.pending_requests import PendingRequests
from mirror.runtime.thread import acquire, release

T = TypeVar("T")

_ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_EVERY_ACL: Final = AclFilter()


class Admin:
    """Administers a cluster. The methods may be called from several threads.

    Every method takes ``timeout_ms``; the default is ``default.api.timeout.ms``. It raises KafkaTimeout when that time
    has passed, AuthorizationFailed or another BrokerError if a broker refuses, UnsupportedVersion if the broker is too
    old, and InvalidArgument, before any request, if an argument cannot be sent. Partitions may be plain
    ``(topic, number)`` tuples.

    **Several resources.** A method that takes several topics, partitions, brokers, groups, resources or ACLs handles
    each independently: the failure of one does not stop the others. It returns :class:`Outcomes`, a dict of the
    results in the order given. If any failed, the method raises *after* all have finished. It raises the first failure
    (a refusal before a timeout), whose text names the others; the operations that succeeded stay done. With
    ``partial=True`` it does not raise, and ``Outcomes.failed`` has the errors. Failures of the whole call are always
    raised: invalid arguments, failed authentication, brokers that are too old.

    For the committed offsets of one group (``group_offsets``, ``commit_group_offsets``) there are no partial results;
    ``commit_offset_async`` commits each partition on its own.

    Methods whose names end in ``_async`` do not wait, so they may be called in callbacks of futures. All errors,
    including InvalidArgument, are set on their future. It cannot be cancelled, and its callbacks run on the network
    thread.

    If a deletion is retried because the first attempt got no response, an error that the resource does not exist
    counts as success.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` has Kafka's dotted configuration keys. Raises ConfigError."""
        self._thread = acquire(ClusterSettings.parse(options))
        self._asked = PendingRequests("Admin")
        self._closed = False

    def network(self) -> NetworkSnapshot:
        """Return the statistics of the cluster's network thread, which all clients of this process share."""
        return self._thread.look()

    def known_leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return the leader's node id and leader epoch of ``tp`` from the last metadata, or None. Sends no request."""
        leader = self._thread.loop.metadata.leader(tp)
        return None if leader is None else (leader.node, leader.epoch)

    def why_no_leader(self, tp: TopicPartition) -> KafkaError | None:
        """Return the error because of which the last metadata has no leader of ``tp``, or None. Sends no request."""
        metadata = self._thread.loop.metadata
        return metadata.why_unknown(tp) if metadata.leader(tp) is None else None

    def _timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self._thread.timer(arguments.timeout(timeout_ms))

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Admin is closed"
            raise ClientClosed(msg)

    def _call(self, call: Call[T, Any]) -> T:
        with self._asked.waiting(call):
            self._check_open()
            return self._thread.call(None, call)

    def _later(self, make: Callable[[], CompletableEvent[T]]) -> Future[T]:
        """Submit a call and return its future. Errors before it is submitted are set on the future, too."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # a cancelled future would not stop the call
        try:
            self._check_open()
            call = make()
        except KafkaError as error:
            future.set_exception(error)
            return future
        call.future.add_done_callback(functools.partial(pass_on, future))
        self._asked.add(call)
        try:
            self._check_open()
            self._thread.submit(None, call)
        except KafkaError as error:
            call.fail(error)
        return future

    def _each(self, call: KeyedCall[K, V], *, partial: bool) -> Outcomes[K, V]:
        return as_asked(self._call(call), partial=partial)

    # --- the cluster and its brokers

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, controller and brokers."""
        return self._call(DescribeCluster(*self._timer(timeout_ms)))

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[int, dict[str, LogDir]]:
        """Return the log directories of ``brokers`` by path, with the size of each log. None means all live brokers."""
        wanted = None if brokers is None else arguments.brokers(brokers)
        timer = self._timer(timeout_ms)
        return self._each(DescribeLogDirs(self._living(timer) if wanted is None else wanted, *timer), partial=partial)

    def _living(self, timer: tuple[int, int]) -> tuple[int, ...]:
        return tuple(broker.node_id for broker in self._call(DescribeCluster(*timer)).brokers)

    # --- topics

    def list_topics(self, *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """Return all topics that the client may describe, by name, including internal topics."""
        return self._call(DescribeTopics(None, *self._timer(timeout_ms)))

    def describe_topics(
        self,
        names: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, TopicDescription]:
        """Return the topics of these names. Topics that do not exist are absent from the result.

        With ``include_authorized_operations`` each topic has the operations that this client may perform (KIP-430).
        """
        wanted, timer = arguments.topics(names), self._timer(timeout_ms)
        return self._each(DescribeEachTopic(wanted, *timer, operations=include_authorized_operations), partial=partial)

    def describe_topics_async(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> Future[Outcomes[str, TopicDescription]]:
        """Like :meth:`describe_topics` with ``partial=True``, without waiting."""
        return self._later(lambda: DescribeEachTopic(arguments.topics(names), *self._timer(timeout_ms)))

    def topic_ids(
        self, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, uuid.UUID | None]:
        """Return the topic id of each partition from the partition's leader; absent if the leader has no such topic.

        Brokers apply metadata changes at different times: while a topic is re-created, they may return different ids
        for its name. The id is None if the brokers do not support topic ids.
        """
        return self._each(TopicIds(arguments.partitions(tps), *self._timer(timeout_ms)), partial=partial)

    def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, uuid.UUID | None]:
        """Create topics. The error of a topic that exists already is BrokerError with code 36.

        Returns the id of each topic, or None if the broker does not return ids. With ``validate_only`` the brokers
        check the request, including their policy, and create nothing.
        """
        call = CreateTopics(arguments.new_topics(topics), *self._timer(timeout_ms), validate_only=validate_only)
        return self._each(call, partial=partial)

    def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Add partitions to topics. ``totals`` maps topic to new total. ``validate_only`` only checks the request."""
        call = CreatePartitions(
            arguments.partition_totals(totals), *self._timer(timeout_ms), validate_only=validate_only
        )
        return self._each(call, partial=partial)

    def delete_topics(
        self, names: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Delete topics with all their records. The error of a missing topic is BrokerError with code 3."""
        return self._each(DeleteTopics(arguments.topics(names), *self._timer(timeout_ms)), partial=partial)

    # --- configurations

    def describe_topic_configs(
        self, names: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, dict[str, str]]:
        """Return the configurations set on each topic itself, as key -> value."""
        return self._each(DescribeTopicConfigs(arguments.topics(names), *self._timer(timeout_ms)), partial=partial)

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Return all configurations of each topic or broker, including defaults. The value of a secret is None."""
        call = DescribeConfigs(arguments.config_resources(resources), *self._timer(timeout_ms))
        return self._each(call, partial=partial)

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change the given configurations and no others (KIP-339). The changes of one resource are atomic.

        With ``validate_only`` the brokers only check the changes. Error texts contain no values: they may be secrets.
        """
        wanted = arguments.config_changes(changes)
        deadline_ms, timeout = self._timer(timeout_ms)
        call = IncrementalAlterConfigs(wanted, validate_only=validate_only, deadline_ms=deadline_ms, timeout_ms=timeout)
        return self._each(call, partial=partial)

    # --- logs

    def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_committed",
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, OffsetResult]:
        """Return the offset at EARLIEST (-2), LATEST (-1; the last stable offset at read_committed) or a time in ms."""
        return self._each(self._offsets_at(times, isolation, timeout_ms), partial=partial)

    def list_offsets_async(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_committed",
        timeout_ms: int | None = None,
    ) -> Future[Outcomes[TopicPartition, OffsetResult]]:
        """Like :meth:`list_offsets` with ``partial=True``, without waiting."""
        return self._later(lambda: self._offsets_at(times, isolation, timeout_ms))

    def _offsets_at(
        self, times: Mapping[TopicPartition, int], isolation: str, timeout_ms: int | None
    ) -> ListEachOffset:
        committed = arguments.choice("isolation", isolation, _ISOLATIONS) == "read_committed"
        wanted = arguments.times_or_ends(times)
        deadline_ms, timeout = self._timer(timeout_ms)
        return ListEachOffset(wanted, read_committed=committed, deadline_ms=deadline_ms, timeout_ms=timeout)

    def epoch_ends_async(
        self, epochs: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> Future[Outcomes[TopicPartition, EpochEndOffset]]:
        """Return where the given leader epoch of each partition ends (KIP-320), without waiting."""
        return self._later(lambda: EpochEndOffsets(arguments.leader_epochs(epochs), *self._timer(timeout_ms)))

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Delete the records before an offset of each partition (KIP-107); -1 is the high watermark.

        Returns the new start offset of each log. The error is OffsetOutOfRange if the log ends before the offset.
        """
        return self._each(DeleteRecords(arguments.offsets_before(before), *self._timer(timeout_ms)), partial=partial)

    # --- transactions

    def describe_producers(
        self, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        """Return the active producers of each partition, and the start of their open transactions there (KIP-664)."""
        return self._each(DescribeProducers(arguments.partitions(tps), *self._timer(timeout_ms)), partial=partial)

    def list_transactions(
        self, producer_ids: Iterable[int], *, partial: bool = False, timeout_ms: int | None = None
    ) -> tuple[TransactionListing, ...]:
        """Return the transactional ids of these producer ids, if the client may describe them.

        Raises if a broker does not respond, unless ``partial`` is set.
        """
        timer = self._timer(timeout_ms)
        found = self._each(ListTransactions(self._living(timer), frozenset(producer_ids), *timer), partial=partial)
        return tuple(one for listed in found.values() for one in listed)

    def describe_transactions(
        self, ids: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """Return the state of each transactional id. The error of a missing id is BrokerError with code 105."""
        names = arguments.texts("a transactional id", ids)
        return self._each(DescribeTransactions(names, *self._timer(timeout_ms)), partial=partial)

    # --- groups

    def list_groups(
        self, *, states: Iterable[str] = (), kinds: Iterable[str] = (), timeout_ms: int | None = None
    ) -> dict[str, GroupListing]:
        """Return all groups that the client may describe, by id.

        ``states`` ("Stable", "Empty", ...) and ``kinds`` ("classic", "consumer", ...) filter the groups if given.
        Raises if a broker does not respond, because the list would be incomplete.
        """
        wanted = arguments.texts("a group state", states), arguments.texts("a kind of group", kinds)
        timer = deadline_ms, timeout = self._timer(timeout_ms)
        call = ListGroups(
            self._living(timer), states=wanted[0], kinds=wanted[1], deadline_ms=deadline_ms, timeout_ms=timeout
        )
        return {one.group: one for groups in self._each(call, partial=False).values() for one in groups}

    def describe_groups(
        self, groups: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, GroupDescription]:
        """Return groups of the classic and of the consumer protocol (KIP-848) with their members.

        The error of a missing group, and of a group of another protocol, is BrokerError with code 69.
        """
        names, timer = arguments.texts("a group id", groups), self._timer(timeout_ms)
        found = self._call(DescribeGroups(names, *timer))
        others = [group for group, error in found.failed.items() if not_found(error)]
        if others:
            found = merged(names, found, self._of_the_new_protocol(others, timer))
        return as_asked(found, partial=partial)

    def _of_the_new_protocol(self, groups: list[str], timer: tuple[int, int]) -> Outcomes[str, GroupDescription]:
        try:
            return self._call(DescribeConsumerGroups(groups, *timer))
        except UnsupportedVersion:
            return Outcomes({}, {})  # brokers without this API have no groups of the consumer protocol

    def delete_groups(
        self, groups: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Delete groups with their offsets. The error of a group that has members is BrokerError with code 68."""
        names = arguments.texts("a group id", groups)
        return self._each(DeleteGroups(names, *self._timer(timeout_ms)), partial=partial)

    def group_offsets(
        self,
        group: str,
        tps: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of ``group`` for ``tps``; None means all its partitions.

        Partitions without a committed offset are absent. With ``require_stable`` the call waits for pending
        transactions on these partitions, but not on other partitions of the group (KIP-447). Without it, the call
        returns the offsets committed before those transactions.
        """
        return self._call(self._committed(group, tps, timeout_ms, require_stable=require_stable))

    def group_offsets_async(
        self,
        group: str,
        tps: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        require_stable: bool = True,
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        """Like :meth:`group_offsets`, without waiting."""
        return self._later(lambda: self._committed(group, tps, timeout_ms, require_stable=require_stable))

    def _committed(
        self, group: str, tps: Iterable[TopicPartition] | None, timeout_ms: int | None, *, require_stable: bool = True
    ) -> GroupOffsets:
        name = arguments.text("a group id", group)
        wanted = None if tps is None else arguments.partitions(tps)
        return GroupOffsets(name, wanted, *self._timer(timeout_ms), require_stable=require_stable)

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int | None = None
    ) -> None:
        """Commit offsets for a group without members."""
        self._call(self._to_commit(group, offsets, timeout_ms))

    def commit_group_offsets_async(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> Future[None]:
        """Like :meth:`commit_group_offsets`, without waiting."""
        return self._later(lambda: self._to_commit(group, offsets, timeout_ms))

    def commit_offset_async(
        self, group: str, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int | None = None
    ) -> Future[None]:
        """Commit the offset of one partition, for a group without members, without waiting.

        Commits of a group share requests, of which one is in flight at a time, and each succeeds or fails on its own.
        If a later commit of the same partition comes before this one is sent, that is sent, and both have its outcome.
        """

        def commit() -> CommitOffset:
            name = arguments.text("a group id", group)
            ((wanted, position),) = arguments.offsets({tp: offset}).items()
            return CommitOffset(name, wanted, position, *self._timer(timeout_ms))

        return self._later(commit)

    def _to_commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None
    ) -> CommitGroupOffsets:
        name = arguments.text("a group id", group)
        return CommitGroupOffsets(name, arguments.offsets(offsets), *self._timer(timeout_ms))

    def delete_group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Delete the offsets of ``group`` for ``tps`` (KIP-496). The error of a subscribed topic is code 86."""
        name = arguments.text("a group id", group)
        call = DeleteGroupOffsets(name, arguments.partitions(tps), *self._timer(timeout_ms))
        return self._each(call, partial=partial)

    # --- permissions

    def describe_acls(self, wanted: AclFilter = _EVERY_ACL, *, timeout_ms: int | None = None) -> tuple[AclBinding, ...]:
        """Return the ACLs that match the filter ``wanted``."""
        return self._call(DescribeAcls(arguments.acl_filter(wanted), *self._timer(timeout_ms)))

    def create_acls(
        self, bindings: Iterable[AclBinding], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclBinding, None]:
        """Create ACLs. ACLs that exist already stay unchanged."""
        return self._each(CreateAcls(arguments.acl_bindings(bindings), *self._timer(timeout_ms)), partial=partial)

    def delete_acls(
        self, filters: Iterable[AclFilter], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclFilter, tuple[AclBinding, ...]]:
        """Delete the ACLs that match any filter. Returns the deleted ACLs by filter."""
        return self._each(DeleteAcls(arguments.acl_filters(filters), *self._timer(timeout_ms)), partial=partial)

    def group_operations(
        self, groups: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, frozenset[AclOperation]]:
        """Return the operations that this client may perform on each group, also if it does not exist (KIP-430).

        A group is absent if the brokers do not return its operations. The error is AuthorizationFailed if the client
        does not have Describe.
        """
        names = arguments.texts("a group id", groups)
        return self._each(GroupOperations(names, *self._timer(timeout_ms)), partial=partial)

    def transactional_id_operations(
        self, ids: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, frozenset[AclOperation]]:
        """Like :meth:`group_operations`. Brokers only show whether Describe is granted, which Write implies."""
        names = arguments.texts("a transactional id", ids)
        return self._each(TransactionalIdOperations(names, *self._timer(timeout_ms)), partial=partial)

    def close(self) -> None:
        """Release the network thread. Pending calls in other threads raise ClientClosed. It may be called again."""
        if not self._closed:
            self._closed = True
            self._asked.end(self._thread)
            release(self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
