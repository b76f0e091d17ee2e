"""Whether a position's topic is still the one under its name (KIP-516)."""

from __future__ import annotations

from typing import Final

from mirror.cluster.metadata import Metadata
from mirror.cluster.types import TopicPartition
from mirror.consumer.positions import Position, Positions
from mirror.errors import TopicRecreated

_DENIALS: Final = 3
"""So many answers of metadata in a row must have another topic: a broker that lags still has the former one."""
_UNHEARD_MS: Final = 1_000
"""To be deleted, made again and filled beyond the position takes a topic longer."""


class TopicCheck:
    """Stops positions whose topic was made again: the same offset means another record there."""

    def __init__(self, metadata: Metadata, positions: Positions, long_poll_ms: int) -> None:
        self._metadata = metadata
        self._positions = positions
        self._patience_ms = long_poll_ms + _UNHEARD_MS

    def has(self, tp: TopicPartition, position: Position) -> bool:
        """Whether metadata has the topic that the position is one in: in another one it would mean other records.

        Where it has another one, brokers are asked again: either side may be out of date. A position that is not in
        their topic stops.
        """
        metadata = self._metadata
        found = metadata.topic_id(tp.topic)
        denied = position.is_outside(found)
        if (denied or position.unproven) and metadata.answered < position.proof:
            if metadata.next_request <= position.proof:
                metadata.request_update()
            return False
        if not denied:
            position.denials, position.unproven = 0, False
            return True
        position.denials += 1
        if position.denials < _DENIALS:
            position.proof = metadata.next_request
            metadata.request_update()
        else:
            text = f"{tp}: the topic was deleted and made again under its name"
            self._positions.stop(tp, TopicRecreated(f"{text} (topic id {position.topic_id}, now {found})"))
        return False

    def is_unproven(self, position: Position, now: int) -> bool:
        """Whether an answer by the topic's name may be from another topic: metadata is asked, then it comes again.

        Metadata may be older than the seek, or than a silence in which the topic was made again. While a Fetch is
        under way, a deletion is its answer.
        """
        if position.heard_ms is not None and now - position.heard_ms > self._patience_ms:
            position.proof = self._metadata.next_request
        position.unproven = position.topic_id is not None and self._metadata.answered < position.proof
        return position.unproven
