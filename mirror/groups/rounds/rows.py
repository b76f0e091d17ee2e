"""The partitions of groups that a round is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.bundles import Committed
from mirror.groups.commit_decision import Intent
from mirror.groups.group_partition import GroupPartition
from mirror.groups.intents import StoredIntents
from mirror.groups.routes import Route


def rows_of(
    route: Route, group: str, committed: Committed | KafkaError, stored: StoredIntents
) -> Iterable[GroupPartition]:
    """Yield the partitions of a group that ``route`` brings over, and those whose offsets the flow has written before.

    ``stored`` says which these are. They are in the order of the target partitions.
    """
    if isinstance(committed, KafkaError):
        return
    intents = stored.of_group(group)
    for topic, sources in sorted(_sources_of(route, committed, intents).items()):
        of_topic = intents.get(topic, {})
        for number, source in sorted(sources.items()):
            target = TopicPartition(topic, number)
            row = GroupPartition(group, source, target, committed.get(source), of_topic.get(number))
            if source in committed.failed:
                row.fail("on the source", committed.failed[source])
            yield row


def _sources_of(
    route: Route, committed: Committed, intents: Mapping[str, Mapping[int, Intent]]
) -> dict[str, dict[int, TopicPartition]]:
    """Return the source partitions by target topic and number."""
    found: dict[str, dict[int, TopicPartition]] = {}
    name, of_topic = "", None
    for source in (*committed, *committed.failed):
        if source.topic != name:
            name = source.topic
            topic = route.target_topic(name)
            of_topic = None if topic is None else found.setdefault(topic, {})
        if of_topic is not None:
            of_topic[source.partition] = source
    for topic, known in intents.items():
        others = known.keys() - found.get(topic, {}).keys()
        if others and (back := route.source_topic(topic)) is not None:
            found.setdefault(topic, {}).update((number, TopicPartition(back, number)) for number in others)
    return found


def is_absent(row: GroupPartition, at_target: Committed | KafkaError) -> bool:
    """Whether it is known that the group has committed nothing on the target for the partition."""
    return not isinstance(at_target, KafkaError) and row.target not in at_target and row.target not in at_target.failed
