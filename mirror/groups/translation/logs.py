"""What a round has to know of the flow's partitions: translations, and what the target's logs still have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.client import Admin, Outcomes, TopicPartition
from mirror.cluster.types import EpochEndOffset, OffsetAndMetadata, TopicDescription
from mirror.errors import KafkaTimeout
from mirror.groups.commit_decision import NEVER
from mirror.groups.translation.silent_leaders import SilentLeaders
from mirror.relay.offsets.copy_count import NO_COPIES, CopyCount, Move, Offsets
from mirror.relay.offsets.epoch_ends import EpochEndCalls
from mirror.relay.offsets.index import UNKNOWN, Hole, Place, Translation
from mirror.relay.offsets.log_answers import TopicIds, ids_of
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.translator import OffsetTranslator, Patience
from mirror.timing import Clock

_NO_LEADER: Final = -1
ANSWER_MS: Final = 2_000
_STALL_MS: Final = 5_000
PATIENCE: Final = Patience(ANSWER_MS, _STALL_MS)
"""A leader that does not answer costs a round no more than this; the groups of other leaders go on."""


@dataclass(slots=True)
class PartitionLogs:
    """One source partition and its target partition, as far as a round has read them."""

    offsets: PartitionOffsets | None = None
    """None if they cannot be translated now."""
    problem: str = ""
    """Why not."""
    is_missing: bool = False
    """Whether that is because one of the clusters does not have it."""
    index_end: int = 0
    """The target offset behind the last record that the index has."""
    epoch_ends: dict[int, EpochEndOffset | None] = field(default_factory=dict)
    """Where leader epochs of the target's log end now, by epoch; None: its leader does not offer to say it."""
    leader_epoch: int = NEVER
    """The target's present leader epoch."""
    source_epoch_ends: dict[int, EpochEndOffset | None] = field(default_factory=dict)
    """The same of the source's log."""

    @property
    def indexed_to(self) -> int:
        """The target offset behind the last record that the index has, of the part that is certain; it only grows."""
        return 0 if self.offsets is None else self.offsets.index.known_target_end

    @property
    def unknown_because(self) -> str:
        """Why something is unknown; empty if nothing was looked for in vain."""
        return "" if self.offsets is None else self.offsets.reason

    @property
    def kept_because(self) -> str:
        """Why an offset that the source lacks may have been deleted with its topic; empty if it was not."""
        if self.offsets is None or self.offsets.is_of_known_id:
            return ""
        return "the source's brokers gave the topic no id: it may have been made again, and its offsets deleted with it"

    def read_again(self, offset: int, target_offset: int) -> CopyCount:  # noqa: ARG002 - those of logs of both sides
        """Count the records in front of a source offset that are read again from its translation on."""
        return NO_COPIES

    def moved(self, offset: int, target_offset: int) -> Move | None:
        """Return what a group reads again, and skips, that goes from a source offset to a target offset.

        What the index lacks of it is read in the logs. None if nothing is known as copied. Raises KafkaError.
        """
        if self.offsets is None or not self.offsets.is_of_copied_topic:
            return None
        index = self.offsets.index
        again = self.offsets.copies(Offsets(end=offset), Offsets(start=target_offset))
        skipped = self.offsets.missed(offset, target_offset)
        # Behind the progress, there may be copies that no commit has confirmed yet.
        copied_to, known_to = index.copied_to, max(index.known_target_end, index.target_begin or 0)
        if offset > copied_to:
            unconfirmed = self.offsets.records_between(max(known_to, target_offset), None)
            again = again.or_more(min(offset - copied_to, unconfirmed))
        if target_offset > known_to:
            skipped = skipped.or_more(self.offsets.records_between(known_to, target_offset))
        return Move(again, skipped)

    def of_others(self, target_offset: int) -> int:
        """Count the records in front of a target offset that are no copies: in front of the first one, and of it.

        Very many offsets count as so many records. Raises KafkaError.
        """
        if self.offsets is None or not self.offsets.is_of_copied_topic:
            return 0
        begin = self.offsets.index.target_begin
        if begin is None or target_offset <= begin:
            return 0
        start, end = self.offsets.index.gap_around(target_offset - 1)
        is_behind_copy = end == target_offset - 1 or target_offset > self.indexed_to
        in_front = 0 if is_behind_copy else self.offsets.records_between(start, target_offset)
        return in_front + self.offsets.records_between(0, begin)

    def moved_back(self, target_offset: int, offset: int) -> Move | None:
        """Return the same of a group that goes from a target offset to a source offset. Raises KafkaError."""
        if self.offsets is None or not self.offsets.is_of_copied_topic:
            return None
        again = self.offsets.copies(Offsets(start=offset), Offsets(end=target_offset))
        return Move(again, self.offsets.copies(Offsets(end=offset), Offsets(start=target_offset)))

    def translate(self, offset: int, *, patient: bool = False) -> tuple[Translation, int]:
        """Return the target offset of a source offset, and the source offset up to which records are known.

        What the copy has not written into the index yet is read in the logs; if ``patient``, it is not copied yet.
        Raises KafkaError.
        """
        if self.offsets is None:
            return UNKNOWN, 0
        found = self.offsets.index.translate(offset)
        if patient and isinstance(found, Hole) and found.target_end is None:
            return Translation(Place.NOT_COPIED, found.target_start), found.start
        return self.offsets.translate(offset, found), self.offsets.index.copied_to

    def waits_for_back(self, found: Translation) -> bool:  # noqa: ARG002 - what both sides feed waits for it
        """Whether the flow in the other direction has to copy before a translation goes ahead. Raises KafkaError."""
        return False

    def passed(self, offset: int, found: Translation) -> int:
        """Count the records from a source offset on that the target has deleted in front of its translation.

        Raises KafkaError.
        """
        return 0 if self.offsets is None else self.offsets.passed(offset, found)

    # Invariant: A group that has read what the source has lost continues where a consumer of the source would, by the
    #   leader epoch that it has committed.
    # Test: tests/groups/
    #   test_epochs_on_fakes.py::test_a_group_that_has_read_lost_records_continues_with_the_first_one_that_is_there_now
    # Test: tests/groups/test_logs.py::test_a_group_continues_on_the_source_in_front_of_what_that_has_lost
    def continued_at(self, committed: OffsetAndMetadata) -> int | None:
        """Return the source offset at which a consumer of the source continues from ``committed``, as it does itself.

        If the leader epoch that it has committed ends in front of the offset, the source has lost records since, and
        has others there: it continues where they begin (KIP-320). It continues at the offset without a leader epoch, or
        if the leader does not offer OffsetForLeaderEpoch. None: the log does not know the epoch. Raises KafkaTimeout if
        the source's leader has not answered.
        """
        epoch = committed.leader_epoch
        if epoch is None:
            return committed.offset
        if epoch not in self.source_epoch_ends:
            msg = f"the source's leader has not answered where leader epoch {epoch} ends"
            raise KafkaTimeout(msg)
        end = self.source_epoch_ends[epoch]
        if end is None:
            return committed.offset
        return min(committed.offset, end.end_offset) if end.end_offset >= 0 else None

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


_NONE_OPENED: Final = Outcomes[TopicPartition, PartitionOffsets]({}, {})


class Described(NamedTuple):
    """The topics of both sides; those that do not exist are absent."""

    source: Outcomes[str, TopicDescription]
    target: Outcomes[str, TopicDescription]

    def ids(self) -> TopicIds:
        """Return the ids of the topics."""
        return TopicIds(ids_of(self.source), ids_of(self.target))


class FlowLogs:
    """Opens partitions of a flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self, source: Admin, target: Admin, translator: OffsetTranslator, clock: Clock, timeout_ms: int
    ) -> None:
        self._source: Final = source
        self._target: Final = target
        self._translator: Final = translator
        self._clock: Final = clock
        self._timeout_ms: Final = timeout_ms
        self._silent: Final = SilentLeaders(), SilentLeaders()

    def describe(self, partitions: Mapping[TopicPartition, TopicPartition]) -> Described:
        """Return the topics of these source and target partitions. Raises KafkaError if a cluster does not answer."""
        calls = [
            admin.describe_topics_async(sorted({tp.topic for tp in tps}), self._timeout_ms)
            for admin, tps in ((self._source, partitions.keys()), (self._target, partitions.values()))
        ]
        for error in (error for call in calls for error in call.result().failed.values()):
            if isinstance(error, KafkaTimeout):
                raise error
        return Described(*(call.result() for call in calls))

    def open(
        self,
        partitions: Mapping[TopicPartition, TopicPartition],
        source_epochs: Mapping[TopicPartition, Collection[int]],
        epochs: Mapping[TopicPartition, Collection[int]],
        described: Described | None = None,
    ) -> dict[TopicPartition, PartitionLogs]:
        """Return what is known of these source partitions, whose values are their target partitions. Raises KafkaError.

        ``source_epochs`` and ``epochs`` are the leader epochs of source and target partitions whose ends are needed. A
        partition that does not exist, has no leader, or one that does not answer, cannot be translated now, and does
        not keep the others from it. ``described`` are the partitions' topics, if they are known already.
        """
        described = described or self.describe(partitions)
        leaders = _leaders_of(described.source), _leaders_of(described.target)
        now = self._clock.now()
        found: dict[TopicPartition, PartitionLogs] = {}
        readable: dict[TopicPartition, TopicPartition] = {}
        for source, target in partitions.items():
            problem, is_missing = "", False
            for side, tp in enumerate((source, target)):
                refusal = described[side].failed.get(tp.topic)
                is_missing |= not problem and refusal is None and tp not in leaders[side]
                problem = problem or (str(refusal) if refusal else self._problem(side, tp, leaders[side], now))
            found[source] = self._new(problem)
            found[source].is_missing = is_missing
            if not problem:
                readable[source] = target
                found[source].leader_epoch = leaders[1][target].epoch
        opened = self._opened(readable, described.ids()) if readable else _NONE_OPENED
        for source, error in opened.failed.items():
            found[source].problem = str(error)
        if readable:
            self._take_silent(readable, {source for source, one in opened.items() if one.is_of_copied_topic}, leaders)
        readable = {source: target for source, target in readable.items() if source in opened}
        for source, offsets in opened.items():
            found[source].offsets, found[source].index_end = offsets, self._index_end(offsets)
        wanted = {
            target: {
                epoch
                for epoch in (found[source].leader_epoch, found[source].leader_epoch - 1, *epochs.get(target, ()))
                if epoch > NEVER  # brokers before 2.4 have none that count
            }
            for source, target in readable.items()
        }
        asked = {source: source_epochs.get(source, ()) for source in readable}
        calls = EpochEndCalls(self._target, wanted, ANSWER_MS), EpochEndCalls(self._source, asked, ANSWER_MS)
        ends, source_ends = (call.read(partial=True) for call in calls)
        for source, target in readable.items():
            found[source].epoch_ends, found[source].source_epoch_ends = ends[target], source_ends[source]
        return found

    def _take_silent(
        self,
        partitions: Mapping[TopicPartition, TopicPartition],
        answered: AbstractSet[TopicPartition],
        leaders: Sequence[Mapping[TopicPartition, _Leader]],
    ) -> None:
        """Remember which leaders have not answered; ``answered`` are source partitions of which both have."""
        for side, silent in enumerate(self._not_answered):
            asked = [pair[side] for pair in partitions.items() if pair[0] in answered or pair[side] in silent]
            self._silent[side].take(((leaders[side][tp].node, tp in silent) for tp in asked), self._clock.now())

    def _problem(self, side: int, tp: TopicPartition, leaders: Mapping[TopicPartition, _Leader], now: int) -> str:
        if tp not in leaders:
            return f"there is no partition {tp}"
        node = leaders[tp].node
        if node == _NO_LEADER:
            return f"partition {tp} has no leader"
        rest_ms = self._silent[side].rest_ms(node, now)
        return f"broker {node}, the leader of {tp}, has not answered; it is asked again" if rest_ms else ""

    def _new(self, problem: str) -> PartitionLogs:
        return PartitionLogs(problem=problem)

    @property
    def _not_answered(self) -> tuple[AbstractSet[TopicPartition], AbstractSet[TopicPartition]]:
        """The partitions of source and target whose leaders have not answered when they were opened last."""
        return self._translator.silent

    def _opened(
        self, partitions: Mapping[TopicPartition, TopicPartition], topic_ids: TopicIds
    ) -> Outcomes[TopicPartition, PartitionOffsets]:
        return self._translator.open(partitions, topic_ids)

    # Invariant: Beside a copy, what its index lacks is not read in the logs as long as the index grows: it is not
    #   copied yet.
    # Test: tests/groups/
    #   test_sync_on_fakes.py::test_beside_a_copy_the_end_of_the_index_is_the_end_of_the_copy_until_it_stops_growing
    # Test: tests/groups/
    #   test_both_ways_on_fakes.py::test_beside_the_copy_its_end_is_not_read_in_the_logs_as_long_as_its_index_grows
    @staticmethod
    def _index_end(offsets: PartitionOffsets) -> int:
        return offsets.index.known_target_end


class _Leader(NamedTuple):
    node: int
    epoch: int


def _leaders_of(topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, _Leader]:
    """Return the leader of each partition of the topics that exist."""
    return {
        TopicPartition(name, one.partition): _Leader(one.leader, one.leader_epoch)
        for name, topic in topics.items()
        for one in topic.partitions
    }
