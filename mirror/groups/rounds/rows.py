"""The partitions of groups that a round is about."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.bundles import Committed
from mirror.groups.group_partition import GroupPartition
from mirror.groups.intents import GroupTopicKey, StoredIntents
from mirror.groups.routes import Route


def rows_of(
    route: Route,
    group: str,
    committed: Committed | KafkaError,
    known: AbstractSet[TopicPartition],
    stored: StoredIntents,
) -> Iterable[GroupPartition]:
    """Yield the partitions of a group that ``route`` brings over, and those whose offsets the flow has written before.

    ``known`` are the target partitions with intents, which ``stored`` has.
    """
    if isinstance(committed, KafkaError):
        return
    partitions: dict[TopicPartition, TopicPartition] = {}
    for source in (*committed, *committed.failed):
        topic = route.target_topic(source.topic)
        if topic is not None:
            partitions[TopicPartition(topic, source.partition)] = source
    for target in known - partitions.keys():
        topic = route.source_topic(target.topic)
        if topic is not None:
            partitions[target] = TopicPartition(topic, target.partition)
    intents = {topic: stored.of(GroupTopicKey(group, topic)) for topic in {tp.topic for tp in partitions}}
    for target in sorted(partitions):
        source = partitions[target]
        intent = intents[target.topic].get(target.partition)
        row = GroupPartition(group, source, target, committed.get(source), intent)
        if source in committed.failed:
            row.fail("on the source", committed.failed[source])
        yield row


def is_absent(row: GroupPartition, at_target: Committed | KafkaError) -> bool:
    """Whether it is known that the group has committed nothing on the target for the partition."""
    return not isinstance(at_target, KafkaError) and row.target not in at_target and row.target not in at_target.failed
