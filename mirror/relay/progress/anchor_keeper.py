"""Writes and deletes the anchors of a task's copies, in a thread that may wait."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from mirror.client import EARLIEST, Admin, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.progress.anchors import Anchor, AnchorKey, key_of, obsolete
from mirror.relay.progress.progress_topic import ProgressTopic

_log: Final = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 10_000
_CLEANED_EVERY: Final = 64
"""After so many anchors of a partition, those that the source's retention has made useless are deleted."""


class AnchorKeeper:
    """The anchors of a flow in its progress topic; may be used by several threads."""

    def __init__(self, source: Admin, topic: ProgressTopic) -> None:
        self._source: Final = source
        self._topic: Final = topic

    def write(self, anchors: Mapping[AnchorKey, Anchor], sources: Mapping[TopicPartition, TopicPartition]) -> bool:
        """Write ``anchors``, and sometimes delete old ones; never raises. ``sources`` are by target partition.

        Returns whether the anchors were written.

        Best effort: a missing anchor makes a search longer, and an old one that remains takes one of a bounded number
        of slots.
        """
        errors = self._topic.write_anchors(anchors, _TIMEOUT_MS)
        if errors:
            _log.info("%d anchors could not be written to the progress topic: %s", len(errors), *[*errors.values()][:1])
            return False
        cleaned = {key.tp for key, anchor in anchors.items() if (anchor.number + 1) % _CLEANED_EVERY == 0}
        if cleaned:
            self._delete_obsolete({tp: sources[tp] for tp in cleaned if tp in sources})
        return True

    def _delete_obsolete(self, sources: Mapping[TopicPartition, TopicPartition]) -> None:
        try:
            starts = self._source.list_offsets(
                dict.fromkeys(sources.values(), EARLIEST), partial=True, timeout_ms=_TIMEOUT_MS
            )
            kept = self._topic.read_anchors(sources.keys(), _TIMEOUT_MS)
        except KafkaError as error:
            _log.info("old anchors were not deleted from the progress topic: %s", error)
            return
        deleted: dict[AnchorKey, Anchor | None] = {
            key_of(tp, anchor): None
            for tp, source in sources.items()
            if source in starts
            for anchor in obsolete(kept[tp], starts[source].offset)
        }
        self._topic.write_anchors(deleted, _TIMEOUT_MS)
