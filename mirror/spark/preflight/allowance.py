"""What a flow may still create: a source without end must not make it create without end; a plan lists it. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.client import NewTopic
    from mirror.config.models import FlowConfig

_PERIOD_MS: Final = 60 * 60 * 1000


class Allowance:
    """What one run of a flow has created; what is older than an hour, in a stream, does not count any more."""

    def __init__(self) -> None:
        self._created: Final = deque[tuple[int, int, int]]()
        """When (ms), how many topics, how many partitions."""

    def fitting(self, flow: FlowConfig, new: Mapping[str, int], now_ms: int, *, topics: bool) -> dict[str, int]:
        """Return those of the ``new`` partitions, by topic and in the order of names, that fit into the flow's limits.

        ``topics``: their topics are new, too. ``now_ms`` is of a clock that never goes back.
        """
        while self._created and now_ms - self._created[0][0] >= _PERIOD_MS:
            self._created.popleft()
        left_topics = flow.max_new_topics - sum(one[1] for one in self._created)
        left_partitions = flow.max_partitions - sum(one[2] for one in self._created)
        found: dict[str, int] = {}
        for name, count in sorted(new.items()):
            if (topics and left_topics < 1) or left_partitions < count:
                continue
            found[name] = count
            left_topics -= topics
            left_partitions -= count
        return found

    def spend(self, now_ms: int, *, topics: int, partitions: int) -> None:
        """Count what was created."""
        if topics or partitions:
            self._created.append((now_ms, topics, partitions))


class PlannedTopics(NamedTuple):
    """The topics that a plan has; others are neither created nor extended."""

    new: Mapping[str, NewTopic]
    """By target topic."""
    extended: Mapping[str, int]
    """The new partition count by target topic."""
    own: Collection[str]
    """Those that the flow itself writes, on the target."""
    own_on_source: Collection[str]

    def of_new(self, wanted: Mapping[str, NewTopic]) -> dict[str, NewTopic]:
        """Return those of the ``wanted`` topics that the plan has with as many partitions, as the plan has them."""
        found = {name: topic for name, topic in self.new.items() if name in wanted}
        return {name: topic for name, topic in found.items() if topic.partitions == wanted[name].partitions}

    def of_extended(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return those of the ``wanted`` new partition counts, by target topic, that the plan has."""
        return {name: count for name, count in wanted.items() if self.extended.get(name) == count}
