"""Prepares the target of one flow: its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.alignment.owned_topics import OwnedTopics
from mirror.client import Admin
from mirror.config.flow_rules import target_options
from mirror.spark.clusters import open_sides
from mirror.spark.driver.rounds.reconciling import CreatedTopics
from mirror.spark.driver.takeover_watch import open_watch
from mirror.spark.preflight.allowance import Allowance
from mirror.spark.preflight.flow_reconciler import creation_recorder
from mirror.spark.preflight.flow_registries import begin_registries
from mirror.spark.preflight.target_topics import prepare_new_topics, prepare_own_topics, prepare_topics
from mirror.spark.preflight.topic_preparation import Means

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.spark.driver.output.flow_lines import FlowLines
    from mirror.spark.ledger.topic_obstacles import TargetTopics
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.takeover.watch import MirrorMakerWatch

_MAX_TOPICS_SHOWN: Final = 20
"""How many topics that cannot be copied are printed, each in its own line; the others are only counted."""


class FlowPreparation:
    """Prepares one flow, once or, in a stream, again and again."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        lines: FlowLines,
        findings: Findings,
        check_latch: Callable[[], object],
    ) -> None:
        """``findings`` are those of the flow's check.

        ``check_latch`` raises if the flow may change nothing any more. It is called before each change of the first
        preparation: `mirror hold` need not know of this run yet, which claims the flow later.
        """
        self.created: Final = CreatedTopics()
        """What was created, for the rounds that bring configurations in step."""
        self._config: Final = config
        self._flow: Final = flow
        self._lines: Final = lines
        self._findings: Final = findings
        self._check_latch: Final = check_latch
        self._owned: Final = OwnedTopics(flow.name, source_topic=flow.source_topic)
        self._allowance: Final = Allowance()

    def open_watch(self) -> MirrorMakerWatch:
        """Return the watch of the MirrorMaker 2 that a flow was taken over from. Raises MirrorError."""
        flow = self._flow
        if error := self._findings.errors.get(flow.name):
            raise error
        with Admin(self._config.clusters[flow.target].client_options()) as target:
            return open_watch(self._config, flow, target, self._lines.warn_once)

    def prepare(self) -> TargetTopics:
        """Prepare the target topics and print the warnings. Raises MirrorError if the flow cannot run."""
        flow = self._flow
        if error := self._findings.errors.get(flow.name):
            raise error
        self._lines.tell(f"preparing its topics on cluster {flow.target}")
        for line in self._findings.warnings.get(flow.name, []):
            self._lines.warn_once(line)
        return self._prepare()

    def prepare_again(
        self,
        before: TargetTopics,
        topics: Mapping[str, TopicDescription],
        on_created: Callable[[Collection[str]], None] = lambda _: None,
    ) -> TargetTopics:
        """Prepare these source topics of a stream, and print new warnings.

        ``before`` is the result of the last preparation, which the result has, too. ``on_created`` is called with the
        target topics that were created. Raises MirrorError.
        """
        return self._prepare(before, topics, on_created)

    def prepare_own(self, sides: Sides) -> None:
        """Prepare the topics that the flow has for itself. Raises KafkaError."""
        for line in prepare_own_topics(self._flow, sides):
            self._lines.warn_once(line)

    def _prepare(
        self,
        before: TargetTopics | None = None,
        topics: Mapping[str, TopicDescription] | None = None,
        on_created: Callable[[Collection[str]], None] = lambda _: None,
    ) -> TargetTopics:
        config, flow = self._config, self._flow
        with open_sides(config, flow) as sides:
            self._owned.use(target_options(config, flow))
            means: Means = {
                "recorder": creation_recorder(config, flow),
                "on_throttled": self._lines.tell,
                "owned": self._owned,
                "allowance": self._allowance,
            }
            if before is None or topics is None:
                means["check"] = self._check_latch
                prepared = prepare_topics(flow, sides, **means)
            else:
                prepared = prepare_new_topics(flow, sides, before, topics, **means)
        if before is None:
            self._check_latch()
            begin_registries(config, flow)
        self.created.add(flow.name, prepared.created)
        on_created(prepared.created.keys())
        for line in prepared.warnings:
            self._lines.warn_once(line)
        reported = {} if before is None else before.obstacles
        new = [
            obstacle.describe(topic) for topic, obstacle in prepared.targets.obstacles.items() if topic not in reported
        ]
        for line in new[:_MAX_TOPICS_SHOWN]:
            self._lines.warn(line)
        if len(new) > _MAX_TOPICS_SHOWN:
            more = (
                f"{len(new) - _MAX_TOPICS_SHOWN} more topics cannot be copied: mirror status and summary.json list them"
            )
            self._lines.warn(more)
        return prepared.targets
