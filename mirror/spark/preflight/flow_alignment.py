"""What a flow's configuration says about the configurations and deletions of its target topics, and rounds by it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.alignment.decision import ConfigRules
from mirror.alignment.deletions.creations import CreationRecorder
from mirror.alignment.deletions.deletion_rounds import DeletionRules, Deletions
from mirror.alignment.deletions.report import DeletionReport
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.reductions import ReductionRules
from mirror.alignment.report import AlignmentReport
from mirror.alignment.rounds import Alignment, AlignmentRules
from mirror.config.flow_rules import target_options
from mirror.errors import Fenced, KafkaError
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import open_sides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.client import Admin
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.timing import Clock


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


def rules_of(flow: FlowConfig, max_deletions: int | None = None) -> AlignmentRules:
    """Return which topics ``flow`` brings in step, and how; ``max_deletions`` is a limit that a user has given."""
    limit = flow.deletion_limit if max_deletions is None else max_deletions
    return AlignmentRules(
        # What is copied for its heartbeats alone has configurations of its own.
        target_topic=lambda topic: flow.target_topic(topic) if flow.selects(topic) else None,
        configs=config_rules(flow),
        reductions=ReductionRules(limit, by_hand=max_deletions is not None),
    )


class FlowRounds:
    """The rounds of a flow: first configurations, then deletions of topics. For one thread."""

    def __init__(self, alignment: Alignment, deletions: Deletions, clock: Clock) -> None:
        self._alignment: Final = alignment
        self._deletions: Final = deletions
        self._clock: Final = clock

    def round(
        self,
        flow: FlowConfig,
        *,
        write: bool = True,
        adopt: bool = False,
        beside_copies: bool = False,
        created: Mapping[str, Mapping[str, str]] | None = None,
        max_deletions: int | None = None,
    ) -> AlignmentReport:
        """Do what the keys of ``flow`` say; the other parameters are those of :meth:`.Alignment.round`.

        ``max_deletions`` is a limit that a user has given for this round. If deletions fail, that is in the report.
        Raises KafkaError, Fenced.
        """
        report = AlignmentReport(time_ms=self._clock.unix_ms())
        if flow.configs == "sync":
            self._alignment.rules = rules_of(flow, max_deletions)
            report = self._alignment.round(write=write, adopt=adopt, beside_copies=beside_copies, created=created)
        if flow.deletes_topics:
            try:
                spent = report.confirming + (0 if max_deletions is None else report.reduced)
                deletions = self.delete(flow, write=write, max_deletions=max_deletions, spent=spent)
            except Fenced:
                raise
            except KafkaError as error:
                deletions = DeletionReport(problems=(f"no topic is deleted: {error}",))
            report = replace(report, deletions=deletions)
        return report

    def delete(
        self, flow: FlowConfig, *, write: bool = True, max_deletions: int | None = None, spent: int = 0
    ) -> DeletionReport:
        """Do only the part of :meth:`round` that deletes topics; ``spent`` is that of :class:`.DeletionRules`."""
        return self._deletions.round(replace(deletion_rules(flow, max_deletions), spent=spent), write=write)

    def give_way(self) -> None:
        """Let the next round fence the run that has fenced this one."""
        self._alignment.give_way()
        self._deletions.give_way()

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self._alignment.network_ms()


def deletion_rules(flow: FlowConfig, max_deletions: int | None = None) -> DeletionRules:
    """Return which topics ``flow`` deletes; ``max_deletions`` is a limit that a user has given by hand."""
    return DeletionRules(
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        copy_name=flow.target_topic,
        limit=flow.max_deletions if max_deletions is None else max_deletions,
        by_hand=max_deletions is not None,
    )


@contextmanager
def rounds_of(config: MirrorConfig, flow: FlowConfig, source: Admin, target: Admin) -> Iterator[FlowRounds]:
    """Yield the rounds of ``flow`` over clients that the caller closes. Raises ConfigError."""
    options, clock = target_options(config, flow), SystemClock()
    with (
        closing(Alignment(flow.name, source, target, options, rules_of(flow), clock)) as alignment,
        closing(Deletions(flow.name, source, target, options, clock)) as deletions,
    ):
        yield FlowRounds(alignment, deletions, clock)


@contextmanager
def open_rounds(config: MirrorConfig, flow: FlowConfig) -> Iterator[FlowRounds]:
    """Yield the rounds of ``flow``, with clients of their own. Raises ConfigError."""
    with open_sides(config, flow) as sides, rounds_of(config, flow, sides.source.admin, sides.target.admin) as rounds:
        yield rounds


def creation_recorder(config: MirrorConfig, flow: FlowConfig) -> CreationRecorder | None:
    """Return what records the topics that ``flow`` creates; None if it keeps no inventory. Raises ConfigError."""
    if not flow.keeps_inventory:
        return None
    return CreationRecorder(target_options(config, flow), flow.name, deletes=flow.deletes_topics)


def owned_topics(config: MirrorConfig, flow: FlowConfig) -> OwnedTopics:
    """Return what says which target topics are the flow's. Raises ConfigError."""
    return OwnedTopics(flow.name, target_options(config, flow))


def compare_sides(config: MirrorConfig, flow: FlowConfig, sides: Sides) -> AlignmentReport | None:
    """Return how the target's topics differ; None if the flow does not keep them in step.

    Nothing is changed: the target only checks what would be. Raises KafkaError.
    """
    if not flow.aligns_topics:
        return None
    with rounds_of(config, flow, sides.source.admin, sides.target.admin) as rounds:
        return rounds.round(flow, write=False)
