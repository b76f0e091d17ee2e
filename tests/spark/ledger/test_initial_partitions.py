"""With ``start = "latest"``, which partitions begin at their ends: those that a stream found when it began."""

from __future__ import annotations

from mirror.client import TopicPartition
from mirror.config.models import FlowConfig
from mirror.spark.ledger.initial_partitions import InitialPartitions, Selection
from mirror.spark.ledger.topic_obstacles import Obstacle, TargetTopics

ORDERS = FlowConfig(name="f", source="a", target="b", topics=("orders.*",))
BOTH = FlowConfig(name="f", source="a", target="b", topics=("orders.*", "payments"))


def found(refused: str = "", **on_source: int) -> TargetTopics:
    """What a preparation has found, of whose topics one may have an obstacle."""
    copyable = {topic.replace("_", "-"): count for topic, count in on_source.items()}
    obstacles = {refused: Obstacle("no")} if refused else {}
    return TargetTopics(copyable=copyable | dict.fromkeys(obstacles, 0), obstacles=obstacles, on_source=copyable)


def has(initial: InitialPartitions, *partitions: tuple[str, int]) -> list[bool]:
    return [initial.has(TopicPartition(*one)) for one in partitions]


def test_only_what_the_first_start_found_is_initial() -> None:
    initial = InitialPartitions()
    initial.on_start(ORDERS, found("orders-no", orders=1, orders_no=1))
    initial.on_start(ORDERS, found(orders=2, orders_new=1, orders_no=1))
    assert has(initial, ("orders", 0), ("orders", 1)) == [True, False]
    assert has(initial, ("orders-no", 0), ("orders-new", 0)) == [True, False]


def test_of_a_topic_with_an_obstacle_only_what_the_first_start_found_is_initial() -> None:
    first, second = InitialPartitions(), InitialPartitions()
    before = found("orders-no", orders_no=3)
    first.on_start(ORDERS, before)
    second.restore(ORDERS, Selection.of(ORDERS), first.counts(before))
    second.on_start(ORDERS, found(orders_no=3))
    for initial in (first, second):
        assert has(initial, ("orders-no", 2), ("orders-no", 3)) == [True, False], "the last one appears later"


def test_of_the_topics_that_an_edit_adds_it_is_what_the_start_after_it_found() -> None:
    initial = InitialPartitions()
    initial.on_start(ORDERS, found(orders=1))
    initial.on_start(BOTH, found(orders=1, orders_new=1, payments=1))
    initial.on_start(BOTH, found(orders=1, orders_new=1, payments=2))
    assert has(initial, ("orders", 0), ("orders-new", 0)) == [True, False]
    assert has(initial, ("payments", 0), ("payments", 1)) == [True, False]


def test_another_process_goes_on_with_what_was_stored() -> None:
    """Its file has one topic more: what that has is initial, and what has appeared of the others is not."""
    first = InitialPartitions()
    before = found("orders-no", orders=1, orders_gone=1, orders_no=1)
    first.on_start(ORDERS, before)
    now = found(orders=2, orders_new=1, orders_no=1, payments=1)
    stored = first.counts(before.without({"orders-gone"}))
    second = InitialPartitions()
    second.restore(BOTH, Selection.of(ORDERS), stored)
    second.on_start(BOTH, now)
    assert has(second, ("orders", 0), ("orders", 1), ("orders-new", 0)) == [True, False, False]
    assert has(second, ("orders-no", 0), ("orders-gone", 0), ("payments", 0)) == [True, False, True]
    assert second.counts(now).keys() == {"orders", "orders-no", "payments"}
    second.restore(BOTH, Selection.of(BOTH), {"orders-new": 1})
    assert not second.has(TopicPartition("orders-new", 0)), "this process knows it"


def test_without_a_stored_selection_all_is_initial() -> None:
    initial = InitialPartitions()
    initial.restore(ORDERS, None, {})
    initial.on_start(ORDERS, found(orders=1))
    assert initial.has(TopicPartition("orders", 0))
