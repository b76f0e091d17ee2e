"""A source and a target for the tests of preparations and plans, on clusters in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.alignment.owned_topics import OwnedTopics
from mirror.client import Admin, TopicPartition
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.relay.progress.target_log import TargetMark
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_topics
from tests.spark.fakes import NOW_MS, Cluster
from tests.spark.observed import sides_of

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.observation import Sides


class PlannerHarness:
    """A source ``a`` and a target ``b``."""

    def __init__(self) -> None:
        self.a = Cluster("a:1").make()
        self.b = Cluster("b:1").make()
        self.source = Admin({"bootstrap.servers": "a:1"})
        self.target = Admin({"bootstrap.servers": "b:1"})
        self.now_ms = NOW_MS
        self.owned = OwnedTopics("f")
        """What the preparations of flow f know to be its own."""

    def own(self, *topics: str) -> None:
        """The flow has these topics of ``b``, which exist."""
        self.owned.add(self.target.describe_topics(topics))

    def begin(self, topic: str, partition: int = 0) -> None:
        """Flow f has progress in a partition of a topic of ``b``, which exists, and has copied nothing yet."""
        tp = TopicPartition(topic, partition)
        (found,) = self.target.describe_topics([topic]).values()
        begun = Progress(
            offset=0,
            leader_epoch=None,
            source_cluster_id="id-a:1",
            topic_id="",
            time_ms=NOW_MS,
            target=TargetMark(topic_id=str(found.topic_id), end=0),
        )
        self.target.commit_group_offsets(group_of("f", tp), {tp: to_offset(begun)})

    def sides(self) -> Sides:
        """A new observation."""
        return sides_of(self.source, self.target)

    def prepare(self, one: FlowConfig) -> list[str]:
        return prepare_topics(one, self.sides(), owned=self.owned).warnings

    def plan(self, one: FlowConfig, tasks: int = 2) -> Plan:
        return make_plan(
            PlanRequest(flow=one, now_ms=self.now_ms, parallelism=tasks), sides_of(self.source, self.target)
        )
