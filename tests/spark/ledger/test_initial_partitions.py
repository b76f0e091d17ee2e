"""With ``start = "latest"``, which partitions begin at their ends: those that a stream found when it began."""

from __future__ import annotations

from mirror.client import TopicPartition
from mirror.config.models import FlowConfig
from mirror.spark.ledger.initial_partitions import InitialPartitions, Selection
from mirror.spark.ledger.topic_obstacles import Obstacle, TargetTopics

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


def test_another_process_goes_on_with_what_was_stored() -> None:
    """Its file has one topic more: what that has is initial, and what has appeared of the others is not."""
    first = InitialPartitions()
    before = TargetTopics(copyable={"orders": 1, "orders-gone": 1}, obstacles={"orders-no": Obstacle("no")})
    first.on_start(ORDERS, before)
    now = TargetTopics(copyable={"orders": 2, "orders-new": 1, "orders-no": 1, "payments": 1})
    stored = first.counts(before.without({"orders-gone"}))
    second = InitialPartitions()
    second.restore(BOTH, Selection.of(ORDERS), stored)
    second.on_start(BOTH, now)
    found = [("orders", 0), ("orders", 1), ("orders-new", 0), ("orders-no", 0), ("orders-gone", 0), ("payments", 0)]
    assert [second.has(TopicPartition(*one)) for one in found] == [True, False, False, True, False, True]
    assert second.counts(now).keys() == {"orders", "orders-no", "payments"}
    second.restore(BOTH, Selection.of(BOTH), {"orders-new": 1})
    assert not second.has(TopicPartition("orders-new", 0)), "this process knows it"


def test_without_a_stored_selection_all_is_initial() -> None:
    initial = InitialPartitions()
    initial.restore(ORDERS, None, {})
    initial.on_start(ORDERS, TargetTopics(copyable={"orders": 1}))
    assert initial.has(TopicPartition("orders", 0))
