"""One line for all target topics of which the same is to be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.causes import SEGMENT_BYTES
from mirror.client import PartitionDescription, TopicDescription
from mirror.spark.preflight.target_warnings import warnings

if TYPE_CHECKING:
    from collections.abc import Mapping


def topic(name: str, *, partitions: int = 2, replicas: int = 3) -> TopicDescription:
    nodes = tuple(range(1, replicas + 1))
    made = tuple(PartitionDescription(each, 1, 0, nodes, nodes) for each in range(partitions))
    return TopicDescription(name, None, internal=False, partitions=made)


def said(
    *topics: TopicDescription,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    sources: Mapping[str, int] | None = None,
) -> list[str]:
    by_name = {each.name: each for each in topics}
    return warnings(by_name, configs or {}, dict.fromkeys(by_name, 2) | dict(sources or {}))


def test_healthy_topics_give_no_lines() -> None:
    assert said(topic("a"), topic("b", partitions=1)) == []


def test_topics_with_one_replica_share_a_line_with_advice() -> None:
    (line,) = said(*(topic(f"t{number}", replicas=1) for number in range(5)), topic("u"))
    assert line.startswith("target topics t0, t1, t2 and 2 more: one replica: if its broker loses")
    assert "set replication-factor to 3 before a topic is created" in line
    assert line.endswith("give an existing topic more replicas with kafka-reassign-partitions")
    (line,) = said(topic("t", replicas=1))
    assert line.startswith("target topic t: one replica: ")


def test_too_few_replicas_for_min_insync_replicas_is_a_warning() -> None:
    configs = {name: {"min.insync.replicas": "2"} for name in "abc"}
    one, other = said(topic("a", replicas=1), topic("b", replicas=1), topic("c"), configs=configs)
    assert one.startswith("target topics a, b: one replica: ")
    assert other == (
        "target topics a, b: min.insync.replicas = 2, with 1 replicas: nothing can be written there; lower"
        " min.insync.replicas, or add replicas"
    )


def test_a_target_topic_with_more_partitions_than_its_source() -> None:
    (line,) = said(topic("a", partitions=6), topic("b"), sources={"a": 4})
    assert line.startswith("target topic a: more partitions than the source topic (6, and not 4): nothing")
    a, b = said(topic("a", partitions=6), topic("b", partitions=3), topic("c", partitions=3), sources={"a": 4})
    assert a.startswith("target topic a: more partitions than the source topic (6, and not 4): ")
    assert b.startswith("target topics b, c: more partitions than the source topic (3, and not 2): ")


def test_a_segment_below_the_largest_batch_is_a_warning() -> None:
    configs = {
        "a": {"segment.bytes": "1000", "max.message.bytes": "2000"},
        "b": {"segment.bytes": "2000"},
        "mebibyte": {"segment.bytes": "1048576", "max.message.bytes": "1048588"},
    }
    assert said(*map(topic, configs), configs=configs) == [
        f"target topic a: segment.bytes = 1000, below max.message.bytes = 2000: {SEGMENT_BYTES.words}"
    ]
