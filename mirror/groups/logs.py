"""What a round has to know of the flow's partitions: translations, and what the target's logs still have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.client import Admin, Outcomes, TopicPartition
from mirror.cluster.types import EpochEndOffset, OffsetAndMetadata, TopicDescription
from mirror.errors import KafkaTimeout
from mirror.groups.decision import NEVER
from mirror.relay.offsets.epoch_ends import read_epoch_ends
from mirror.relay.offsets.index import UNKNOWN, Hole, Place, Translation
from mirror.relay.offsets.translator import OffsetTranslator, PartitionOffsets, Patience

_NO_LEADER: Final = -1
_ANSWER_MS: Final = 2_000
_STALL_MS: Final = 5_000
PATIENCE: Final = Patience(_ANSWER_MS, _STALL_MS)
"""A leader that does not answer costs a round no more than this; the groups of other leaders go on."""


@dataclass(slots=True)
class PartitionLogs:
    """One source partition and its target partition, as far as a round has read them."""

    offsets: PartitionOffsets | None = None
    """None if they cannot be translated now."""
    problem: str = ""
    """Why not."""
    index_end: int = 0
    """The target offset behind the last record that the index has."""
    epoch_ends: dict[int, EpochEndOffset] = field(default_factory=dict)
    """Where leader epochs of the target's log end now, by epoch."""
    leader_epoch: int = NEVER
    """The target's present leader epoch."""
    source_epoch_ends: dict[int, EpochEndOffset] = field(default_factory=dict)
    """Where leader epochs of the source's log end now, by epoch."""

    def translate(self, offset: int, *, patient: bool = False) -> tuple[Translation, int]:
        """Return the target offset of a source offset, and the source offset up to which records are known.

        What the copy has not written into the index yet is read in the logs; if ``patient``, it is not copied yet.
        Raises KafkaError.
        """
        if self.offsets is None:
            return UNKNOWN, 0
        tail = self._tail(offset) if patient else None
        if tail is not None:
            return Translation(Place.NOT_COPIED, tail.target_start), tail.start
        return self.offsets.translate(offset), self.offsets.index.copied_to

    def continued_at(self, committed: OffsetAndMetadata) -> int | None:
        """Return the source offset at which a consumer of the source continues from ``committed``, as it does itself.

        If the leader epoch that it has committed ends in front of the offset, the source has lost records since, and
        has others there: it continues where they begin (KIP-320). None: the log does not know the epoch. Raises
        KafkaTimeout if the source's leader has not answered.
        """
        epoch = committed.leader_epoch
        if epoch is None:
            return committed.offset
        end = self.source_epoch_ends.get(epoch)
        if end is None:
            msg = f"the source's leader has not answered where leader epoch {epoch} ends"
            raise KafkaTimeout(msg)
        return min(committed.offset, end.end_offset) if end.end_offset >= 0 else None

    def _tail(self, offset: int) -> Hole | None:
        found = None if self.offsets is None else self.offsets.index.translate(offset)
        return found if isinstance(found, Hole) and found.target_end is None else None

    def epoch_at(self, target_offset: int) -> int:
        """Return a leader epoch that has records, in which the target's log has reached this offset.

        The present one may have none. Then the next leader does not know of it (``LeaderEpochFileCache``), which would
        look like a loss.
        """
        for epoch in (self.leader_epoch - 1, self.leader_epoch):
            end = self.epoch_ends.get(epoch)
            if end is not None and end.leader_epoch >= 0 and end.end_offset >= target_offset:
                return end.leader_epoch
        return NEVER

    def standing(self, target_offset: int, epoch: int) -> int | None:
        """Return up to which target offset the log is the one that had reached ``target_offset`` in ``epoch``.

        None: up to there, or that is not known; 0: it is not, and nothing more is known. Logs that have records of the
        same epoch are equal up to its end in one of them; a smaller epoch proves nothing (KIP-101).
        """
        end = self.epoch_ends.get(epoch)
        if end is None or (end.leader_epoch == epoch and end.end_offset >= target_offset):
            return None
        known = end.end_offset if end.leader_epoch == epoch else 0
        return min(max(known, self.index_end), target_offset)


class FlowLogs:
    """Opens partitions of a flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, source: Admin, target: Admin, translator: OffsetTranslator, timeout_ms: int) -> None:
        self._source: Final = source
        self._target: Final = target
        self._translator: Final = translator
        self._timeout_ms: Final = timeout_ms

    def open(
        self,
        partitions: Mapping[TopicPartition, TopicPartition],
        source_epochs: Mapping[TopicPartition, Collection[int]],
        epochs: Mapping[TopicPartition, Collection[int]],
    ) -> dict[TopicPartition, PartitionLogs]:
        """Return what is known of these source partitions, whose values are their target partitions. Raises KafkaError.

        ``source_epochs`` and ``epochs`` are the leader epochs of source and target partitions whose ends are needed. A
        partition that does not exist, or has no leader, cannot be translated now, and does not keep the others from it.
        """
        leaders = [
            self._leaders(self._source, {tp.topic for tp in partitions}),
            self._leaders(self._target, {tp.topic for tp in partitions.values()}),
        ]
        found: dict[TopicPartition, PartitionLogs] = {}
        readable: dict[TopicPartition, TopicPartition] = {}
        for source, target in partitions.items():
            found[source] = self._new(_problem(source, leaders[0]) or _problem(target, leaders[1]))
            if not found[source].problem:
                readable[source] = target
                found[source].leader_epoch = leaders[1][target][1]
        opened = self._opened(readable) if readable else Outcomes[TopicPartition, PartitionOffsets]({}, {})
        for source, error in opened.failed.items():
            found[source].problem = str(error)
            del readable[source]
        for source, offsets in opened.items():
            found[source].offsets, found[source].index_end = offsets, self._index_end(offsets)
        wanted = {
            target: {found[source].leader_epoch, found[source].leader_epoch - 1, *epochs.get(target, ())} - {NEVER}
            for source, target in readable.items()
        }
        ends = read_epoch_ends(self._target, wanted, _ANSWER_MS, partial=True)
        asked = {source: source_epochs.get(source, ()) for source in readable}
        source_ends = read_epoch_ends(self._source, asked, _ANSWER_MS, partial=True)
        for source, target in readable.items():
            found[source].epoch_ends, found[source].source_epoch_ends = ends[target], source_ends[source]
        return found

    def _new(self, problem: str) -> PartitionLogs:
        return PartitionLogs(problem=problem)

    def _opened(
        self, partitions: Mapping[TopicPartition, TopicPartition]
    ) -> Outcomes[TopicPartition, PartitionOffsets]:
        return self._translator.open(partitions)

    @staticmethod
    def _index_end(offsets: PartitionOffsets) -> int:
        return offsets.index.known_target_end

    def _leaders(self, admin: Admin, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the leader and its epoch of each partition of the topics that exist."""
        found: Mapping[str, TopicDescription] = admin.describe_topics(
            sorted(topics), partial=True, timeout_ms=self._timeout_ms
        )
        return {
            TopicPartition(name, one.partition): (one.leader, one.leader_epoch)
            for name, topic in found.items()
            for one in topic.partitions
        }


def _problem(tp: TopicPartition, leaders: Mapping[TopicPartition, tuple[int, int]]) -> str:
    if tp not in leaders:
        return f"there is no partition {tp}"
    return f"partition {tp} has no leader" if leaders[tp][0] == _NO_LEADER else ""
