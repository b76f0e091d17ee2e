"""Which groups a flow keeps the positions of, by its group topic on the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mirror.groups.intents import StoredIntents
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.timing import Clock

_TIMEOUT_MS: Final = 20_000


class KeptGroups:
    """Its calls wait for the target; use it in one thread."""

    def __init__(self, target_options: Mapping[str, object], flow: str, clock: Clock) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._topic: Final = FlowTopic(target_options, group_topic_of(flow))
        self._clock: Final = clock
        self._intents: Final = StoredIntents()
        self._followed: FollowedTopic | None = None

    def close(self) -> None:
        """Close the connections that the calls have opened."""
        if self._followed is not None:
            self._followed.close()

    def names(self) -> frozenset[str] | None:
        """Return the groups of which the flow has committed a position; None without the topic. Raises KafkaError."""
        if self._followed is None:
            self._followed = FollowedTopic(self._topic)
        intents = self._intents
        self._followed.follow(
            self._clock,
            _TIMEOUT_MS,
            clear=intents.clear,
            take=lambda record: intents.take(record.key, record.value, record.offset),
        )
        return frozenset(intents.partitions()) if self._followed.topic_id else None
