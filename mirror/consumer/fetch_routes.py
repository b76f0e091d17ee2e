"""Which partitions are to be fetched from which broker, kept up to date by what has changed. No I/O."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.metadata import Metadata
from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.consumer.positions import Position, Positions
from mirror.consumer.sessions import Wanted
from mirror.consumer.settings import ConsumerSettings
from mirror.consumer.topic_check import TopicCheck
from mirror.timing import FOREVER_MS
from mirror.wire.messages.fetch import FetchPartition


@dataclass(slots=True)
class PlannedFetch:
    """One partition of a request, with its position at that time, by which late responses are recognised."""

    tp: TopicPartition
    offset: int
    generation: int
    leader_epoch: int
    topic_id: uuid.UUID | None
    position: Position = field(compare=False)


# Invariant: An idle partition costs nothing: only changed partitions, and those of topics whose metadata changed, are
#   decided again.
# Test: tests/consumer/test_fetch_routes.py::test_idle_partitions_cost_nothing
# Test: tests/consumer/test_fetch_routes.py::test_a_change_of_one_topic_concerns_its_partitions_alone
class FetchRoutes:
    """The partitions that may be fetched now, by broker.

    An update costs time for the partitions that changed since the last one, and for those that wait for something:
    metadata, a validation, room in the buffer, the end of a backoff. All others, of which a copy has thousands that are
    idle, cost nothing.
    """

    def __init__(
        self, settings: ConsumerSettings, metadata: Metadata, positions: Positions, topics: TopicCheck
    ) -> None:
        self._max_partition_bytes: Final = settings.max_partition_fetch_bytes
        self._metadata: Final = metadata
        self._positions: Final = positions
        self._topics: Final = topics
        self.by_node: Final[dict[int, dict[TopicPartition, PlannedFetch]]] = defaultdict(dict)
        self.log_ends: Final[dict[TopicPartition, int]] = {}
        """The ends of the logs, by the last responses."""
        self._node_of: Final[dict[TopicPartition, int]] = {}
        self._changed: Final[dict[int, set[TopicPartition]]] = defaultdict(set)
        self._behind: Final[dict[int, set[TopicPartition]]] = defaultdict(set)
        self._waiting: Final[set[TopicPartition]] = set()
        self._metadata_changes = -1

    def update(self, now: int) -> int:
        """Apply the changes of positions and metadata; return ms until a partition's backoff ends."""
        positions = self._positions
        changed = positions.changed_for_fetching | self._waiting
        if self._metadata.changes != self._metadata_changes:
            changed.update(positions.of_topics(self._metadata.changed_since(self._metadata_changes)))
            self._metadata_changes = self._metadata.changes
        positions.changed_for_fetching.clear()  # before the partitions are checked, which may stop some
        wait = FOREVER_MS
        for tp in sorted(changed):  # a full fetch names them in this order, and the broker serves them in it
            self._waiting.discard(tp)
            position = positions.get(tp)
            if position is None or position.fetch is None or position.paused or position.stopped:
                self._remove(tp)
            else:
                wait = min(wait, self._place(tp, position, position.fetch, now))
        return wait

    def take_changed(self, node: int) -> set[TopicPartition]:
        """Return the partitions of ``node`` that changed, came or left since the last call."""
        return self._changed.pop(node, set())

    def is_behind(self, node: int) -> bool:
        """Whether the logs of some of its partitions reach further than what is fetched of them, or may."""
        return bool(self._behind.get(node))

    def topics_behind(self, node: int) -> set[str]:
        """Return the topics of the partitions whose logs reach further than what is fetched of them."""
        return {tp.topic for tp in self._behind[node]}

    def wanted(self, fetch: PlannedFetch) -> Wanted:
        """Return the partition as a fetch session has to contain it."""
        number, most = fetch.tp.partition, self._most
        return Wanted(fetch.topic_id, FetchPartition(number, fetch.offset, most, fetch.leader_epoch))

    @property
    def _most(self) -> int:
        limit = self._positions.partition_limit
        return self._max_partition_bytes if limit is None else min(limit, self._max_partition_bytes)

    def _place(self, tp: TopicPartition, position: Position, offset: int, now: int) -> int:
        leader = self._metadata.leader(tp)
        wait = 0 if position.buffered < self._most else FOREVER_MS
        if not wait:
            wait = position.state.wait_ms(now)
        if wait:
            leader = None
        elif leader is None:
            self._metadata.want((tp.topic,))
            self._metadata.request_update((tp.topic,))
        elif not self._topics.has(tp, position) or position.needs_validation(leader):
            leader = None
        if leader is None:
            self._waiting.add(tp)
            self._remove(tp)
            return wait or FOREVER_MS
        if position.preferred is not None:
            self._waiting.add(tp)  # for the time until which it is used
        node = self._replica(position, leader, now)
        topic_id = self._metadata.topic_id(tp.topic)
        self._put(node, PlannedFetch(tp, offset, position.generation, leader.epoch, topic_id, position))
        return FOREVER_MS

    def _replica(self, position: Position, leader: Leader, now: int) -> int:
        """Return the replica that the leader prefers for this reader (KIP-392), otherwise the leader."""
        if position.preferred is not None:
            if position.preferred_until_ms > now and position.preferred in self._metadata.brokers:
                return position.preferred
            position.preferred = None
        return leader.node

    def _put(self, node: int, fetch: PlannedFetch) -> None:
        tp = fetch.tp
        if self._node_of.get(tp) != node:
            self._remove(tp)
            self._node_of[tp] = node
        if self.by_node[node].get(tp) != fetch:
            self.by_node[node][tp] = fetch
            self._changed[node].add(tp)
        if fetch.offset < self.log_ends.get(tp, fetch.offset + 1):
            self._behind[node].add(tp)
        else:
            self._behind[node].discard(tp)

    def _remove(self, tp: TopicPartition) -> None:
        node = self._node_of.pop(tp, None)
        if node is not None:
            del self.by_node[node][tp]
            self._changed[node].add(tp)
            self._behind[node].discard(tp)
