"""Plans for very many partitions: no quadratic work, and the time that was promised. CPU time without the brokers'."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from mirror.relay.model.ranges import RangeResult
from mirror.spark.discovery.topic_watch import compare
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import join_results
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.flow_checks import ClusterTopics, find_problems
from mirror.spark.preflight.target_topics import prepare_new_topics, prepare_topics
from tests.fakes.admin import PromptAdmin
from tests.fakes.broker_time import BrokerTime, broker_time
from tests.fakes.cluster import FakeCluster
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PER_TOPIC = 10
MANY = 10_000
WITHIN_S = 3.0
"""For :data:`MANY` partitions."""
AGAIN_WITHIN_S = 2.0
"""For :data:`MANY` topics, once in ``refresh-ms``."""
ONE = flow(topics=["orders-.*"], max_partitions_in_parallel=1_000_000, max_bytes_per_run=2**40)


@dataclass
class Stopwatch:
    """CPU seconds of this process, without those of the brokers in memory."""

    brokers: BrokerTime

    def time(self, work: Callable[[], object]) -> float:
        # Collections come when they come: in the one measurement, and not in the other.
        gc.collect()
        gc.disable()
        try:
            self.brokers.restart()
            before = time.process_time()
            work()
            return time.process_time() - before - self.brokers.cpu_seconds
        finally:
            gc.enable()


@pytest.fixture
def watch() -> Iterator[Stopwatch]:
    with broker_time() as brokers:
        yield Stopwatch(brokers)


@dataclass
class Times:
    prepare: float
    plan: float
    ledger: float


def times(watch: Stopwatch, partitions: int, folder: Path) -> Times:
    """Of a first run's preparation and plan, and of the plan's and its results' way through the ledger."""
    a, b = FakeCluster(brokers=3, cluster_id="a"), FakeCluster(brokers=3, cluster_id="b")
    for number in range(partitions // PER_TOPIC):
        for log in a.add_topic(f"orders-{number}", partitions=PER_TOPIC).partitions:
            log.end_offset = 100
            log.data = bytearray(1000)
    source, target = PromptAdmin(a), PromptAdmin(b)
    plans: list[Plan] = []
    prepare_s = watch.time(lambda: prepare_topics(ONE, sides_of(source, target)))
    plan_s = watch.time(
        lambda: plans.append(make_plan(PlanRequest(flow=ONE, now_ms=10**12, parallelism=8), sides_of(source, target)))
    )
    (plan,) = plans
    assert len(plan.ranges) == partitions
    ledger = Ledger(folder / str(partitions))

    def through_the_ledger() -> None:
        ledger.write_plan(plan)
        ledger.write_attempts(AttemptResult(0, 0, RangeResult.initial(each, each.start)) for each in plan.ranges)
        known = ledger.plan()
        assert known == plan
        assert len(join_results(known, ledger.attempts())) == partitions

    return Times(prepare_s, plan_s, watch.time(through_the_ledger))


@pytest.mark.timed
@pytest.mark.slow
def test_to_compare_10_000_topics_costs_the_metadata_of_both_sides(watch: Stopwatch) -> None:
    """A stream does it every refresh-ms, also beside topics that cannot be copied."""
    a, b = FakeCluster(brokers=3, cluster_id="a"), FakeCluster(brokers=3, cluster_id="b")
    names = [f"orders-{number}" for number in range(MANY)]
    for name in names:
        a.add_topic(name)
        b.add_topic(f"a.{name}")
    for name in names[:100]:
        a.add_topic(name.ljust(249, "x"))
        a.add_topic(f"{name}.x")
        b.add_topic(f"a.{name}_x")
    before, found = TargetTopics(copyable=dict.fromkeys(names, 1)), list[TargetTopics]()
    source, target = PromptAdmin(a), PromptAdmin(b)

    def prepare_again() -> None:
        lacking, _ = compare(ONE, sides_of(source, target), before)
        found.append(prepare_new_topics(ONE, sides_of(source, target), before, lacking).targets)

    seconds = watch.time(prepare_again)
    (again,) = found
    assert (len(again.copyable), len(again.obstacles), again.version) == (MANY + 200, 200, before.version)
    assert seconds < AGAIN_WITHIN_S


@pytest.mark.timed
@pytest.mark.slow
def test_10_000_partitions_are_planned_in_time_and_cost_no_quadratic_work(watch: Stopwatch, tmp_path: Path) -> None:
    part, whole = times(watch, MANY // 4, tmp_path), times(watch, MANY, tmp_path)
    assert whole.plan < WITHIN_S
    assert whole.prepare < WITHIN_S
    # Four times as much takes four times as long; sixteen times would be quadratic work.
    assert whole.plan < 8 * part.plan
    assert whole.prepare < 8 * part.prepare
    assert whole.ledger < 8 * part.ledger


@pytest.mark.timed
@pytest.mark.slow
def test_checking_flows_against_each_other_costs_no_quadratic_work(watch: Stopwatch) -> None:
    def seconds(topics: int) -> float:
        flows = [flow(f"f{number}", topics=[f"t{number}-.*", f"t{number}.x"]) for number in range(5)]
        names = frozenset(f"t{number % 5}-{number}" for number in range(topics))
        config = config_of(*flows)
        seen = {name: ClusterTopics(name, names) for name in config.clusters}
        return watch.time(lambda: find_problems(config, config.select(), seen))

    assert seconds(20_000) < 8 * seconds(5_000)
