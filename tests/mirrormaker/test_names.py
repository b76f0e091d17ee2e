"""Names of topics, as DefaultReplicationPolicy understands them (test_kafkas_classes.py compares with that itself)."""

from __future__ import annotations

import pytest

from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy

NAMES = DefaultPolicy()


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("a.orders", "a", "orders", "orders"),
        ("b.a.orders", "b", "a.orders", "orders"),
        ("my.internal", "my", "internal", "internal"),
        ("orders.", None, None, "orders."),
        ("a..orders", "a", ".orders", "orders"),
        (".orders", "", "orders", "orders"),
        ("...", None, None, "..."),
    ],
)
def test_a_name_says_where_its_topic_was_copied_from(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    found = NAMES.topic_source(topic), NAMES.upstream_topic(topic), NAMES.original_topic(topic)
    assert found == (source, upstream, original)


def test_another_separator_separates() -> None:
    names = DefaultPolicy("_")
    assert names.remote_topic("a", "b.c") == "a_b.c"
    assert (names.topic_source("a_b.c"), names.original_topic("a_b.c")) == ("a", "b.c")
    assert names.topic_source("b.c") is None
    assert names.is_internal("a_checkpoints_internal")
    assert not names.is_internal("a.checkpoints.internal")


@pytest.mark.parametrize("topic", ["__x", ".x", "mm2-offsets.a.internal", "mm2.internal", "a.checkpoints.internal"])
def test_topics_of_kafka_and_mirrormaker_are_internal(topic: str) -> None:
    assert NAMES.is_internal(topic)


@pytest.mark.parametrize("topic", ["orders", "my.internal", "my-internal", "mm2", "checkpoints.internal", "x__"])
def test_other_topics_are_not_internal(topic: str) -> None:
    assert not NAMES.is_internal(topic)


@pytest.mark.parametrize(
    ("topic", "target", "carried"),
    [
        (HEARTBEATS, "b", True),
        ("c.heartbeats", "b", True),
        ("d.c.heartbeats", "b", True),
        ("b.heartbeats", "b", False),  # it comes from there
        ("c.b.heartbeats", "b", False),
        ("b.c.heartbeats", "c", False),
        ("eu.b.heartbeats", "eu.b", False),  # a cluster's name with a separator
        ("c.eu.b.heartbeats", "eu.b", False),
        ("__c.heartbeats", "b", False),
        ("my-heartbeats", "b", False),
        ("heartbeats.c", "b", False),
    ],
)
def test_heartbeats_are_carried_on_unless_they_would_go_in_a_circle(topic: str, target: str, carried: bool) -> None:
    assert NAMES.carries_heartbeats(topic, target) is carried
