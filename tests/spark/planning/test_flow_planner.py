"""The plans of one run of a flow: what they follow, and where they end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.initial_partitions import InitialPartitions
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.partition_health import PartitionHealth
from mirror.spark.ledger.status_table import StatusTable
from mirror.spark.ledger.topic_obstacles import Obstacle, TargetTopics
from mirror.spark.planning.flow_planner import FlowPlanner
from mirror.spark.tasks.options import FlowOptions
from tests.spark.fakes import Cluster
from tests.spark.flow_harness import configuration
from tests.spark.observed import sides_of

if TYPE_CHECKING:
    from mirror.spark.ledger.plan import Plan

BOTH = TargetTopics(copyable={"orders": 2}, on_source={"orders": 2})


class Run:
    """A flow of one topic with two partitions, and a run of it."""

    def __init__(self, folder: Path, more: str = "", *, follows: bool = True) -> None:
        self.status = StatusTable()
        self.source_cluster = Cluster("a:1").make().add_topic("orders", [10, 20])
        self.target_cluster = Cluster("b:1").make().add_topic("a.orders", [0, 0])
        config = folder / "mirror.toml"
        config.write_text(configuration("orders") + more)
        self.ledger = Ledger.open(folder, "f", "run-1")
        loaded, flow = FlowOptions(config, "f", self.ledger.path).load()
        initial = InitialPartitions()
        initial.on_start(flow, BOTH)
        self.planner = FlowPlanner(
            loaded, flow, initial, SystemClock(), parallelism=2, follows=follows, status=self.status
        )
        self.source, self.target = (Admin({"bootstrap.servers": f"{one}:1"}) for one in "ab")

    def plan(self, number: int, targets: TargetTopics = BOTH) -> Plan:
        return self.planner.plan(sides_of(self.source, self.target), targets, number)


def ends(plan: Plan) -> set[tuple[int, int]]:
    return {(one.partition, one.end) for one in plan.ranges}


def test_ranges_without_an_end_are_planned_of_all_that_is_prepared(tmp_path: Path) -> None:
    run = Run(tmp_path)
    plan = run.plan(1, TargetTopics(copyable={"orders": 1}, obstacles={"orders": Obstacle("no", 1)}))
    assert ends(plan) == {(0, OPEN_END)}
    assert [(one.partition, one.outcome, one.error) for one in plan.results_without_task] == [(1, Outcome.FAILED, "no")]
    assert ends(run.plan(1)) == {(0, OPEN_END), (1, OPEN_END)}


def test_ranges_of_a_scheduled_run_end_where_the_source_ends_and_limits_shorten_them(tmp_path: Path) -> None:
    assert ends(Run(tmp_path, follows=False).plan(0)) == {(0, 10), (1, 20)}
    assert len(ends(Run(tmp_path, "max-partitions-in-parallel = 1\n", follows=False).plan(0))) == 1


def test_what_is_reported_to_fail_is_known_to_the_next_plan(tmp_path: Path) -> None:
    run, tp = Run(tmp_path), TopicPartition("orders", 1)
    run.status.health[tp] = PartitionHealth(None, 7)
    assert {one.partition: one.sick_since_ms for one in run.plan(2).ranges} == {0: None, 1: 7}


def test_an_offset_that_the_source_has_not_reached_yet_is_no_start_position(tmp_path: Path) -> None:
    plan = Run(tmp_path, "from = 15\n").plan(1)
    assert [(one.partition, one.start) for one in plan.ranges] == [(1, 15)]
