"""What the clusters of a flow show at one time: each fact is read when a view first needs it, and once.

::

    Admin ──Side──► cluster, topics, configurations, brokers, ACLs, groups ──► views: check, plan, drift, rehearsal

A command that only reads observes each cluster once; a command that changes something begins a new observation for each
flow, and a stream for each round. Whatever was decided, it was decided from one state: two listings of a cluster's
topics may differ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from mirror.causes import AWAY
from mirror.client import (
    AclBinding,
    AclFilter,
    Admin,
    Broker,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    LogDir,
    Outcomes,
    ResourceType,
    TopicDescription,
)
from mirror.errors import FlowError, KafkaError, KafkaTimeout
from mirror.wire.versions import BrokerVersions

T = TypeVar("T")

_VERSIONS_MS: Final = 5_000
_BROKERS_MS: Final = 10_000
"""How long is waited for what brokers say of themselves, which is never needed to copy."""
GROUP_KINDS: Final = ("classic", "consumer")


# Invariant: An observation serves one command, or one flow of a command that changes something, or one round: nothing
#   that lives longer keeps one, and nothing that was made after it is decided by it.
# Test: tests/test_observation.py::test_only_what_ends_with_one_command_or_round_keeps_an_observation
# Test: tests/alignment/
#   test_commands_on_fakes.py::test_a_flow_is_brought_in_step_with_what_earlier_flows_of_the_command_have_made
# Test: tests/rehearsal/test_command_on_fakes.py::test_what_changes_while_the_groups_are_read_is_seen
# Test: tests/spark/discovery/
#   test_topic_watch.py::test_a_topic_that_is_made_again_while_others_are_prepared_is_given_to_a_task_with_its_new_id
class Side:
    """What one cluster shows. A fact that could not be read fails in the same way for each view. For any thread.

    A fact raises KafkaError if the cluster does not answer, or refuses it.
    """

    def __init__(self, name: str, admin: Admin, timeout_ms: int | None = None) -> None:
        """``name`` is that of the cluster in the configuration; ``timeout_ms`` bounds each call, None: ``admin`` does.

        Use ``admin`` for what is to be changed, and for what has to be read later than the observation.
        """
        self.name: Final = name
        self.admin: Final = admin
        self._timeout_ms: Final = timeout_ms
        self._lock: Final = threading.RLock()
        self._facts: Final[dict[Hashable, Any]] = {}
        self._errors: Final[dict[Hashable, KafkaError | FlowError]] = {}

    @property
    def away(self) -> KafkaError | FlowError | None:
        """Why the cluster does not answer, by the last reading of :attr:`cluster`; None also before the first one."""
        return self._errors.get("cluster")

    def again(self) -> Side:
        """Return a new observation of the cluster, with the same client."""
        return Side(self.name, self.admin, self._timeout_ms)

    @property
    def cluster(self) -> ClusterDescription:
        """Its id and brokers. A timeout is a FlowError that has the cluster's configured name."""

        def read() -> ClusterDescription:
            try:
                return self.admin.describe_cluster(timeout_ms=self._timeout_ms)
            except KafkaTimeout as error:
                raise FlowError(f"cluster {self.name} does not answer: {error}; {AWAY.remedy}") from error

        return self._once("cluster", read)

    @property
    def topics(self) -> Mapping[str, TopicDescription]:
        """All topics that the client may describe, by name, also internal ones."""
        return self._once("topics", lambda: self.admin.list_topics(timeout_ms=self._timeout_ms))

    def describe(self, names: Iterable[str], timeout_ms: int | None = None) -> Outcomes[str, TopicDescription]:
        """Return the topics of these names; those that do not exist are absent.

        What the listing of all topics does not have is asked for by name: brokers say then why it is not shown.
        ``timeout_ms`` bounds that call, instead of the observation's.
        """
        with self._lock:
            listed = self._facts.get("topics", {})
            return self._each(
                "topic",
                names,
                lambda wanted: self.admin.describe_topics(
                    wanted, partial=True, timeout_ms=timeout_ms or self._timeout_ms
                ),
                listed,
            )

    def configs(self, topics: Iterable[str], timeout_ms: int | None = None) -> Outcomes[str, dict[str, ConfigEntry]]:
        """Return the configurations of these topics, by key, with the defaults that apply to them.

        ``timeout_ms`` bounds the call, instead of the observation's.
        """
        return self._each("config", topics, lambda names: self._read_configs(names, timeout_ms or self._timeout_ms))

    def own_configs(self, topics: Iterable[str]) -> Outcomes[str, dict[str, str]]:
        """Return what is set on each of these topics itself, as key -> value.

        The defaults that brokers return with it are not kept: of 10,000 topics these are 600,000 values.
        """

        def read(names: Collection[str]) -> Outcomes[str, dict[str, str]]:
            found = self._read_configs(names, self._timeout_ms)
            return Outcomes({name: own_values(entries) for name, entries in found.items()}, found.failed)

        with self._lock:
            names = list(topics)
            entries = self._facts.get(("each", "config"), {})
            known = {name: own_values(entries[name]) for name in names if isinstance(entries.get(name), dict)}
            return self._each("own", names, read, known)

    def _read_configs(self, topics: Collection[str], timeout_ms: int | None) -> Outcomes[str, dict[str, ConfigEntry]]:
        resources = [ConfigResource.topic(name) for name in topics]
        found = self.admin.describe_configs(resources, partial=True, timeout_ms=timeout_ms)
        return Outcomes(
            {one.name: entries for one, entries in found.items()},
            {one.name: error for one, error in found.failed.items()},
        )

    @property
    def versions(self) -> Mapping[str, BrokerVersions]:
        """Those of the brokers that answer within 5 s, by ``broker <id> at <host>:<port>``; nothing raises an error."""
        return self._once("versions", lambda: _versions(self.admin, self.cluster.brokers, self._at_most(_VERSIONS_MS)))

    @property
    def broker_settings(self) -> Mapping[str, ConfigEntry]:
        """The settings of one of the brokers, by key."""

        def read() -> Mapping[str, ConfigEntry]:
            if not (brokers := self.cluster.brokers):
                raise KafkaError(f"cluster {self.name} shows no broker that is available; all of them may be fenced")
            resource = ConfigResource.broker(brokers[0].node_id)
            return self.admin.describe_configs([resource], timeout_ms=self._at_most(_BROKERS_MS))[resource]

        return self._once("settings", read)

    @property
    def log_dirs(self) -> Outcomes[int, dict[str, LogDir]]:
        """The log directories of all brokers that answer within 10 s, by path, with the size of each log."""
        timeout_ms = self._at_most(_BROKERS_MS)
        return self._once("logs", lambda: self.admin.describe_log_dirs(partial=True, timeout_ms=timeout_ms))

    def groups(self, timeout_ms: int | None = None) -> Collection[str]:
        """Return the consumer groups that the client may describe.

        ``timeout_ms`` bounds the call, instead of the observation's.
        """

        def read() -> Collection[str]:
            return self.admin.list_groups(kinds=GROUP_KINDS, timeout_ms=timeout_ms or self._timeout_ms).keys()

        return self._once("groups", read)

    def acls(self, kind: ResourceType) -> tuple[AclBinding, ...]:
        """Return the ACLs of resources of one kind."""
        return self._once(
            ("acls", kind), lambda: self.admin.describe_acls(AclFilter(kind), timeout_ms=self._timeout_ms)
        )

    def _at_most(self, timeout_ms: int) -> int:
        return timeout_ms if self._timeout_ms is None else min(timeout_ms, self._timeout_ms)

    def _once(self, fact: Hashable, read: Callable[[], T]) -> T:
        with self._lock:
            if fact in self._errors:
                raise self._errors[fact]
            if fact not in self._facts:
                try:
                    self._facts[fact] = read()
                except (KafkaError, FlowError) as error:
                    self._errors[fact] = error
                    raise
            found: T = self._facts[fact]
            return found

    def _each(
        self,
        fact: str,
        names: Iterable[str],
        read: Callable[[Collection[str]], Outcomes[str, T]],
        known: Mapping[str, T] | None = None,
    ) -> Outcomes[str, T]:
        """Return a fact of each name, of which those are read that are not ``known`` and were not read before."""
        with self._lock:
            have: dict[str, T | KafkaError | None] = self._facts.setdefault(("each", fact), {})
            wanted, known = list(dict.fromkeys(names)), known or {}
            if unread := [name for name in wanted if name not in have and name not in known]:
                found = read(unread)
                have.update({name: found.get(name, found.failed.get(name)) for name in unread})
        said = {name: known[name] if name in known else have[name] for name in wanted}
        return Outcomes(
            {name: one for name, one in said.items() if one is not None and not isinstance(one, KafkaError)},
            {name: one for name, one in said.items() if isinstance(one, KafkaError)},
        )


class Sides(NamedTuple):
    """Both clusters of a flow."""

    source: Side
    target: Side

    def again(self) -> Sides:
        """Return a new observation, with the same clients."""
        return Sides(self.source.again(), self.target.again())

    @property
    def away(self) -> dict[str, KafkaError | FlowError]:
        """The clusters that are known not to answer, by name, with their errors."""
        return {side.name: side.away for side in self if side.away is not None}


def own_values(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return key -> value of what is set on a topic itself."""
    return {
        key: one.value for key, one in entries.items() if one.source is ConfigSource.TOPIC and one.value is not None
    }


def _versions(admin: Admin, brokers: Collection[Broker], timeout_ms: int) -> dict[str, BrokerVersions]:
    labels = {one.node_id: f"broker {one.node_id} at {one.host}:{one.port}" for one in brokers}
    try:
        found = admin.describe_versions(labels, partial=True, timeout_ms=timeout_ms)
    except KafkaError:
        return {}  # whatever is wrong, the flow's own calls report it
    return {labels[node]: versions for node, versions in found.items()}
