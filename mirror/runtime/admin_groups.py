"""The calls of an administrating client about consumer groups and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from mirror.cluster.admin.groups import DeleteGroups, DescribeConsumerGroups, DescribeGroups, ListGroups
from mirror.cluster.calls.group_offset_calls import (
    CommitEachOffset,
    CommitGroupOffsets,
    CommitOffsetsOfGroups,
    DeleteGroupOffsets,
    GroupOffsets,
    OffsetsOfGroups,
)
from mirror.cluster.calls.offset_commits import CommitOffset
from mirror.cluster.types import GroupDescription, GroupListing, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.errors import UnsupportedVersion
from mirror.runtime import arguments
from mirror.runtime.admin_calls import AdminCalls
from mirror.runtime.admin_results import as_asked, merged, not_found


class GroupCalls(AdminCalls):
    """The calls about groups; timeouts and errors are those of :class:`mirror.runtime.admin.Admin`."""

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

    def list_groups_async(
        self, brokers: Iterable[int], *, kinds: Iterable[str] = (), timeout_ms: int | None = None
    ) -> Future[Outcomes[int, tuple[GroupListing, ...]]]:
        """Return the groups that each of these brokers coordinates, without waiting.

        The errors of brokers that do not respond are in ``Outcomes.failed``.
        """

        def call() -> ListGroups:
            deadline_ms, timeout = self._timer(timeout_ms)
            wanted = arguments.texts("a kind of group", kinds)
            return ListGroups(
                arguments.brokers(brokers), states=(), kinds=wanted, deadline_ms=deadline_ms, timeout_ms=timeout
            )

        return self._later(call)

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
        found = self._call(DescribeConsumerGroups(groups, *timer))
        # Brokers without this API have no groups of the consumer protocol.
        failed = {key: error for key, error in found.failed.items() if not isinstance(error, UnsupportedVersion)}
        return Outcomes(found, failed)

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
        returns the offsets committed before those transactions, and so it does where brokers before Apache Kafka 2.5
        do not report them.
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

    def offsets_of_groups_async(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition]],
        timeout_ms: int | None = None,
        *,
        require_stable: bool = False,
    ) -> Future[Outcomes[str, Outcomes[TopicPartition, OffsetAndMetadata]]]:
        """Return the committed offsets of each group, for the partitions that a mapping names, else all; do not wait.

        Groups of one coordinator share a request. Partitions without a committed offset are absent, those that cannot
        be read are in the ``failed`` of their group: with ``require_stable`` those with a pending transaction, whose
        offset before it is returned otherwise, and by brokers before Apache Kafka 2.5. A group that does not exist has
        no offsets.
        """

        def call() -> OffsetsOfGroups:
            names = arguments.texts("a group id", groups)
            wanted = {
                name: arguments.partitions(groups[name]) if isinstance(groups, Mapping) else None for name in names
            }
            return OffsetsOfGroups(wanted, *self._timer(timeout_ms), require_stable=require_stable)

        return self._later(call)

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
        name = arguments.text("a group id", group)
        self._call(CommitGroupOffsets(name, arguments.offsets(offsets), *self._timer(timeout_ms)))

    def commit_group_offsets_async(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> Future[Outcomes[TopicPartition, None]]:
        """Commit offsets for a group without members, without waiting.

        One request has all of them. The errors of single partitions are in ``Outcomes.failed``.
        """

        def commit() -> CommitEachOffset:
            name = arguments.text("a group id", group)
            return CommitEachOffset(name, arguments.offsets(offsets), *self._timer(timeout_ms))

        return self._later(commit)

    def commit_offsets_of_groups_async(
        self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]], timeout_ms: int | None = None
    ) -> Future[Outcomes[str, Outcomes[TopicPartition, None]]]:
        """Commit offsets for groups without members, without waiting: one request for each group, all at once.

        The errors of single partitions are in the ``failed`` of their group. A timeout is that of a whole group.
        """

        def commit() -> CommitOffsetsOfGroups:
            checked = {arguments.text("a group id", group): arguments.offsets(of) for group, of in offsets.items()}
            return CommitOffsetsOfGroups(checked, *self._timer(timeout_ms))

        return self._later(commit)

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

    def delete_group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, partial: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Delete the offsets of ``group`` for ``tps`` (KIP-496). The error of a subscribed topic is code 86."""
        return self._each(self._to_delete(group, tps, timeout_ms), partial=partial)

    def delete_group_offsets_async(
        self, group: str, tps: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> Future[Outcomes[TopicPartition, None]]:
        """Like :meth:`delete_group_offsets` with ``partial=True``, without waiting."""
        return self._later(lambda: self._to_delete(group, tps, timeout_ms))

    def _to_delete(self, group: str, tps: Iterable[TopicPartition], timeout_ms: int | None) -> DeleteGroupOffsets:
        name = arguments.text("a group id", group)
        return DeleteGroupOffsets(name, arguments.partitions(tps), *self._timer(timeout_ms))
