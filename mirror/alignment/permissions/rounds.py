"""Brings the ACLs of a flow's target in step with the source, one round at a time.

::

    1 ACLs and topics of both sides ───────┬─► wanted ─┐
    2 inventory, progress, kept groups ────┴───────────┴─► decide ─► inventory, stored ─► changes ─► inventory, settled
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from mirror.alignment.changes import TIMEOUT_MS
from mirror.alignment.deletions.records import Creations
from mirror.alignment.inventory_topic import InventoryTopic
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.permissions.changes import change
from mirror.alignment.permissions.decision import Change, Known, Mark, decide, keep_for_others, limit
from mirror.alignment.permissions.inventory import StoredAcls, encode_acls, encode_key
from mirror.alignment.permissions.report import AclReport
from mirror.alignment.permissions.selection import AclRules, Sides, is_copy, wanted
from mirror.client import AclBinding, AclFilter, Admin, ResourceType
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, KafkaTimeout
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of, inventory_topic_of
from mirror.timing import Clock, Timer

_FENCED_MS: Final = 10_000
"""Nothing is changed later than this after the inventory was to be stored: a later run may have begun since."""
_SECURITY_DISABLED: Final = 54
_KINDS: Final = [ResourceType.TOPIC, ResourceType.GROUP]
_GROUP_KINDS: Final = ("classic", "consumer")

FindGroups = Callable[[Callable[[str], bool], Collection[str]], Collection[str] | None]
"""Returns groups by whether a target topic is the flow's, and by those of which the flow has created ACLs."""


def transactional_id(flow: str) -> str:
    """Return the id under which a flow's ACLs are stored. No partition has it: theirs end with a number."""
    return f"mirror.{flow}.acls"


class AclAlignment:
    """Rounds of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        flow: str,
        source: tuple[str, Admin],
        target: tuple[str, Admin],
        target_options: Mapping[str, object],
        rules: AclRules,
        clock: Clock,
        others: Collection[str] = (),
        kept_groups: FindGroups = lambda *_: (),
    ) -> None:
        """``source`` and ``target`` are the names of the clusters, for users, and their clients.

        ``target_options`` are dotted keys, of which those of the cluster are used. ``others`` are the other flows that
        bring ACLs to this target: what they want is not deleted. ``kept_groups`` returns the groups whose positions
        the flow keeps on the target, None if it has no topic of them; it may raise KafkaError. Raises ConfigError.
        """
        self._source: Final = source
        self._target: Final = target
        self.rules = rules
        """May be replaced between rounds."""
        self._clock: Final = clock
        self._topic: Final = InventoryTopic(target_options, flow, transactional_id(flow), clock, TIMEOUT_MS)
        self._stored: Final = StoredAcls()
        self._creations: Final = Creations()
        self._owned: Final = OwnedTopics(flow, target_options)
        self._kept_groups: Final = kept_groups
        self._group_topic: Final = group_topic_of(flow)
        self._others: Final = {flow: FlowTopic(target_options, inventory_topic_of(flow)) for flow in others}

    def close(self) -> None:
        """Close the connections that the rounds have opened."""
        self._topic.close()

    def give_way(self) -> None:
        """Another run has fenced this one: the next round fences that one."""
        self._topic.give_way()

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self._source[1].network().busy_ms + self._target[1].network().busy_ms

    def round(self, *, write: bool = True, adopt: bool = False) -> AclReport:
        """Bring what differs in step; without ``write`` only find it.

        ``adopt``: also create again what others have deleted on the target.

        Raises KafkaError if a cluster does not answer, and Fenced if another run brings the flow in step: until
        :meth:`give_way`, all rounds do. What concerns single ACLs, and what a cluster does not allow, is in the report.
        """
        if write:
            self._topic.begin()
        acls: list[list[AclBinding]] = []
        # Those of groups that were created with other rules are deleted, so they are always read on the target.
        of_source = [ResourceType.TOPIC] if self.rules.takes_group is None else _KINDS
        for (cluster, admin), kinds in ((self._source, of_source), (self._target, _KINDS)):
            try:
                found = [admin.describe_acls(AclFilter(kind), timeout_ms=TIMEOUT_MS) for kind in kinds]
                acls.append([acl for each in found for acl in each])
            except AuthorizationFailed:
                line = (
                    f"the ACLs of cluster {cluster} cannot be read: the permission Describe on the cluster is missing"
                )
                return AclReport(problems=(line,), time_ms=self._clock.unix_ms())
            except BrokerError as error:
                if error.code != _SECURITY_DISABLED:
                    raise
                line = f"cluster {cluster} has no authorizer, so no ACLs are brought in step"
                return AclReport(off=line, time_ms=self._clock.unix_ms())
        return self._bring(*acls, write=write, adopt=adopt)

    def _bring(
        self, at_source: list[AclBinding], at_target: list[AclBinding], *, write: bool, adopt: bool
    ) -> AclReport:
        topics = self._target[1].list_topics(timeout_ms=TIMEOUT_MS)
        has_inventory = self._read_inventory(topics)
        if write and not has_inventory:
            raise KafkaError(f"there is no topic {self._topic.name} on the target, so no ACLs are brought in step")
        known = self._stored.known()
        copies = {name: one for name, one in topics.items() if is_copy(self.rules, name)}
        owned = frozenset(self._owned.recorded(self._target[1], copies, self._creations))
        sides = Sides(
            source=at_source,
            source_topics=self._source[1].list_topics(timeout_ms=TIMEOUT_MS),
            target_topics=topics,
            owned_topics=owned,
            source_groups=self._groups(),
            kept_groups=self._kept(owned, known, write=write),
        )
        found = wanted(self.rules, sides)
        plan = decide(found, at_target, known, adopt=adopt)
        limit(plan, self.rules.most, known)
        if any(one.change is Change.DELETE for one in plan.differences.values()):
            keep_for_others(plan, {flow: self._wanted_by(flow, topics) for flow in self._others})
        created = deleted = 0
        if write:
            until_ms = self._clock.now() + _FENCED_MS
            self._store(plan.known)

            def check() -> None:
                if self._clock.now() >= until_ms:
                    raise KafkaTimeout(
                        f"not sent within {_FENCED_MS} ms after its inventory; the next round tries again"
                    )

            changed = change(self._target[1], plan, known, check)
            settled = {acl: mark for acl, mark in plan.known.items() if acl not in changed.deleted}
            self._store(settled | dict.fromkeys(changed.created, Mark.MADE))
            created, deleted = len(changed.created), len(changed.deleted)
        return AclReport(
            differences=tuple(plan.differences.values()),
            acls=len(found.acls),
            created=created,
            deleted=deleted,
            changing=found.changing,
            left_out={kind: tuple(sorted(names)) for kind, names in found.left_out.items()},
            time_ms=self._clock.unix_ms(),
        )

    def _wanted_by(self, flow: str, topics: Mapping[str, object]) -> Collection[AclBinding] | None:
        """Return the ACLs that another flow wants, by its inventory; None if that cannot be read."""
        topic, stored = self._others[flow], StoredAcls()
        if topic.tp.topic not in topics:
            return ()  # it has brought none, or this user may not see that
        try:
            for record in topic.records(Timer(self._clock, TIMEOUT_MS)):
                stored.take(record.key, record.value)
        except KafkaError:
            return None
        return [acl for acl, mark in stored.known().items() if mark is not Mark.UNWANTED]

    def _groups(self) -> list[str]:
        """Return the groups of the source, of which those that this client may not describe are absent."""
        if self.rules.takes_group is None:
            return []
        return list(self._source[1].list_groups(kinds=_GROUP_KINDS, timeout_ms=TIMEOUT_MS))

    def _kept(self, owned: Collection[str], known: Known, *, write: bool) -> Collection[str]:
        """Return the groups whose positions the flow keeps. Raises KafkaError."""
        if self.rules.takes_group is None:
            return ()
        made = (acl for acl, mark in known.items() if mark is Mark.MADE)
        settled = {acl.name for acl in made if acl.resource_type is ResourceType.GROUP}
        kept = self._kept_groups(owned.__contains__, settled)
        if kept is None and write:  # a broker may lag: without the groups, all of their ACLs would be deleted
            raise KafkaError(f"there is no topic {self._group_topic} on the target, so no ACLs are brought in step")
        return kept or ()

    def _read_inventory(self, topics: Mapping[str, object]) -> bool:
        """Read what is new in the inventory topic; return whether there is one."""
        if self._topic.name not in topics:
            self._clear()
            return False
        self._topic.follow(clear=self._clear, take=self._take)
        return True

    def _clear(self) -> None:
        self._stored.clear()
        self._creations.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        self._stored.take(key, value)
        self._creations.take(key, value)

    def _store(self, known: Known) -> None:
        """Store what the inventory does not have yet. Raises KafkaError, Fenced."""
        changed = list(self._stored.changed(known))
        if changed:
            self._topic.write(KeyValue(encode_key(resource), encode_acls(acls)) for resource, acls in changed)
            for resource, acls in changed:
                self._stored.put(resource, acls)
