"""With ``start = "latest"``, which partitions begin at their ends: those that a stream found when it began."""

from __future__ import annotations

from mirror.client import TopicPartition
from mirror.config.models import FlowConfig
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.planning.initial_partitions import InitialPartitions

ORDERS = FlowConfig(name="f", source="a", target="b", topics=("orders.*",))
BOTH = FlowConfig(name="f", source="a", target="b", topics=("orders.*", "payments"))


def test_only_what_the_first_start_found_is_initial() -> None:
    initial = InitialPartitions()
    initial.on_start(ORDERS, TargetTopics(copyable={"orders": 1}, obstacles={"orders-no": Obstacle("no")}))
    initial.on_start(ORDERS, TargetTopics(copyable={"orders": 2, "orders-new": 1, "orders-no": 1}))
    assert [initial.has(TopicPartition("orders", partition)) for partition in (0, 1)] == [True, False]
    assert initial.has(TopicPartition("orders-no", 0))
    assert not initial.has(TopicPartition("orders-new", 0))


def test_of_the_topics_that_an_edit_adds_it_is_what_the_start_after_it_found() -> None:
    initial = InitialPartitions()
    initial.on_start(ORDERS, TargetTopics(copyable={"orders": 1}))
    initial.on_start(BOTH, TargetTopics(copyable={"orders": 1, "orders-new": 1, "payments": 1}))
    initial.on_start(BOTH, TargetTopics(copyable={"orders": 1, "orders-new": 1, "payments": 2}))
    found = [("orders", 0), ("orders-new", 0), ("payments", 0), ("payments", 1)]
    assert [initial.has(TopicPartition(*one)) for one in found] == [True, False, True, False]
