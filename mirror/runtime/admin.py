"""The face of topics, configurations, groups, logs and permissions."""

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
from mirror.cluster.keyed_call import KeyedCall
from mirror.cluster.offset_calls import (
    CommitGroupOffsets,
    DeleteGroupOffsets,
    DeleteRecords,
    EpochEndOffsets,
    GroupOffsets,
    ListEachOffset,
)
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
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
    """Calls about a cluster. Safe to use from several threads.

    Every method takes ``timeout_ms``, else ``default.api.timeout.ms`` holds, and raises KafkaTimeout when it has
    passed, AuthorizationFailed or another BrokerError where a broker refuses, UnsupportedVersion where it is too old,
    InvalidArgument before anything is asked where an argument cannot be sent. Partitions may be plain
    ``(topic, number)`` tuples.

    **Several at once.** A method that takes several topics, partitions, brokers, groups, resources or ACLs takes each
    to its own end: neither the refusal nor the time-out of one stops the others. It returns :class:`Outcomes`, a dict
    of what succeeded, in the order given. Where something failed it raises, *after* all have come to their end, the
    first failure (a refusal before a time-out), whose text names the others too; the rest has been done all the same.
    With ``partial=True`` it raises nothing for that and ``Outcomes.failed`` has the error of each. What fails the call
    as a whole is raised in any case: wrong arguments, no trust between client and brokers, brokers too old.

    The committed offsets of one group (``group_offsets``, ``commit_group_offsets``) are one thing: all, or an error.

    The calls that end in ``_async`` wait for nothing, also in callbacks of futures: what the others raise, arguments
    that are wrong included, is the error of their future. It cannot be cancelled, and its callbacks run on the network
    thread.

    A deletion repeated because its first attempt got no answer takes "it is not there" for success.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are Kafka's dotted keys. Raises ConfigError."""
        self._thread = acquire(ClusterSettings.parse(options))
        self._asked = PendingRequests("Admin")
        self._closed = False

    def network(self) -> NetworkSnapshot:
        """What the network thread of this cluster, which all clients of this process share, has done so far."""
        return self._thread.look()

    def known_leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        """The node that leads ``tp`` and its leader epoch, as last heard; None where nobody has said. Asks nobody."""
        leader = self._thread.loop.metadata.leader(tp)
        return None if leader is None else (leader.node, leader.epoch)

    def why_no_leader(self, tp: TopicPartition) -> KafkaError | None:
        """Why no leader of ``tp`` is known, as last heard; None where one is, or nothing was heard. Sends nothing."""
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

    def _later(self, make: Callable[[], Call[T, Any]]) -> Future[T]:
        """The future of a call that nobody waits for here. Whatever keeps it from being asked is its error, too."""
        told: Future[T] = Future()
        told.set_running_or_notify_cancel()  # to cancel it would stop nothing
        try:
            self._check_open()
            call = make()
        except KafkaError as error:
            told.set_exception(error)
            return told
        call.future.add_done_callback(functools.partial(pass_on, told))
        self._asked.add(call)
        try:
            self._check_open()
            self._thread.submit(None, call)
        except KafkaError as error:
            call.fail(error)
        return told

    def _each(self, call: KeyedCall[K, V], *, partial: bool) -> Outcomes[K, V]:
        return as_asked(self._call(call), partial=partial)

    # --- the cluster and its brokers

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return self._call(DescribeCluster(*self._timer(timeout_ms)))

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[int, dict[str, LogDir]]:
        """The log directories of ``brokers`` (all that live, where None), by path, with the size of each log."""
        wanted = None if brokers is None else arguments.brokers(brokers)
        timer = self._timer(timeout_ms)
        return self._each(DescribeLogDirs(self._living(timer) if wanted is None else wanted, *timer), partial=partial)

    def _living(self, timer: tuple[int, int]) -> tuple[int, ...]:
        return tuple(broker.node_id for broker in self._call(DescribeCluster(*timer)).brokers)

    # --- topics

    def list_topics(self, *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """All topics that may be seen, by name, internal ones included."""
        return self._call(DescribeTopics(None, *self._timer(timeout_ms)))

    def describe_topics(
        self,
        names: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, TopicDescription]:
        """The topics of these names; those that do not exist are absent.

        With ``include_authorized_operations`` each tells what this client may do with it (KIP-430).
        """
        wanted, timer = arguments.topics(names), self._timer(timeout_ms)
        return self._each(DescribeEachTopic(wanted, *timer, operations=include_authorized_operations), partial=partial)

    def describe_topics_async(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> Future[Outcomes[str, TopicDescription]]:
        """As :meth:`describe_topics` with ``partial=True``, without waiting."""
        return self._later(lambda: DescribeEachTopic(arguments.topics(names), *self._timer(timeout_ms)))

    def topic_ids(
        self, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, uuid.UUID | None]:
        """The id of each partition's topic as that partition's leader knows it; absent where it knows no such topic.

        Brokers learn of topics one after the other: while one is made again, they tell different ids for its name.
        None where brokers have no ids for topics.
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
        """Create them; BrokerError with code 36 where one is there already.

        Each one's result is its id, or None where the broker does not tell. With ``validate_only`` the brokers check
        all of it, their policy included, and create nothing.
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
        """Give topics more partitions, as topic -> new total; with ``validate_only`` they are only checked."""
        call = CreatePartitions(
            arguments.partition_totals(totals), *self._timer(timeout_ms), validate_only=validate_only
        )
        return self._each(call, partial=partial)

    def delete_topics(
        self, names: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Delete them with all their records; BrokerError with code 3 where one is not there."""
        return self._each(DeleteTopics(arguments.topics(names), *self._timer(timeout_ms)), partial=partial)

    # --- configurations

    def describe_topic_configs(
        self, names: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, dict[str, str]]:
        """What was set on each topic itself, as key -> value."""
        return self._each(DescribeTopicConfigs(arguments.topics(names), *self._timer(timeout_ms)), partial=partial)

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Everything that holds for each topic or broker, defaults included. A secret's value is None."""
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
        """Change what is named and nothing else (KIP-339); of one resource all or nothing.

        With ``validate_only`` the brokers only say whether they would. No error repeats a value: it may be a secret.
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
        """Offsets at EARLIEST (-2), LATEST (-1; the last stable offset at read_committed) or a time in ms."""
        return self._each(self._offsets_at(times, isolation, timeout_ms), partial=partial)

    def list_offsets_async(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_committed",
        timeout_ms: int | None = None,
    ) -> Future[Outcomes[TopicPartition, OffsetResult]]:
        """As :meth:`list_offsets` with ``partial=True``, without waiting."""
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
    ) -> Future[Outcomes[TopicPartition, int]]:
        """The first offset of each partition that is of a later leader epoch than the one given (KIP-320).

        That is its log's end where there is none, and -1 where the leader does not know the epoch. Without waiting.
        """
        return self._later(lambda: EpochEndOffsets(arguments.leader_epochs(epochs), *self._timer(timeout_ms)))

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Delete the records before an offset of each partition (-1: all that are replicated), KIP-107.

        Each one's result is the log's new start. OffsetOutOfRange where the log does not reach that far.
        """
        return self._each(DeleteRecords(arguments.offsets_before(before), *self._timer(timeout_ms)), partial=partial)

    # --- transactions

    def describe_producers(
        self, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        """Who writes to each partition, and where their open transactions begin there (KIP-664)."""
        return self._each(DescribeProducers(arguments.partitions(tps), *self._timer(timeout_ms)), partial=partial)

    def list_transactions(
        self, producer_ids: Iterable[int], *, partial: bool = False, timeout_ms: int | None = None
    ) -> tuple[TransactionListing, ...]:
        """The transactional ids of these producer ids; those that may be seen (Describe).

        Raises where a broker does not answer, unless ``partial``.
        """
        timer = self._timer(timeout_ms)
        found = self._each(ListTransactions(self._living(timer), frozenset(producer_ids), *timer), partial=partial)
        return tuple(one for listed in found.values() for one in listed)

    def describe_transactions(
        self, ids: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """How the transactions of transactional ids stand; BrokerError with code 105 where there is no such id."""
        names = arguments.texts("a transactional id", ids)
        return self._each(DescribeTransactions(names, *self._timer(timeout_ms)), partial=partial)

    # --- groups

    def list_groups(
        self, *, states: Iterable[str] = (), kinds: Iterable[str] = (), timeout_ms: int | None = None
    ) -> dict[str, GroupListing]:
        """All groups that may be seen, by id.

        Where given, only those in ``states`` ("Stable", "Empty", ...) and of ``kinds`` ("classic", "consumer", ...).
        Raises where a broker does not answer: the list would have gaps.
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
        """Groups of the classic and of the consumer protocol (KIP-848) with their members.

        BrokerError with code 69 where one is not there, or of a third kind.
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
            return Outcomes({}, {})  # there are none of that protocol, then

    def delete_groups(
        self, groups: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Delete groups without members, with their offsets; BrokerError with code 68 where there are members."""
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
        """What ``group`` has committed for ``tps`` (for all partitions, where None); absent where nothing.

        Waits out pending transactions on them, but not on the group's other partitions (KIP-447); without
        ``require_stable`` on none, and tells what was committed before.
        """
        return self._call(self._committed(group, tps, timeout_ms, require_stable=require_stable))

    def group_offsets_async(
        self, group: str, tps: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        """As :meth:`group_offsets`, without waiting."""
        return self._later(lambda: self._committed(group, tps, timeout_ms))

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
        """As :meth:`commit_group_offsets`, without waiting."""
        return self._later(lambda: self._to_commit(group, offsets, timeout_ms))

    def _to_commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None
    ) -> CommitGroupOffsets:
        name = arguments.text("a group id", group)
        return CommitGroupOffsets(name, arguments.offsets(offsets), *self._timer(timeout_ms))

    def delete_group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Let ``group`` forget what it committed for ``tps`` (KIP-496); code 86 where it reads them."""
        name = arguments.text("a group id", group)
        call = DeleteGroupOffsets(name, arguments.partitions(tps), *self._timer(timeout_ms))
        return self._each(call, partial=partial)

    # --- permissions

    def describe_acls(self, wanted: AclFilter = _EVERY_ACL, *, timeout_ms: int | None = None) -> tuple[AclBinding, ...]:
        """The ACLs that ``wanted`` finds."""
        return self._call(DescribeAcls(arguments.acl_filter(wanted), *self._timer(timeout_ms)))

    def create_acls(
        self, bindings: Iterable[AclBinding], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclBinding, None]:
        """Create ACLs; those that are there already are left as they are."""
        return self._each(CreateAcls(arguments.acl_bindings(bindings), *self._timer(timeout_ms)), partial=partial)

    def delete_acls(
        self, filters: Iterable[AclFilter], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclFilter, tuple[AclBinding, ...]]:
        """Delete the ACLs that the filters find; each filter's result is what it deleted."""
        return self._each(DeleteAcls(arguments.acl_filters(filters), *self._timer(timeout_ms)), partial=partial)

    def group_operations(
        self, groups: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, frozenset[AclOperation]]:
        """What this client may do with each group, also before it is there (KIP-430); absent where brokers do not tell.

        AuthorizationFailed where that is not even Describe.
        """
        names = arguments.texts("a group id", groups)
        return self._each(GroupOperations(names, *self._timer(timeout_ms)), partial=partial)

    def transactional_id_operations(
        self, ids: Iterable[str], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, frozenset[AclOperation]]:
        """As :meth:`group_operations`; of transactional ids brokers tell Describe only, which comes with Write."""
        names = arguments.texts("a transactional id", ids)
        return self._each(TransactionalIdOperations(names, *self._timer(timeout_ms)), partial=partial)

    def close(self) -> None:
        """Let go of the network thread; safe to call again. Calls under way in other threads get ClientClosed."""
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
