"""The ranges of a first run: all that a topic has now."""

from __future__ import annotations

from mirror.client import LATEST, Admin, TopicPartition
from mirror.relay.model.ranges import Range


def whole_ranges(flow: str, source: str, topic: str, partitions: int) -> list[Range]:
    """Return the ranges of ``topic`` on the cluster at ``source``; the target topic's name begins with the flow's."""
    with Admin({"bootstrap.servers": source}) as admin:
        # A release before 2.8 has no topic ids.
        cluster_id, topic_id = admin.describe_cluster().cluster_id, admin.describe_topics([topic])[topic].topic_id
        ends = admin.list_offsets({TopicPartition(topic, number): LATEST for number in range(partitions)})
    return [
        Range(
            flow=flow,
            topic=topic,
            target_topic=f"{flow}.{topic}",
            partition=tp.partition,
            start=0,
            end=end.offset,
            source_cluster_id=cluster_id,
            topic_id=str(topic_id or ""),
        )
        for tp, end in ends.items()
    ]
