"""Discovers new topics and partitions of a stream's source, and has them prepared and copied."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from mirror.spark.discovery.additions import unprepared

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.spark.discovery.comparison import Comparison
    from mirror.spark.ledger.obstacles import TargetTopics

    Assign = Callable[[TargetTopics, Admin, Admin], None]
    """Has copied what is prepared, with clients of the source and of the target. Raises KafkaError."""


_MOST_KNOWN: Final = 8
"""Brokers say the same in different ways, for example in another order."""


class Prepare(Protocol):
    """Prepares target topics."""

    def __call__(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """Prepare these source topics, drop those that are ``gone``, and return all that is prepared.

        Raises MirrorError.
        """
        ...


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

    def discover(self, source: Admin, target: Admin) -> None:
        """Find what is new once, and have it copied. Raises MirrorError."""
        self._find(source)
        self._assign(self.targets, source, target)

    def _find(self, source: Admin) -> None:
        """Prepare what is new. A response in which nothing was new is not decoded when it comes again."""
        listing = source.list_changed_topics(self._known)
        if listing.topics is None:
            return
        if topics := unprepared(self._flow, listing.topics, self.targets):
            self.targets = self._prepare(topics)
        if not unprepared(self._flow, topics, self.targets):
            self._known.append(listing.digest)

    def settle(self, comparison: Comparison, source: Admin, target: Admin) -> None:
        """Prepare what a comparison of all topics has found, and have it copied. Raises MirrorError."""
        lacking, gone = comparison.since(self.targets)
        self.targets = self._prepare(lacking, gone)
        if gone:
            self._known.clear()  # one that has come back meanwhile is new
        self._assign(self.targets, source, target)
