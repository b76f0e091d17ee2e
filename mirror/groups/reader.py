"""Reads the consumer groups of one cluster, and what they have committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from mirror.client import Admin, GroupListing, Outcomes, TopicPartition
from mirror.errors import KafkaError
from mirror.groups.bundles import Bundles, Committed
from mirror.groups.commit_decision import Reason
from mirror.groups.coordinators import CALL_MS, CoordinatorCalls, answers_any, spread
from mirror.groups.positions import GroupState
from mirror.timing import Clock

_INACTIVE: Final = frozenset({"", "Empty", "Dead"})
"""The states of groups without members. A broker that reports none ("") refuses commits to active groups anyway."""
_KINDS: Final = frozenset({"classic", "consumer"})
_PROTOCOL_TYPES: Final = frozenset({"", "consumer"})


class Listed(NamedTuple):
    """A group as its coordinator lists it."""

    node: int
    """The coordinator."""
    group: GroupListing

    @property
    def is_active(self) -> bool:
        """Whether it has members."""
        return self.group.state not in _INACTIVE

    @property
    def kind(self) -> str:
        """Its kind, or that of the program that uses it."""
        return self.group.kind if self.group.kind != "classic" else self.group.protocol_type

    @property
    def is_supported(self) -> bool:
        """Whether it is a consumer group of the classic or the consumer protocol: others have no such offsets."""
        return self.group.kind in _KINDS and self.group.protocol_type in _PROTOCOL_TYPES


def unsupported_state(listed: Listed) -> GroupState:
    """Return the state of a group that is not supported."""
    if listed.group.kind not in _KINDS:
        return GroupState(listed.group.group, (), Reason.NOT_SUPPORTED, f"a group of kind {listed.kind!r}")
    detail = f"a group of protocol type {listed.kind!r}, which has no positions"
    return GroupState(listed.group.group, (), Reason.NO_CONSUMERS, detail)


class GroupReader:
    """Lists groups and reads their offsets. Its calls wait for the cluster; use it in one thread."""

    def __init__(
        self,
        admin: Admin,
        clock: Clock,
        timeout_ms: int,
        name_here: Callable[[str], str] = str,
        name_there: Callable[[str], str | None] = str,
    ) -> None:
        """``timeout_ms`` limits requests that are not about groups.

        Callers name groups as another cluster does: ``name_here`` returns the name on this one, ``name_there`` the
        reverse. Groups without a name there are left out.
        """
        self.name_here: Final = name_here
        self._name_there: Final = name_there
        self._clock: Final = clock
        self._admin: Final = admin
        self._timeout_ms: Final = timeout_ms
        self._listings: Final = CoordinatorCalls[int, Outcomes[int, tuple[GroupListing, ...]]](clock, at_once=1)
        self._reads: Final = CoordinatorCalls[tuple[str, ...], Outcomes[str, Committed]](
            clock, at_once=1, is_answer=answers_any
        )
        self._bundles: Final = Bundles()
        self._listed: dict[int, dict[str, Listed]] = {}
        self._nodes: dict[str, int] = {}
        """The coordinator of each group that was listed."""
        self._active: frozenset[str] = frozenset()
        self.errors: dict[int, KafkaError] = {}
        """Why brokers could not be listed the last time, by their ids; what they had before is taken for them."""

    def list_groups(self) -> dict[str, Listed]:
        """Return all groups by id. Raises KafkaError if no broker answers."""
        brokers = [one.node_id for one in self._admin.describe_cluster(timeout_ms=self._timeout_ms).brokers]
        found = self._listings.run(
            {node: [node] for node in brokers},
            lambda node: self._admin.list_groups_async([node], timeout_ms=self._timeout_ms),
        )
        self.errors = {}
        listed: dict[int, dict[str, Listed]] = {}
        for node, outcome in found.items():
            error = outcome if isinstance(outcome, KafkaError) else outcome.failed.get(node)
            if error is not None or isinstance(outcome, KafkaError):
                self.errors[node] = error or KafkaError("no answer")
                listed[node] = self._listed.get(node, {})
            else:
                named = ((self._name_there(one.group), one) for one in outcome[node])
                listed[node] = {name: Listed(node, one) for name, one in named if name is not None}
        self._listed = listed
        found_groups = {name: one for groups in listed.values() for name, one in groups.items()}
        self._nodes = {name: one.node for name, one in found_groups.items()}
        self._active = frozenset(
            name for groups in listed.values() for name, one in groups.items() if one.is_active
        )  # also if another broker, from which the group has moved, lists it without members
        return found_groups

    def problems(self, side: str) -> Iterable[str]:
        """Return lines about the brokers that could not be listed; ``side`` names the cluster."""
        return (
            f"the groups of broker {node} of the {side} cannot be listed: {one}" for node, one in self.errors.items()
        )

    def node_of(self, group: str) -> int:
        """Return the coordinator of a group as it was last listed, or a number in its place."""
        node = self._nodes.get(group)
        return spread(group) if node is None else node

    def is_active(self, group: str) -> bool:
        """Return whether the group had members when it was last listed."""
        return group in self._active

    def offsets(self, groups: Iterable[str]) -> dict[str, Committed | KafkaError]:
        """Return all that each group has committed, or why that could not be read; nothing of one that does not exist.

        Of partitions with a pending transaction, the offset before it.
        """

        def submit(names: tuple[str, ...]) -> Future[Outcomes[str, Committed]]:
            return self._admin.offsets_of_groups_async([self.name_here(name) for name in names], CALL_MS)

        return self._read(list(groups), {}, submit)

    def stable_offsets(self, partitions: Mapping[str, Collection[TopicPartition]]) -> dict[str, Committed | KafkaError]:
        """Return what groups have committed for these partitions, or why that could not be read.

        A partition with a pending transaction has failed: BrokerError with code 88, where
        :meth:`reports_pending_offsets`.
        """

        def submit(names: tuple[str, ...]) -> Future[Outcomes[str, Committed]]:
            wanted = {self.name_here(name): partitions[name] for name in names}
            return self._admin.offsets_of_groups_async(wanted, CALL_MS, require_stable=True)

        return self._read(list(partitions), {group: len(tps) for group, tps in partitions.items()}, submit)

    def reports_pending_offsets(self) -> bool:
        """Return whether all brokers that answer know of pending transactions; those before 2.5 do not (KIP-447).

        What :meth:`stable_offsets` returns of the others is the offset before a pending transaction. Raises KafkaError
        if the cluster does not answer.
        """
        brokers = [one.node_id for one in self._admin.describe_cluster(timeout_ms=self._timeout_ms).brokers]
        found = self._admin.describe_versions(brokers, partial=True, timeout_ms=CALL_MS)
        return all(one.reports_pending_offsets for one in found.values())

    def _read(
        self,
        groups: Sequence[str],
        partitions: Mapping[str, int],
        submit: Callable[[tuple[str, ...]], Future[Outcomes[str, Committed]]],
    ) -> dict[str, Committed | KafkaError]:
        resting = self._bundles.resting(groups, self._clock.now())
        by_node: dict[int, list[str]] = {}
        for group in groups:
            if group not in resting:
                by_node.setdefault(self.node_of(group), []).append(group)
        work = {node: self._bundles.of(names, partitions) for node, names in by_node.items()}
        found: dict[str, Committed | KafkaError] = {}
        for names, outcome in self._reads.run(work, submit).items():
            if isinstance(outcome, KafkaError):
                found.update(dict.fromkeys(names, outcome))
            else:
                here = {self.name_here(name): name for name in names}
                found.update((here[name], one) for name, one in outcome.items())
                found.update((here[name], error) for name, error in outcome.failed.items())
        self._bundles.take(found, self._clock.now())
        return {**found, **resting}
