"""Topics made ready and plans made on real brokers: what a plain pair of clusters says, and what a harmful one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirror.client import Admin, NewTopic, TopicPartition
from mirror.observation import Side
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.spark.planning import broker_retention
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_topics
from tests.polling import eventually
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow
from tests.topic_creation import await_topics, create_topics

if TYPE_CHECKING:
    from mirror.sandbox.cluster import Cluster

DAY_MS = 86_400_000


def test_a_flow_made_ready(source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic, name = unique("orders"), unique("f")
    one = flow(name, topics=[topic])
    with (
        Admin({"bootstrap.servers": source_cluster.bootstrap_servers}) as source,
        Admin({"bootstrap.servers": target_cluster.bootstrap_servers}) as target,
    ):
        create_topics(source, [NewTopic(topic, 1, configs={"retention.ms": "1000000"})])
        result = [line for line in prepare_topics(one, sides_of(source, target)).warnings if "one replica" not in line]
        assert result == [], "a target topic made from its source's configuration"
        own = [f"mirror-{kind}.{name}.internal" for kind in ("progress", "offsets")]
        configs = {"cleanup.policy": "compact", "segment.bytes": "16777216"}
        await_topics(target, own)
        assert Side("", target).own_configs(own) == dict.fromkeys(own, configs)

        tp = TopicPartition(f"a.{topic}", 0)
        source_id = source.describe_cluster().cluster_id
        kept = Progress(offset=0, leader_epoch=None, source_cluster_id=source_id, topic_id="", time_ms=5 * DAY_MS)
        target.commit_group_offsets(group_of(name, tp), {tp: to_offset(kept)})
        assert broker_retention.recommit_after_ms(Side("b", target)) == DAY_MS
        assert make_plan(PlanRequest(flow=one, now_ms=6 * DAY_MS), sides_of(source, target)).ranges == []
        assert len(make_plan(PlanRequest(flow=one, now_ms=6 * DAY_MS + 1), sides_of(source, target)).ranges) == 1


def test_a_harmful_pair(source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("orders")
    one = flow(unique("f"), topics=[topic])
    harm = {
        "retention.ms": "60000",
        "max.message.bytes": "1000",
        "compression.type": "gzip",
        "cleanup.policy": "compact,delete",
        "message.timestamp.before.max.ms": "1000",
        "message.timestamp.after.max.ms": "1000",
    }
    with (
        Admin({"bootstrap.servers": source_cluster.bootstrap_servers}) as source,
        Admin({"bootstrap.servers": target_cluster.bootstrap_servers}) as target,
    ):
        create_topics(source, [NewTopic(topic, 1)])
        create_topics(target, [NewTopic(f"a.{topic}", 1, configs=harm)])
        said = prepare_topics(one, sides_of(source, target)).warnings
        for key in harm:
            assert len([line for line in said if f": {key} " in line]) == 1, (key, said)


def test_brokers_repeat_a_listing_of_topics_byte_for_byte(
    source_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """Without that, looking for new topics would decode all of them each second."""
    topic, known = unique("orders"), set[bytes]()
    with Admin({"bootstrap.servers": source_cluster.bootstrap_servers}) as source:

        def is_known() -> bool:
            listing = source.list_changed_topics(known)
            known.add(listing.digest)
            return listing.topics is None

        eventually(is_known, what="a response that was seen before")
        source.create_topics([NewTopic(topic, 2)])

        def is_listed() -> bool:
            listing = source.list_changed_topics(known)
            return listing.topics is not None and topic in listing.topics

        eventually(is_listed, what="the new topic")
        eventually(is_known, what="a response with it that was seen before")
