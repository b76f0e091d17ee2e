"""Obstacles: why source topics of a flow cannot be copied. One topic's obstacle does not stop the others. Pure.

::

    names ──unnameable, colliding┐
    not_owned, over_limit ───────┼──► Obstacle by source topic ──► TargetTopics ──► plan ──► results
    refusals by brokers ─────────┘

The planner gives the partitions that cannot be copied a result without a task, which reaches every output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mirror.alignment.ownership import Standing
from mirror.relay.model.ranges import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig

_MAX_NAME_LENGTH: Final = 249
"""``Topic.MAX_NAME_LENGTH`` of Kafka's brokers."""
_MAX_SHOWN_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a source topic's partitions from ``first_partition`` on cannot be copied."""

    reason: str
    """One line, which also says what to do."""
    first_partition: int = 0

    def describe(self, topic: str) -> str:
        """Return one line that names the topic and the reason."""
        subject = f"partitions {self.first_partition} and above of topic" if self.first_partition else "topic"
        return f"{subject} {topic} cannot be copied: {self.reason}"


# Invariant: A topic that cannot be copied is its own failure, and the others are planned.
# Test: tests/spark/ledger/test_topic_obstacles.py::test_each_topic_with_an_obstacle_fails_and_the_others_are_planned
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopics:
    """The outcome of the last preparation of a flow's target topics, by source topic."""

    copyable: Mapping[str, int] = field(default_factory=dict)
    """How many partitions can be copied: 0 if the target topic does not exist."""
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    on_source: Mapping[str, int] = field(default_factory=dict)
    """How many partitions the source has, also of a topic with an obstacle."""
    version: int = 1
    """Increases whenever more partitions can be copied; a plan of a lower version lacks them."""

    @property
    def topics(self) -> set[str]:
        """The source topics that the preparation was about."""
        return {*self.copyable, *self.obstacles}

    def following(self, previous: TargetTopics | None) -> TargetTopics:
        """Return a copy with the version that follows ``previous``."""
        if previous is None:
            return self
        more = any(count > previous.copyable.get(topic, 0) for topic, count in self.copyable.items())
        return replace(self, version=previous.version + more)

    def not_in_step(self) -> dict[str, int]:
        """Return how many topics cannot be copied, or not with all partitions, under the reason of a difference."""
        return {"cannot-be-copied": len(self.obstacles)} if self.obstacles else {}

    def beside(self, previous: TargetTopics) -> TargetTopics:
        """Return a copy that has all topics of ``previous`` that this preparation was not about, and follows it."""
        others = {topic: obstacle for topic, obstacle in previous.obstacles.items() if topic not in self.copyable}
        both = replace(
            self,
            copyable={**previous.copyable, **self.copyable},
            on_source={**previous.on_source, **self.on_source},
            obstacles=dict(sorted({**others, **self.obstacles}.items())),
        )
        return both.following(previous)

    def without(self, topics: Collection[str]) -> TargetTopics:
        """Return a copy that has none of these source topics."""
        return replace(
            self,
            copyable={topic: count for topic, count in self.copyable.items() if topic not in topics},
            obstacles={topic: obstacle for topic, obstacle in self.obstacles.items() if topic not in topics},
            on_source={topic: count for topic, count in self.on_source.items() if topic not in topics},
        )

    def why_not_copied(self, topic: str, partition: int) -> tuple[Outcome, str] | None:
        """Return why a partition cannot be copied now, or None if it can.

        A partition that neither is copyable nor has an obstacle appeared after the last preparation.
        """
        obstacle = self.obstacles.get(topic)
        if obstacle is not None and partition >= obstacle.first_partition:
            return Outcome.FAILED, obstacle.reason
        return None if partition < self.copyable.get(topic, 0) else (Outcome.UNFINISHED, NOT_PREPARED)

    def covers(self, topic: str, partition: int) -> bool:
        """Return whether the last preparation found that partition on the source, copyable or not."""
        obstacle = self.obstacles.get(topic)
        refused = obstacle is not None and partition >= obstacle.first_partition
        return refused or partition < self.copyable.get(topic, 0)


NOT_PREPARED: Final = (
    "its target topic is not prepared yet, because the partition is new on the source or in the flow: a stream prepares"
    " it while it runs, a scheduled flow at its next run"
)


def unnameable(flow: FlowConfig, topics: Iterable[str]) -> dict[str, Obstacle]:
    """Return the obstacles of the source ``topics`` that cannot get their name on the target.

    The name's characters are legal, since those of a source topic, of a cluster's name and of a rule in ``names`` are.
    """
    found = ((topic, flow.why_no_name(topic) or _too_long(flow, topic)) for topic in topics)
    return {topic: Obstacle(reason) for topic, reason in found if reason is not None}


def _too_long(flow: FlowConfig, topic: str) -> str | None:
    length = len(flow.target_topic(topic))
    if length <= _MAX_NAME_LENGTH:
        return None
    return (
        f"its target topic's name would have {length} characters, and the longest that brokers take has"
        f' {_MAX_NAME_LENGTH}; leave it out by topics-exclude, or use naming = "identity", or a shorter name for'
        f" cluster {flow.source}"
    )


def colliding(flow: FlowConfig, topics: Iterable[str], existing: Collection[str]) -> dict[str, Obstacle]:
    """Return the obstacles of the source ``topics`` whose target topic collides with another (``Topic.hasCollision``).

    Brokers refuse names that differ only in "." and "_", since their metric names would be the same. ``existing`` are
    all topics of the target; none of them has an obstacle, and of two new topics the second by name has it.
    """
    existing_by_key = {_collision_key(name): name for name in sorted(existing)}
    taken: dict[str, str] = {}
    found: dict[str, Obstacle] = {}
    for topic in sorted(topics):
        name = flow.target_topic(topic)
        if name in existing:
            continue
        key = _collision_key(name)
        if key in existing_by_key:
            other = f"topic {_shown(existing_by_key[key])}, which exists"
        elif key in taken:
            other = (
                f"topic {_shown(flow.target_topic(taken[key]))}, which source topic {_shown(taken[key])} is copied to"
            )
        else:
            taken[key] = topic
            continue
        found[topic] = Obstacle(
            f"its target topic {_shown(name)} collides on cluster {flow.target} with {other}: brokers refuse names that"
            " differ only in '.' and '_'; leave one of them out by topics-exclude, delete the other topic if it is not"
            " needed, or use another naming"
        )
    return found


def not_owned(flow: FlowConfig, name: str, standing: Standing, *, has: int, needed: int) -> Obstacle | None:
    """Return why target topic ``name``, which exists, cannot be copied into; None if it can be.

    It has ``has`` partitions, and the source topic ``needed``. Nothing about a topic that the flow does not own is
    changed, so that none can be added to it. With ``origin = "local"`` and with ``start-over`` the file says that
    others write there, too: then the partitions that there are can be copied into.
    """
    adopt = f"mirror apply --flow {flow.name} --adopt {name}"
    shares = flow.only_local or flow.start_over
    if standing is Standing.UNREAD and not shares:
        return Obstacle(
            f"whether target topic {name} holds records that flow {flow.name} has not copied cannot be read now: a"
            " partition has no leader, or an open transaction, or is not readable, or there are very many such topics;"
            " the next preparation asks again; if it is the copy of this topic, mirror takeover continues it where"
            f" MirrorMaker 2 has copied, and else {adopt} makes it the flow's"
        )
    if standing is Standing.FOREIGN and not shares:
        return Obstacle(
            f"target topic {name} holds records, or did, that flow {flow.name} has not copied, so that nothing about it"
            " is changed: leave the source topic out by topics-exclude, use another naming, or delete the target topic"
            " if its records are not needed; if it is the copy of this topic, mirror takeover continues it where"
            f" MirrorMaker 2 has copied, and else {adopt} lets the flow extend and configure it, and start-over = true"
            " is also needed, which copies all records again, behind those that it holds"
        )
    if standing is Standing.OWNED or has >= needed:
        return None
    partitions = "1 partition" if has == 1 else f"{has} partitions"
    return Obstacle(
        f"target topic {name} has {partitions}, {needed} are needed, and nothing shows that it is flow"
        f" {flow.name}'s: add them, or {adopt}",
        has if shares else 0,
    )


def _collision_key(name: str) -> str:
    """``Topic.unifyCollisionChars``."""
    return name.replace(".", "_")


def _shown(name: str) -> str:
    """Return ``name`` or its beginning: the result with this reason names its topics in full."""
    return name if len(name) <= _MAX_SHOWN_LENGTH else f"{name[:_MAX_SHOWN_LENGTH]}..."
