"""Which source topics of a flow cannot be copied, and why. One topic's obstacle stops no other. Pure.

::

    names ──too_long, colliding─┐
                                ├──► Obstacle by source topic ──► TargetTopics ──ledger──► plan ──► results
    refusals by brokers ────────┘

The driver prepares the target's topics and writes the outcome to the ledger as :class:`TargetTopics`. The planner, in
another process, gives the partitions that cannot be copied a result without a task, which reaches every output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mirror.relay.model.ranges import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig

_LONGEST_NAME: Final = 249
"""``Topic.MAX_NAME_LENGTH`` of Kafka's brokers."""
_LONGEST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a source topic's partitions from number ``first`` on cannot be copied.

    ``reason`` is one line, which also says what to do.
    """

    reason: str
    first_partition: int = 0

    def describe(self, topic: str) -> str:
        """One line that names the topic."""
        which = f"partitions {self.first_partition} and above of topic" if self.first_partition else "topic"
        return f"{which} {topic} cannot be copied: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopics:
    """What the last preparation of a flow's target topics came to, by source topic.

    ``made`` is how many partitions of each can be copied: 0 where its target topic is not there. ``version`` increases
    each time that there is more which can be copied: a plan of a lower version lacks it.
    """

    copyable: Mapping[str, int] = field(default_factory=dict)
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    version: int = 1

    def following(self, previous: TargetTopics | None) -> TargetTopics:
        """The same, with the version that follows ``before``."""
        if previous is None:
            return self
        more = any(count > previous.copyable.get(topic, 0) for topic, count in self.copyable.items())
        return replace(self, version=previous.version + more)

    def why_not_copied(self, topic: str, partition: int) -> tuple[Outcome, str] | None:
        """Why a partition cannot be copied now, or None where it can.

        One without an obstacle that was not made either came after the last preparation.
        """
        obstacle = self.obstacles.get(topic)
        if obstacle is not None and partition >= obstacle.first_partition:
            return Outcome.FAILED, obstacle.reason
        return None if partition < self.copyable.get(topic, 0) else (Outcome.UNFINISHED, NOT_PREPARED)

    def covers(self, topic: str, partition: int) -> bool:
        """Whether the last preparation found that partition on the source, and could copy it or not."""
        obstacle = self.obstacles.get(topic)
        refused = obstacle is not None and partition >= obstacle.first_partition
        return refused or partition < self.copyable.get(topic, 0)

    def to_json(self) -> dict[str, Any]:
        """As plain values for the ledger."""
        obstacles = {
            topic: {"reason": one.reason, "first": one.first_partition} for topic, one in self.obstacles.items()
        }
        return {"version": self.version, "made": dict(self.copyable), "obstacles": obstacles}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TargetTopics:
        """The inverse of :meth:`to_json`."""
        obstacles = {topic: Obstacle(each["reason"], each["first"]) for topic, each in values["obstacles"].items()}
        return cls(copyable=dict(values["made"]), obstacles=obstacles, version=values["version"])


NOT_PREPARED: Final = (
    "it appeared after the flow's target topics were prepared: a stream prepares its target topic within refresh-ms,"
    " a scheduled run the next time"
)


def too_long(flow: FlowConfig, topics: Iterable[str]) -> dict[str, Obstacle]:
    """Those of the source ``topics`` whose target topic would have a name that is longer than any topic's.

    Its characters are legal: those of a source topic and of a cluster's name are.
    """
    names = {topic: flow.target_topic(topic) for topic in topics}
    return {
        topic: Obstacle(
            f"its target topic's name would have {len(name)} characters, and the longest that brokers take has"
            f' {_LONGEST_NAME}; leave it out by topics-exclude, or use naming = "identity", or a shorter name for'
            f" cluster {flow.source}"
        )
        for topic, name in names.items()
        if len(name) > _LONGEST_NAME
    }


def colliding(flow: FlowConfig, topics: Iterable[str], there: Collection[str]) -> dict[str, Obstacle]:
    """Those of the source ``topics`` whose target topic brokers refuse because of another one (``Topic.hasCollision``).

    Names that differ only in "." and "_" collide, since they are the same in the names of metrics. ``there`` are all
    topics of the target; one of these is never refused, and of two new ones it is the second by name.
    """
    existing = {_collision_key(name): name for name in sorted(there)}
    taken: dict[str, str] = {}
    found: dict[str, Obstacle] = {}
    for topic in sorted(topics):
        name = flow.target_topic(topic)
        if name in there:
            continue
        key = _collision_key(name)
        if key in existing:
            what = f"topic {_shown(existing[key])}, which is there"
        elif key in taken:
            what = (
                f"topic {_shown(flow.target_topic(taken[key]))}, which source topic {_shown(taken[key])} is copied to"
            )
        else:
            taken[key] = topic
            continue
        found[topic] = Obstacle(
            f"its target topic {_shown(name)} collides on cluster {flow.target} with {what}: brokers refuse names that"
            " differ only in '.' and '_'; leave one of them out by topics-exclude, delete the other topic if it is not"
            " needed, or use another naming"
        )
    return found


def _collision_key(name: str) -> str:
    """``Topic.unifyCollisionChars``."""
    return name.replace(".", "_")


def _shown(name: str) -> str:
    """``name``, or its beginning: the result that has the reason names its topics in full."""
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
