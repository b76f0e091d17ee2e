"""What a flow's configuration says about its target: configurations, deletions, ACLs; and rounds by these rules."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from mirror.alignment import acls, topic_configs, topic_deletions
from mirror.alignment.acl_selection import AclRules, beginnings_of, prefixes_of
from mirror.alignment.acls import AclAlignment
from mirror.alignment.config_decision import ConfigRules
from mirror.alignment.creations import CreationRecorder
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import FlowInventory
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.reconciler import Reconciler
from mirror.alignment.reductions import ReductionRules
from mirror.alignment.topic_configs import AlignmentRules, ConfigAlignment
from mirror.alignment.topic_deletions import DeletionRules, TopicDeletions
from mirror.config.flow_rules import target_options
from mirror.errors import Fenced, KafkaError
from mirror.groups.kept_groups import KeptGroups
from mirror.groups.own_groups import is_own_group
from mirror.mirrormaker.names import DefaultPolicy
from mirror.runtime.clock import SystemClock

if TYPE_CHECKING:
    from mirror.alignment.topic_configs import Created
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides


def config_rules(flow: FlowConfig) -> ConfigRules:
    """Return which configurations the target topics of ``flow`` get, when they are created and later."""
    if flow.configs == "off":
        return ConfigRules(excludes=lambda _: True)
    return ConfigRules(
        excludes=flow.excludes_config,
        overrides=flow.configs_overrides,
        follows=flow.follows_config,
        kept_ms=flow.min_retention_ms,
    )


def alignment_rules(flow: FlowConfig, max_deletions: int | None = None) -> AlignmentRules:
    """Return which topics ``flow`` brings in step, and how; ``max_deletions`` is a limit that a user has given."""
    limit = flow.deletion_limit if max_deletions is None else max_deletions
    return AlignmentRules(
        # What is copied for its heartbeats alone has configurations of its own.
        target_topic=lambda topic: flow.target_topic(topic) if flow.selects(topic) else None,
        configs=config_rules(flow),
        reductions=ReductionRules(limit, by_hand=max_deletions is not None),
    )


def deletion_rules(flow: FlowConfig, max_deletions: int | None = None) -> DeletionRules:
    """Return which topics ``flow`` deletes; ``max_deletions`` is a limit that a user has given by hand."""
    return DeletionRules(
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        copy_name=flow.target_topic,
        limit=flow.max_deletions if max_deletions is None else max_deletions,
        by_hand=max_deletions is not None,
    )


def acl_rules(config: MirrorConfig, flow: FlowConfig) -> AclRules:
    """Return which ACLs ``flow`` brings to the target."""
    prefixed = flow.naming == "prefix"

    def takes_group(group: str) -> bool:
        return flow.groups.includes(group) and not is_own_group(group)

    return AclRules(
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        namespace=DefaultPolicy().remote_topic(flow.source, "") if prefixed else "",
        prefixes=prefixes_of(flow.topics) if prefixed else (),
        takes_group=takes_group if flow.acls.groups and flow.groups.sync else None,
        others=tuple(
            other.target_topic(beginning)
            for other in config.flows.values()
            if other.target == flow.target and other.name != flow.name
            for beginning in beginnings_of(other.topics)
        ),
        write=flow.acls.write,
        most=flow.max_acls,
    )


class FlowReconciler:
    """The rounds of a flow over clients that the caller closes, by its configuration. For one thread."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Raises ConfigError."""
        self._config: Final = config
        self._flow: Final = flow
        options, clock = target_options(config, flow), SystemClock()
        self._clock: Final = clock
        with ExitStack() as stack:
            inventory = stack.enter_context(closing(FlowInventory(options, flow.name, clock)))
            kept = stack.enter_context(closing(KeptGroups(options, flow.name, clock)))
            self._clients: Final = stack.pop_all()
        self._reconciler: Final = Reconciler(inventory, clock)
        self._configs: Final = ConfigAlignment(flow.name, inventory.records, alignment_rules(flow), clock)
        self._deletions: Final = TopicDeletions(flow.name, inventory, deletion_rules(flow), clock)
        others = [
            other.name
            for other in config.flows.values()
            if other.acls.sync and other.target == flow.target and other.name != flow.name
        ]
        rules = acl_rules(config, flow)
        self._acls: Final = AclAlignment(flow.name, options, inventory.records, rules, clock, others, kept.names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def give_way(self) -> None:
        """Another owner has fenced this one: the next round fences that one."""
        self._reconciler.give_way()

    def configs(
        self,
        sides: Sides,
        *,
        write: bool = True,
        adopt: bool = False,
        beside_copies: bool = False,
        created: Created | None = None,
        max_deletions: int | None = None,
    ) -> KindReport:
        """Bring the configurations of target topics in step; without ``write`` only find what differs.

        ``adopt``: also what others have set on the target. ``beside_copies``: copies of the flow are running.
        ``created`` are target topics that this flow has just created, with their configurations. ``max_deletions`` is
        a limit that a user has given. Raises KafkaError, Fenced.
        """
        rules = alignment_rules(self._flow, max_deletions)
        self._configs.rules = replace(rules, adopt=adopt, beside_copies=beside_copies)
        self._configs.created = created or {}
        return self._reconciler.round(self._configs, sides, write=write)

    def deletions(
        self, sides: Sides, *, write: bool = True, max_deletions: int | None = None, spent: int = 0
    ) -> KindReport:
        """Delete topics whose source topics were deleted; ``spent`` is that of :class:`.DeletionRules`.

        The others are as for :meth:`configs`. A failure is in the report. Raises Fenced.
        """
        self._deletions.rules = replace(deletion_rules(self._flow, max_deletions), spent=spent)
        try:
            return self._reconciler.round(self._deletions, sides, write=write)
        except Fenced:
            raise
        except KafkaError as error:
            return KindReport(words=topic_deletions.WORDS, problems=(f"no topic is deleted: {error}",))

    def acls(self, sides: Sides, *, write: bool = True, adopt: bool = False) -> KindReport:
        """Bring ACLs in step. Raises KafkaError, Fenced."""
        self._acls.rules = replace(acl_rules(self._config, self._flow), adopt=adopt)
        return self._reconciler.round(self._acls, sides, write=write)


class Alignment(NamedTuple):
    """How the target of a flow differs, by kind; what the flow does not keep in step has an empty report."""

    configs: KindReport = KindReport(words=topic_configs.WORDS)
    deletions: KindReport = KindReport(words=topic_deletions.WORDS)
    acls: KindReport = KindReport(words=acls.WORDS)


def compare_target(config: MirrorConfig, flow: FlowConfig, sides: Sides) -> Alignment:
    """Return how the target differs. Nothing is changed: it only checks what would be. Raises KafkaError."""
    found = Alignment()
    if not flow.keeps_inventory:
        return found
    with FlowReconciler(config, flow) as reconciler:
        if flow.configs == "sync":
            found = found._replace(configs=reconciler.configs(sides, write=False))
        if flow.deletes_topics:
            found = found._replace(deletions=reconciler.deletions(sides, write=False, spent=found.configs.spent))
        if flow.acls.sync:
            found = found._replace(acls=reconciler.acls(sides, write=False))
    return found


def creation_recorder(config: MirrorConfig, flow: FlowConfig) -> CreationRecorder | None:
    """Return what records the topics that ``flow`` creates; None if it keeps no inventory. Raises ConfigError."""
    if not flow.keeps_inventory:
        return None
    return CreationRecorder(target_options(config, flow), flow.name, deletes=flow.deletes_topics)


def owned_topics(config: MirrorConfig, flow: FlowConfig) -> OwnedTopics:
    """Return what says which target topics are the flow's. Raises ConfigError."""
    return OwnedTopics(flow.name, target_options(config, flow))
