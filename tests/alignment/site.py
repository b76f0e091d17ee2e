"""Topic ``t`` and its copy ``paris.t`` on two clusters in memory, and the rounds that keep them in step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mirror.alignment.config_decision import ConfigRules
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import FlowInventory
from mirror.alignment.inventory_records import CreatedTopic, Key, SourceTopic, Subject, record_of
from mirror.alignment.reconciler import Reconciler
from mirror.alignment.reductions import ReductionRules
from mirror.alignment.topic_configs import AlignmentRules, ConfigAlignment
from mirror.client import Admin
from mirror.relay.progress.flow_topic import FlowTopic, inventory_topic_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Clock
from tests.alignment.deletions.deletion_site import AdjustableClock
from tests.fakes.cluster import FakeCluster
from tests.relay.fake_pair import FLOW, FakePair
from tests.spark.observed import sides_of

TARGET = "paris.t"
BACK = "flow-back"
"""The flow in the other direction, from ``paris.t`` to ``t``."""


class ConfigRounds:
    """The rounds of a run about configurations."""

    def __init__(
        self, flow: str, source: Admin, target: Admin, cluster: FakeCluster, rules: AlignmentRules, clock: Clock
    ) -> None:
        self._source, self._target, self.rules = source, target, rules
        self._inventory = FlowInventory({"bootstrap.servers": cluster.bootstrap}, flow, clock)
        self._kind = ConfigAlignment(flow, self._inventory.records, rules, clock)
        self._reconciler = Reconciler(self._inventory, clock)

    def close(self) -> None:
        self._inventory.close()

    def round(
        self,
        *,
        write: bool = True,
        adopt: bool = False,
        beside_copies: bool = False,
        created: Mapping[str, Mapping[str, str]] | None = None,
    ) -> KindReport:
        self._kind.rules = replace(self.rules, adopt=adopt, beside_copies=beside_copies)
        self._kind.created = created or {}
        return self._reconciler.round(self._kind, sides_of(self._source, self._target), write=write)


class Site:
    """Two clusters with topics ``t`` and ``paris.t``, and the flow's inventory topic."""

    def __init__(self, pair: FakePair) -> None:
        self.pair = pair
        self.source, self.target = pair.source.topics["t"].configs, pair.target.topics[TARGET].configs
        pair.target.add_topic(inventory_topic_of(FLOW))
        pair.source.add_topic(inventory_topic_of(BACK))
        self.excluded: set[str] = {"min.insync.replicas"}
        self.overrides: dict[str, str] = {}
        self.kept_ms, self.limit, self.by_hand = 0, 0, False
        """By default no time is too short: what these rules are about is tested alone."""
        self.clock = AdjustableClock()
        self._of_source, self._of_target = (
            Admin({"bootstrap.servers": each.bootstrap}) for each in (pair.source, pair.target)
        )
        self._open: list[ConfigRounds] = []
        self.own(pair.target, FLOW, TARGET, pair.source, "t")
        self.own(pair.source, BACK, "t", pair.target, TARGET)

    def own(self, cluster: FakeCluster, flow: str, topic: str, other: FakeCluster, copied: str) -> None:
        """A topic of ``cluster``, as it is now, was created by ``flow`` as the copy of one of ``other``."""
        self._own(cluster, flow, {topic: copied}, other)

    def own_many(self, topics: Iterable[str]) -> None:
        """The flow has created the copies of these topics."""
        self._own(self.pair.target, FLOW, {f"paris.{topic}": topic for topic in topics}, self.pair.source)

    def _own(self, cluster: FakeCluster, flow: str, topics: Mapping[str, str], other: FakeCluster) -> None:
        records = {}
        for topic, copied in topics.items():
            source = SourceTopic(
                name=copied, topic_id=str(other.topics[copied].topic_id), cluster_id=str(other.cluster_id)
            )
            created = CreatedTopic(topic_id=str(cluster.topics[topic].topic_id), source=source)
            records[topic] = record_of(Key(Subject.CREATED, topic), created)
        inventory = FlowTopic({"bootstrap.servers": cluster.bootstrap}, inventory_topic_of(flow))
        assert inventory.write(records, 10_000) == {}

    def close(self) -> None:
        for one in self._open:
            one.close()
        self._of_source.close()
        self._of_target.close()

    def rules(self) -> AlignmentRules:
        def excludes(key: str) -> bool:
            return key in self.excluded

        configs = ConfigRules(excludes=excludes, overrides=dict(self.overrides), kept_ms=self.kept_ms)
        reductions = ReductionRules(self.limit, by_hand=self.by_hand)
        return AlignmentRules(lambda topic: f"paris.{topic}", configs, reductions)

    def alignment(self) -> ConfigRounds:
        """As of a run that begins now."""
        made = ConfigRounds(FLOW, self._of_source, self._of_target, self.pair.target, self.rules(), self.clock)
        self._open.append(made)
        return made

    def round(
        self,
        *,
        write: bool = True,
        adopt: bool = False,
        beside_copies: bool = False,
        created: Mapping[str, Mapping[str, str]] | None = None,
    ) -> KindReport:
        """One round of a run of its own."""
        alignment = self.alignment()
        return alignment.round(write=write, adopt=adopt, beside_copies=beside_copies, created=created)

    def round_back(self, *, adopt: bool = False) -> KindReport:
        """One round of a run of the flow in the other direction."""
        rules = AlignmentRules({TARGET: "t"}.get, self.rules().configs)
        made = ConfigRounds(BACK, self._of_target, self._of_source, self.pair.source, rules, SystemClock())
        self._open.append(made)
        return made.round(adopt=adopt)


def found(report: KindReport) -> dict[str, str | None]:
    """The reason why each key is not in step, None if it was, or is to be, changed."""
    return {one.subject.key: None if one.reason is None else one.reason.value for one in report.differences}
