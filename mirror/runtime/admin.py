"""Public thread-safe API for topics, configurations, groups, logs and permissions."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from mirror.cluster.acls import AclBinding, AclFilter, AclOperation
from mirror.cluster.admin.acls import AclsOfBrokers, CreateAcls, DeleteAcls, DescribeAcls
from mirror.cluster.admin.cluster import (
    ClientQuotas,
    ClusterOperations,
    ControllerTime,
    DescribeCluster,
    DescribeLogDirs,
    DescribeVersions,
    OperationsByMetadata,
)
from mirror.cluster.admin.configs import DescribeConfigs, IncrementalAlterConfigs
from mirror.cluster.admin.groups import GroupOperations
from mirror.cluster.admin.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DeleteTopicsById,
    DescribeEachTopic,
    DescribeTopics,
    ListChangedTopics,
    TopicIds,
    TopicsOfBrokers,
)
from mirror.cluster.admin.transactions import (
    DescribeProducers,
    DescribeTransactions,
    ListTransactions,
    TransactionalIdOperations,
)
from mirror.cluster.calls.offset_calls import DeleteRecords, EpochEndOffsets, ListEachOffset
from mirror.cluster.types import (
    ClientQuota,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    EpochEndOffset,
    LogDir,
    NewTopic,
    OffsetResult,
    Outcomes,
    ProducerState,
    TopicDescription,
    TopicListing,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from mirror.errors import KafkaError, UnsupportedVersion
from mirror.runtime import arguments
from mirror.runtime.admin_groups import GroupCalls
from mirror.wire.versions import BrokerVersions

_ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_EVERY_ACL: Final = AclFilter()


class Admin(GroupCalls):
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
    raised: invalid arguments, failed authentication.

    For the committed offsets of one group (``group_offsets``, ``commit_group_offsets``) there are no partial results;
    ``commit_group_offsets_async`` has some, and ``commit_offset_async`` commits each partition on its own.

    Methods whose names end in ``_async`` do not wait, so they may be called in callbacks of futures. All errors,
    including InvalidArgument, are set on their future. It cannot be cancelled, and its callbacks run on the network
    thread.

    If a deletion is retried because the first attempt got no response, an error that the resource does not exist
    counts as success.
    """

    # --- the cluster and its brokers

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, controller and brokers."""
        return self._call(DescribeCluster(*self._timer(timeout_ms)))

    def controller_time(self, *, timeout_ms: int | None = None) -> int:
        """Return the time of the active controller's clock, in ms since 1970: the only clock that can be read."""
        return self._call(ControllerTime(*self._timer(timeout_ms)))

    def client_quotas(self, *, timeout_ms: int | None = None) -> tuple[ClientQuota, ...]:
        """Return the quotas of all users and client ids."""
        return self._call(ClientQuotas(*self._timer(timeout_ms)))

    def describe_versions(
        self, brokers: Iterable[int], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[int, BrokerVersions]:
        """Return which versions of which APIs each broker speaks, and the finalized features that it knows."""
        return self._each(DescribeVersions(arguments.brokers(brokers), *self._timer(timeout_ms)), partial=partial)

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[int, dict[str, LogDir]]:
        """Return the log directories of ``brokers`` by path, with the size of each log. None means all live brokers."""
        wanted = None if brokers is None else arguments.brokers(brokers)
        timer = self._timer(timeout_ms)
        return self._each(DescribeLogDirs(self._living(timer) if wanted is None else wanted, *timer), partial=partial)

    # --- topics

    def list_topics(self, *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """Return all topics that the client may describe, by name, including internal topics."""
        return self._call(DescribeTopics(None, *self._timer(timeout_ms)))

    def list_changed_topics(self, known: Collection[bytes], *, timeout_ms: int | None = None) -> TopicListing:
        """Return what :meth:`list_topics` does, unless the response is one of the ``known`` digests of earlier ones.

        A listing that is repeated costs little, however many topics there are: a known response is not decoded.
        """
        return self._call(ListChangedTopics(frozenset(known), *self._timer(timeout_ms)))

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

    def describe_topics_by_broker(
        self, names: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[int, dict[str, TopicDescription | KafkaError]]:
        """Return for each live broker what it knows about these topics; it leaves out those that it does not know.

        Brokers apply metadata changes at different times. A topic that the client may not describe has an error.
        """
        wanted, timer = arguments.topics(names), self._timer(timeout_ms)
        return self._each(TopicsOfBrokers(wanted, self._living(timer), *timer), partial=partial)

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

    def delete_topics_by_id(
        self, ids: Iterable[uuid.UUID], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[uuid.UUID, None]:
        """Delete topics with all their records. The error of a missing topic is BrokerError with code 100.

        A topic that was created again under the same name has another id, and stays.
        """
        return self._each(DeleteTopicsById(arguments.topic_ids(ids), *self._timer(timeout_ms)), partial=partial)

    # --- configurations

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Collection[str] | None = None,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configurations of each topic or broker, including defaults. The value of a secret is None.

        ``keys`` are those to return, without those that a broker does not have; None: all that it has.
        """
        wanted = None if keys is None else arguments.texts("configuration key", keys)
        call = DescribeConfigs(arguments.config_resources(resources), *self._timer(timeout_ms), wanted)
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
    ) -> Future[Outcomes[TopicPartition, EpochEndOffset | None]]:
        """Return where the given leader epoch of each partition ends (KIP-320), without waiting.

        None where the leader does not offer OffsetForLeaderEpoch.
        """
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

    # --- permissions

    def describe_acls(self, wanted: AclFilter = _EVERY_ACL, *, timeout_ms: int | None = None) -> tuple[AclBinding, ...]:
        """Return the ACLs that match the filter ``wanted``."""
        return self._call(DescribeAcls(arguments.acl_filter(wanted), *self._timer(timeout_ms)))

    def describe_acls_by_broker(
        self, wanted: AclFilter, *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[int, tuple[AclBinding, ...]]:
        """Return the ACLs that match the filter ``wanted`` as each live broker applies them.

        Brokers learn of changes at different times.
        """
        timer = self._timer(timeout_ms)
        return self._each(AclsOfBrokers(wanted, self._living(timer), *timer), partial=partial)

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

    def cluster_operations(self, *, timeout_ms: int | None = None) -> frozenset[AclOperation] | None:
        """Return the operations on the cluster itself that this client may perform; empty without Describe.

        None if the brokers do not return them, as before Apache Kafka 2.3.
        """
        timer = self._timer(timeout_ms)
        try:
            return self._call(ClusterOperations(*timer))
        except UnsupportedVersion:
            return self._call(OperationsByMetadata(*timer))

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
