"""Changes of topics while they are copied: leaders, partitions, deletions."""

from __future__ import annotations

from typing import ClassVar, Final

from tests.campaign.chaos.injection import Injection

MORE_PARTITIONS: Final = 2
RECREATED_PER_SECOND: Final = 50.0


class LeadersMoved(Injection):
    """Other replicas become the leaders of partitions, of the internal topics, too."""

    unit: ClassVar = "leaders moved"

    def begin(self) -> None:
        self.count = self.side.move_leaders(self.topics, self.rng)
        self.log(str(self.effect))


class PartitionsAdded(Injection):
    """A topic gets more partitions, which receive records at once."""

    unit: ClassVar = "partitions added"

    def begin(self) -> None:
        topic = self.context.topics.growing
        before = self.side.partitions(topic)
        self.side.add_partitions(topic, before + MORE_PARTITIONS)
        self.count = self.side.partitions(topic) - before
        self.context.load.writers[topic].partitions = before + MORE_PARTITIONS


class TopicsRecreated(Injection):
    """Two topics are deleted and created again, one after the other; the load pauses only for that time."""

    unit: ClassVar = "topics recreated"

    def begin(self) -> None:
        load, topics = self.context.load, self.context.topics
        for topic in (topics.failing, topics.resumed):
            load.pause(topic)
            self.log(f"deleted {topic} after {len(load.deleted[topic])} records")
            before = self.side.topic_id(topic)
            self.side.delete(topic)
            self.side.create(topic, 1)
            load.write(topic, 1, RECREATED_PER_SECOND)
            self.count += self.side.topic_id(topic) != before
        self.context.recreated = True
