"""Checks that the topic under a name is still the one that a position belongs to (KIP-516). No I/O."""

from __future__ import annotations

from typing import Final

from mirror.cluster.metadata import Metadata
from mirror.cluster.types import TopicPartition
from mirror.consumer.positions import Position, Positions
from mirror.errors import TopicRecreated

_MAX_MISMATCHES: Final = 3
"""Metadata responses in a row that must have another topic id: a broker that lags still has the former one."""
_RECREATION_MS: Final = 1_000
"""Deleting a topic, creating it again and filling it beyond the position takes longer than this."""


# Invariant: A position belongs to a topic id: a topic that was created again under the name is reported, never read on.
# Test: tests/consumer/test_review.py::test_a_recreated_topic_is_reported_not_read_on
class TopicCheck:
    """Stops positions whose topic was recreated: the same offset is another record there."""

    def __init__(self, metadata: Metadata, positions: Positions, long_poll_ms: int) -> None:
        self._metadata = metadata
        self._positions = positions
        self._patience_ms = long_poll_ms + _RECREATION_MS

    def has(self, tp: TopicPartition, position: Position) -> bool:
        """Return whether the metadata has the topic that the position belongs to.

        Where it has another topic id, it is requested again, as either side may be out of date. After
        ``_MAX_MISMATCHES`` such responses in a row the position stops with TopicRecreated.
        """
        metadata = self._metadata
        found = metadata.topic_id(tp.topic)
        is_other = position.is_of_other_topic(found)
        if (is_other or position.topic_unconfirmed) and not metadata.covers(tp.topic, position.recheck_request):
            metadata.request_covering(tp.topic, position.recheck_request)
            return False
        if not is_other:
            position.id_mismatches, position.topic_unconfirmed = 0, False
            return True
        position.id_mismatches += 1
        if position.id_mismatches < _MAX_MISMATCHES:
            position.recheck_request = metadata.next_request
            metadata.request_update((tp.topic,))
        else:
            text = f"{tp}: the topic was deleted and made again under its name"
            self._positions.stop(tp, TopicRecreated(f"{text} (topic id {position.topic_id}, now {found})"))
        return False

    def is_unconfirmed(self, tp: TopicPartition, position: Position, now: int) -> bool:
        """Return whether a response that names the topic (Fetch before version 13) may be from another topic.

        The metadata may be older than the seek, or than a silence in which the topic was recreated. While a Fetch is
        pending, its response reports a deletion. The position is fetched again after the next metadata response.
        """
        if position.last_response_ms is not None and now - position.last_response_ms > self._patience_ms:
            position.recheck_request = self._metadata.next_request
        position.topic_unconfirmed = position.topic_id is not None and not self._metadata.covers(
            tp.topic, position.recheck_request
        )
        return position.topic_unconfirmed
