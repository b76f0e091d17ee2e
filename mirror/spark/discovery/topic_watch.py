"""Discovers new topics and partitions of a stream's source, and has them prepared and copied."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from mirror.errors import BrokerError
from mirror.spark.ledger.topic_obstacles import unnameable
from mirror.spark.planning.range_planner import select_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.observation import Sides
    from mirror.spark.ledger.topic_obstacles import TargetTopics

    Assign = Callable[[TargetTopics, Sides], None]
    """Has copied what is prepared. Raises KafkaError."""


_MOST_KNOWN: Final = 8
"""Brokers say the same in different ways, for example in another order."""
_MOST_PREPARED: Final = 500
"""So many topics a comparison prepares at a time: new topics wait for it, and to create 5,000 takes a cluster minutes.
The comparison itself takes 0.2 s of CPU for 5,000.
"""


class Prepare(Protocol):
    """Prepares target topics."""

    def __call__(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """Prepare these source topics, drop those that are ``gone``, and return all that is prepared.

        Raises MirrorError.
        """
        ...


# Invariant: A new partition is prepared, given to one task and copied from its first record; one that cannot be added
#   is tried again and keeps no other one.
# Test: tests/spark/discovery/test_topic_watch.py::test_what_is_new_is_prepared_and_given_to_a_task_once
# Test: tests/spark/discovery/test_topic_watch.py::test_a_new_partition_is_copied_from_its_first_record
# Test: tests/spark/discovery/
#   test_topic_watch.py::test_a_partition_that_cannot_be_added_keeps_no_other_one_from_it_and_is_tried_again
class TopicWatch:
    """Discovers what is new. For one thread; its calls wait for the clusters."""

    def __init__(self, flow: FlowConfig, targets: TargetTopics, prepare: Prepare, assign: Assign) -> None:
        """``targets`` is the preparation with which the stream began."""
        self.targets = targets
        """The last preparation. Other threads may read it."""
        self._flow: Final = flow
        self._prepare: Final = prepare
        self._assign: Final = assign
        self._known: Final = deque[bytes](maxlen=_MOST_KNOWN)
        self._known_on_target: Final = deque[bytes](maxlen=_MOST_KNOWN)
        self._lacking: dict[str, TopicDescription] = {}
        """What the last comparison has found and not prepared yet."""

    def discover(self, sides: Sides) -> None:
        """Find what is new once, and have it copied. Raises MirrorError."""
        self._find(sides.source.admin)
        self._assign(self.targets, sides)

    def _find(self, source: Admin) -> None:
        """Prepare what is new. A response in which nothing was new is not decoded when it comes again."""
        listing = source.list_changed_topics(self._known)
        if listing.topics is None:
            return
        if topics := unprepared(self._flow, listing.topics, self.targets):
            self.targets = self._prepare(topics)
        if not unprepared(self._flow, topics, self.targets):
            self._known.append(listing.digest)

    def compare(self, sides: Sides) -> bool:
        """Prepare what all topics lack on the target, drop what is gone, and have it copied.

        Return whether more is left: the next call goes on with that. Raises MirrorError.
        """
        lacking, gone = self._lacking, frozenset[str]()
        if not lacking:
            lacking, gone = compare(self._flow, sides, self.targets)
        self._lacking = {}  # after an error all topics are compared again
        self.targets = self._prepare(dict(islice(lacking.items(), _MOST_PREPARED)), gone)
        if gone:
            self._known.clear()  # one that has come back meanwhile is new
        self._assign(self.targets, sides.again())  # to prepare them may take minutes
        self._lacking = dict(islice(lacking.items(), _MOST_PREPARED, None))
        return bool(self._lacking)

    def compare_all(self) -> None:
        """Have the next comparison begin with all topics, also if one is in progress."""
        self._lacking = {}

    def deleted(self, sides: Sides) -> set[str]:
        """Return the target topics that were prepared, and do not exist any more. Raises KafkaError."""
        target = sides.target.admin
        listing = target.list_changed_topics(self._known_on_target)
        if listing.topics is None:
            return set()
        wanted = {self._flow.target_topic(topic) for topic, count in self.targets.copyable.items() if count}
        if not (missing := wanted - listing.topics.keys()):
            self._known_on_target.append(listing.digest)
            return set()
        found = target.describe_topics(missing, partial=True)  # the listing leaves out what may not be described
        return missing - found.keys() - found.failed.keys()


def unprepared(
    flow: FlowConfig, topics: Mapping[str, TopicDescription], targets: TargetTopics
) -> dict[str, TopicDescription]:
    """Return those of the source's ``topics`` that ``flow`` copies, and that the last preparation lacked in part."""
    return {
        name: topic
        for name, topic in topics.items()
        if topic.partitions
        and not targets.covers(name, len(topic.partitions) - 1)
        and (name in targets.copyable or flow.concerns(name))
    }


def compare(flow: FlowConfig, sides: Sides, before: TargetTopics) -> tuple[dict[str, TopicDescription], frozenset[str]]:
    """Compare all topics of ``flow`` with their target topics. Costs the metadata of both clusters.

    Return the source topics whose target topics are missing, have fewer partitions, or had an obstacle; and the topics
    of the preparation ``before`` that the source does not have any more, or that the flow does not select. Raises
    FlowError if no topic matches, and KafkaError if a cluster does not answer.
    """
    topics = sides.source.topics
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    nameless = unnameable(flow, wanted)
    copies = {name: flow.target_topic(name) for name in wanted if name not in nameless}
    found = sides.target.describe(copies.values())
    for error in found.failed.values():
        if not isinstance(error, BrokerError):
            raise error

    def lacks(name: str) -> bool:
        count = len(topics[name].partitions)
        there = found.get(copies[name]) if name in copies else None
        has = 0 if there is None else len(there.partitions)
        return min(has, before.copyable.get(name, 0)) < count or name in before.obstacles

    lacking = {name: topic for name, topic in wanted.items() if lacks(name)}
    return lacking, frozenset(before.copyable.keys() - wanted.keys())
