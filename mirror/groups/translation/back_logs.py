"""The logs of a copy seen from its end: what is translated are offsets of the copy, to those of the original."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mirror.client import Outcomes, TopicPartition
from mirror.groups.translation.logs import FlowLogs, PartitionLogs
from mirror.relay.offsets.index import UNKNOWN, Hole, Place, Translation
from mirror.relay.offsets.log_answers import TopicIds
from mirror.relay.offsets.partition_offsets import PartitionOffsets


@dataclass(slots=True)
class BackPartitionLogs(PartitionLogs):
    """One partition of a copy, which is the source here, and the original, which is the target."""

    def translate(self, offset: int, *, patient: bool = False) -> tuple[Translation, int]:
        """Return the original's offset of one of the copy, and the copy's offset up to which records are known.

        Otherwise as for :class:`PartitionLogs`. Raises KafkaError.
        """
        if self.offsets is None:
            return UNKNOWN, 0
        found = self.offsets.index.translate_back(offset) if patient else None
        if isinstance(found, Hole) and found.target_end is None:
            return Translation(Place.NOT_COPIED, found.start), found.target_start
        return self.offsets.translate_back(offset), offset

    def passed(self, offset: int, found: Translation) -> int:
        """Count what the original has deleted in front of the translation of an offset of the copy."""
        return 0 if self.offsets is None else self.offsets.passed_back(offset, found)


class BackLogs(FlowLogs):
    """Opens partitions of a copy. The translator is that of the flow that has made it."""

    def _new(self, problem: str) -> PartitionLogs:
        return BackPartitionLogs(problem=problem)

    @property
    def _not_answered(self) -> tuple[AbstractSet[TopicPartition], AbstractSet[TopicPartition]]:
        originals, copies = self._translator.silent
        return copies, originals

    def _opened(
        self, partitions: Mapping[TopicPartition, TopicPartition], topic_ids: TopicIds
    ) -> Outcomes[TopicPartition, PartitionOffsets]:
        copies = {original: copy for copy, original in partitions.items()}
        found = self._translator.open(copies, TopicIds(topic_ids.target, topic_ids.source))
        return Outcomes(
            {copies[original]: offsets for original, offsets in found.items()},
            {copies[original]: error for original, error in found.failed.items()},
        )

    @staticmethod
    def _index_end(_: PartitionOffsets) -> int:
        return 0  # how far the original's log is the one that was copied, the index does not say
