"""What a flow's configuration says about its target: configurations, deletions, ACLs; and rounds by these rules."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from mirror.alignment import acls, topic_configs, topic_deletions
from mirror.alignment.acl_selection import AclRules, beginnings_of, prefixes_of
from mirror.alignment.acls import AclAlignment
from mirror.alignment.config_decision import ConfigRules
from mirror.alignment.creations import CreationRecorder
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import FlowInventory
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.planned import HoldingPlan, Item, OnlyPlanned
from mirror.alignment.reconciler import Kind, Reconciler
from mirror.alignment.reductions import ReductionRules
from mirror.alignment.sync_state import ACLS, CONFIGS, DELETIONS
from mirror.alignment.topic_configs import AlignmentRules, ConfigAlignment
from mirror.alignment.topic_deletions import DeletionRules, TopicDeletions
from mirror.closing import Closing
from mirror.config.flow_rules import target_options
from mirror.config.patterns import beginnings_of_names
from mirror.errors import AuthorizationFailed, Fenced, MirrorError, problem_of
from mirror.groups.kept_groups import KeptGroups
from mirror.groups.own_groups import is_own_group
from mirror.mirrormaker.names import DefaultPolicy
from mirror.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.alignment.topic_configs import Created
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides

_log = logging.getLogger(__name__)
P = TypeVar("P", bound=HoldingPlan)

KindReports = dict[str, KindReport]
"""By the kind's name in the state of a flow."""
WORDS: Final = {CONFIGS: topic_configs.WORDS, DELETIONS: topic_deletions.WORDS, ACLS: acls.WORDS}


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
    prefixed = flow.naming == "prefix" and not flow.names

    def takes_group(group: str) -> bool:
        return flow.groups.includes(group) and not is_own_group(group)

    return AclRules(
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        source_topic=flow.source_topic,
        namespace=DefaultPolicy().remote_topic(flow.source, "") if prefixed else "",
        prefixes=prefixes_of(flow.topics) if prefixed else (),
        takes_group=takes_group if flow.acls.groups and flow.groups.sync else None,
        target_group=flow.groups.target_group,
        source_group=flow.groups.source_group,
        others=tuple(
            beginning
            for other in config.flows.values()
            if other.target == flow.target and other.name != flow.name
            for beginning in (
                *map(other.name_by_naming, beginnings_of(other.topics)),
                *beginnings_of_names(other.names),
            )
        ),
        write=flow.acls.write,
        fenced=any(flow.name in one.flows and one.fence == "acl" for one in config.switches.values()),
        most=flow.max_acls,
    )


def kinds_of(flow: FlowConfig) -> list[str]:
    """Return the kinds that ``flow`` keeps in step, in the order of a round."""
    wanted = {CONFIGS: flow.configs == "sync", DELETIONS: flow.deletes_topics, ACLS: flow.acls.sync}
    return [kind for kind, is_kept in wanted.items() if is_kept]


def fenced_in(reports: Mapping[str, KindReport]) -> Fenced | None:
    """Return the error of a round that another owner has ended."""
    return next((one.error for one in reports.values() if isinstance(one.error, Fenced)), None)


# Invariant: What keeps one kind from being in step keeps no other from its turn and no report from users; but without
#   configurations no topic is deleted, because both share a limit.
# Test: tests/spark/driver/test_reconciling.py::test_what_keeps_one_kind_from_being_in_step_keeps_no_other
# Test: tests/spark/driver/test_reconciling.py::test_no_topic_is_deleted_if_it_is_not_known_what_configurations_take
# Test: tests/spark/driver/test_reconciling.py::test_what_was_done_is_reported_whatever_fails_after_it
class FlowReconciler(Closing):
    """The rounds of a flow over clients that the caller closes, by its configuration. For one thread."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Raises ConfigError."""
        self._config: Final = config
        self._flow: Final = flow
        options, clock = target_options(config, flow), SystemClock()
        self._clock: Final = clock
        with ExitStack() as stack:
            inventory = stack.enter_context(closing(FlowInventory(options, flow.name, clock)))
            names = flow.groups.target_group, flow.groups.source_group
            kept = stack.enter_context(closing(KeptGroups(options, flow.name, clock, *names)))
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
        self._planned: Collection[Item] | None = None
        self._last: KindReports = {}

    def close(self) -> None:
        self._clients.close()

    def round(
        self,
        sides: Sides,
        *,
        write: bool = True,
        adopt: bool = False,
        beside_copies: bool = False,
        created: Created | None = None,
        coming: Collection[str] = (),
        max_deletions: int | None = None,
        planned: Collection[Item] | None = None,
    ) -> KindReports:
        """Bring each kind that the flow keeps in step further; without ``write`` only find what differs.

        ``adopt``: also what others have set on the target. ``beside_copies``: copies of the flow are running.
        ``created`` are target topics that this flow has just created, with their configurations, and ``coming`` those
        that it is about to create. ``max_deletions`` is a limit that a user has given. Nothing is changed but what is
        ``planned``, unless it is None.

        Raises nothing: why a kind has failed is in its report, and keeps no other from its turn. After Fenced, all
        that follow fail: another owner has begun, which their turn would fence.
        """
        align = replace(alignment_rules(self._flow, max_deletions), adopt=adopt, beside_copies=beside_copies)
        self._configs.rules, self._configs.created = align, created or {}
        self._deletions.rules = deletion_rules(self._flow, max_deletions)
        self._acls.rules = replace(acl_rules(self._config, self._flow), adopt=adopt)
        self._acls.coming, self._planned = coming, planned
        found: KindReports = {}
        for kind in kinds_of(self._flow):
            try:
                found[kind] = self._turn(kind, sides, found, write=write)
            except Exception as error:  # noqa: BLE001 - whatever it is, it keeps no other kind from being in step
                if not isinstance(error, MirrorError):
                    _log.error("%s of flow %s", WORDS[kind].subject, self._flow.name, exc_info=error)
                found[kind] = self._failed(kind, error)
        self._last = found
        return found

    def _turn(self, kind: str, sides: Sides, found: KindReports, *, write: bool) -> KindReport:
        """Return the report of a kind, after those that were ``found`` in this round. Raises MirrorError."""
        if (fenced := fenced_in(found)) is not None:
            raise fenced
        if kind == CONFIGS:
            return self._reconciler.round(self._only_planned(self._configs), sides, write=write)
        if kind == ACLS:
            return self._reconciler.round(self._only_planned(self._acls), sides, write=write)
        if (configs := found.get(CONFIGS)) is not None:
            if configs.error is not None:  # they share a limit, and what they would take of it is not known
                raise configs.error
            self._deletions.rules = replace(self._deletions.rules, spent=configs.spent)
        return self._reconciler.round(self._only_planned(self._deletions), sides, write=write)

    def _only_planned(self, kind: Kind[P, KindReport]) -> Kind[P, KindReport]:
        return kind if self._planned is None else OnlyPlanned(kind, self._planned, self._flow.target)

    def _failed(self, kind: str, error: Exception) -> KindReport:
        problem = f"no topic is deleted: {problem_of(error)}" if kind == DELETIONS else problem_of(error)
        before = self._last.get(kind, KindReport(words=WORDS[kind]))
        return before.failed(problem, self._clock.unix_ms(), error)


class Alignment(NamedTuple):
    """The reports of all kinds, by name; what the flow does not keep in step has an empty one."""

    configs: KindReport = KindReport(words=topic_configs.WORDS)
    deletions: KindReport = KindReport(words=topic_deletions.WORDS)
    acls: KindReport = KindReport(words=acls.WORDS)


def compare_target(
    config: MirrorConfig,
    flow: FlowConfig,
    sides: Sides,
    *,
    coming: Collection[str] = (),
    adopt: bool = False,
    max_deletions: int | None = None,
) -> Alignment:
    """Return how the target differs. Nothing is changed: it only checks what would be.

    ``coming`` are target topics that are to be created; the others are those of :meth:`FlowReconciler.round`.
    A permission that is missing is in the report of its kind: the commands that grant it are printed behind that.
    Raises KafkaError for what else keeps a kind from being compared.
    """
    if not kinds_of(flow):
        return Alignment()
    with FlowReconciler(config, flow) as reconciler:
        reports = reconciler.round(sides, write=False, coming=coming, adopt=adopt, max_deletions=max_deletions)
    for kind in (CONFIGS, ACLS):
        error = reports[kind].error if kind in reports else None
        if error is not None and not isinstance(error, AuthorizationFailed):
            raise error
    return Alignment(**reports)


def creation_recorder(config: MirrorConfig, flow: FlowConfig) -> CreationRecorder | None:
    """Return what records the topics that ``flow`` creates; None if it keeps no inventory. Raises ConfigError."""
    if not flow.keeps_inventory:
        return None
    return CreationRecorder(target_options(config, flow), flow.name, deletes=flow.deletes_topics)


def owned_topics(config: MirrorConfig, flow: FlowConfig) -> OwnedTopics:
    """Return what says which target topics are the flow's. Raises ConfigError."""
    return OwnedTopics(flow.name, target_options(config, flow), flow.source_topic)
