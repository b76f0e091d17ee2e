"""The logs of topics that two flows feed from each other's side under one name: both indexes translate a position."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.client import LATEST, Admin, TopicPartition
from mirror.errors import KafkaError
from mirror.groups.translation.back_logs import BackLogs
from mirror.groups.translation.logs import ANSWER_MS, FlowLogs, PartitionLogs
from mirror.groups.translation.lowest import EndsSeen, appended_from, kept_ends, lowest_position
from mirror.relay.offsets.copy_count import NO_COPIES, CopyCount, Move, Offsets, count_copies
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.wire.integers import INT64_MAX

_MOST_READ: Final = 10_000
"""So many offsets are read at most to find that a log has only copies there, and markers of transactions."""


@dataclass(slots=True)
class BothDirectionsPartition(PartitionLogs):
    """One partition, with the index of the flow, and that of the flow in the other direction."""

    back: PartitionLogs = field(default_factory=PartitionLogs)
    """As the other flow's index has it."""
    seen: list[EndsSeen] = field(default_factory=list)
    """Ends of both logs, from before both indexes were read; the last ones are those of now."""
    target_end: int | None = None
    """The end of the target's log, the same; None if it is not known."""
    copied_back_to: int | None = None
    """Up to where all of the target's own records are copied, also if no progress says so yet; None: not asked for."""
    _read: dict[tuple[int, int], bool] = field(default_factory=dict)

    @property
    def indexed_to(self) -> int:
        """What both indexes have, in any unit; it grows with each of them."""
        return sum(0 if one is None else one.index.known_target_end for one in (self.offsets, self.back.offsets))

    @property
    def unknown_because(self) -> str:
        """Why something is unknown; empty if nothing was looked for in vain."""
        return ("" if self.offsets is None else self.offsets.reason) or self.back.unknown_because

    def passed(self, offset: int, found: Translation) -> int:
        """Count what the target has deleted in front of ``found``: copies, and its own records."""
        return PartitionLogs.passed(self, offset, found) + self.back.passed(offset, found)

    def of_others(self, target_offset: int) -> int:  # noqa: ARG002 - those of others are the target's own
        """Return 0: positions are in front of the target's own records that a group has not read."""
        return 0

    def translate(self, offset: int, *, patient: bool = False) -> tuple[Translation, int]:
        """Return the lowest target offset of both translations, and ``offset``. Raises KafkaError."""
        if self.offsets is None or self.back.offsets is None:
            return UNKNOWN, 0
        ahead, _ = PartitionLogs.translate(self, offset, patient=patient)
        back, _ = self.back.translate(max(offset, self.back.offsets.first_copy_at or 0), patient=patient)
        # Up to the copied end, there is no record behind the offset if the index says so.
        empty_to = self.offsets.index.copied_to if ahead.place is Place.END else offset
        appended = appended_from(self.seen, empty_to)
        found = lowest_position(ahead, back, appended, self.target_end)
        if ahead.place is Place.NOT_COPIED or found.place is not Place.NOT_COPIED or not self.seen:
            return found, offset
        if not patient:
            ends = self.seen[-1]
            if ahead.place is Place.END and self._has_only_copies(self.back.offsets, empty_to, ends.source):
                appended = ends.target
            if back.place is Place.END:
                back = back._replace(offset=max(back.offset or 0, self._read_copied_back_to(ends.target)))
            found = lowest_position(ahead, back, appended, self.target_end)
        is_end = ahead.place is Place.END and found.offset is not None
        if is_end and self.read_again(offset, found.offset or 0) == NO_COPIES:
            found = found._replace(place=Place.END)
        return found, offset

    def waits_for_back(self, found: Translation) -> bool:
        """Whether the target has a record of its own there that the source lacks, as far as it is certain.

        What is behind the copies that are known may be copies of what is not committed as copied. Raises KafkaError.
        """
        at = self.copied_back_to
        if found.place is not Place.NOT_COPIED or found.offset != at or at is None or self.offsets is None:
            return False
        index, ends = self.offsets.index, self.seen[-1]
        if at < min(index.known_target_end, ends.target):
            return True
        return self.offsets.records_between(at, ends.target) > max(0, ends.source - index.copied_to)

    def _has_only_copies(self, copies: PartitionOffsets, start: int, end: int) -> bool:
        """Whether the source has only copies there: of few offsets, that is read, and once."""
        if end - start > _MOST_READ:
            return False
        if (start, end) not in self._read:
            self._read[start, end] = start >= end or copies.has_only_copies(start, end)
        return self._read[start, end]

    # Invariant: A group's position in what the flow has copied is exact also if the flow in the other direction is
    #   held, and has not passed these copies.
    # Test: tests/groups/
    #   test_both_directions_on_fakes.py::test_a_group_goes_home_while_the_flow_that_brought_it_away_is_held
    # Test: tests/relay/offsets/test_copies_end.py::test_copies_end_in_front_of_what_is_no_copy
    def _read_copied_back_to(self, target_end: int) -> int:
        """Return up to where the target has no record of its own that the source lacks. Raises KafkaError.

        Behind the other flow's progress, this flow's copies are such: that one does not pass them while it is held.
        """
        if self.copied_back_to is None and self.offsets is not None and self.back.offsets is not None:
            start = self.back.offsets.index.copied_to
            self.copied_back_to = self.offsets.copies_end(start, max(start, target_end), _MOST_READ)
        return self.copied_back_to or 0

    def read_again(self, offset: int, target_offset: int) -> CopyCount:
        """Count the records in front of a source offset that are read again from a target offset on.

        What was compacted since it was copied is counted, too. What is not copied yet, or not known as copied, makes
        the count one of at most so many records.
        """
        if self.offsets is None or self.back.offsets is None:
            return NO_COPIES
        index, others = self.offsets.index, self.back.offsets.index
        read, again = Offsets(end=offset), Offsets(start=target_offset)
        found = [count_copies(index, read, again), count_copies(others, again, read)]
        copied_back_to = max(others.copied_to, self.copied_back_to or 0)
        others_left = INT64_MAX if self.target_end is None else max(0, self.target_end - copied_back_to)
        at_most = max(0, offset - index.copied_to)
        at_most += max(0, min(offset - others.known_target_end, others_left))
        records = sum(one.records for one in found) + at_most
        return CopyCount(records, is_exact=not at_most and all(one.is_exact for one in found))

    def moved(self, offset: int, target_offset: int) -> Move | None:
        """Return what a group reads again and skips, of what either side has produced. Raises KafkaError."""
        if self.offsets is None or self.back.offsets is None:
            return None
        index, others = self.offsets.index, self.back.offsets.index
        unread, passed = Offsets(start=offset), Offsets(end=target_offset)
        found = count_copies(index, unread, passed), count_copies(others, passed, unread)
        skipped = CopyCount(sum(one.records for one in found), is_exact=all(one.is_exact for one in found))
        copied_back_to = max(others.copied_to, others.begin or 0, self.copied_back_to or 0)
        skipped = skipped.or_more(max(0, target_offset - copied_back_to))  # the target's own, which the source lacks
        return Move(self.read_again(offset, target_offset), skipped)


class BothDirectionsLogs:
    """Opens partitions that both flows feed. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, source: Admin, target: Admin, ahead: FlowLogs, back: BackLogs, other: str) -> None:
        """``other`` is the flow in the other direction, whose index ``back`` reads."""
        self._source: Final = source
        self._target: Final = target
        self._ahead: Final = ahead
        self._back: Final = back
        self._other: Final = other
        self._seen: Final[dict[TopicPartition, list[EndsSeen]]] = {}

    def open(
        self,
        partitions: Mapping[TopicPartition, TopicPartition],
        source_epochs: Mapping[TopicPartition, Collection[int]],
        epochs: Mapping[TopicPartition, Collection[int]],
    ) -> dict[TopicPartition, PartitionLogs]:
        """Do what :meth:`FlowLogs.open` does. Raises KafkaError; what the other index fails with is a problem."""
        described = self._ahead.describe(partitions)
        ends = self._ends(partitions)
        ahead = self._ahead.open(partitions, source_epochs, epochs, described)
        try:
            back = self._back.open(partitions, {}, {}, described)
        except KafkaError as error:
            problem = f"the index of flow {self._other}: {error}"
            back = {source: PartitionLogs(problem=problem) for source in partitions}
        return {source: self._both(source, ahead[source], back[source], ends.get(source)) for source in partitions}

    def _both(
        self, source: TopicPartition, ahead: PartitionLogs, back: PartitionLogs, latest: EndsSeen | None
    ) -> BothDirectionsPartition:
        copied_to = 0 if ahead.offsets is None else ahead.offsets.index.copied_to
        seen = self._seen[source] = kept_ends(self._seen.get(source, ()), latest, copied_to)
        return BothDirectionsPartition(
            offsets=ahead.offsets,
            problem=ahead.problem or back.problem,
            is_missing=ahead.is_missing,
            index_end=ahead.index_end,
            epoch_ends=ahead.epoch_ends,
            leader_epoch=ahead.leader_epoch,
            source_epoch_ends=ahead.source_epoch_ends,
            back=back,
            seen=seen if latest is not None else [],
            target_end=None if latest is None else latest.target,
        )

    def _ends(self, partitions: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, EndsSeen]:
        """Return the ends of the logs whose leaders answer: the target's first."""
        targets = self._target.list_offsets_async(dict.fromkeys(partitions.values(), LATEST), timeout_ms=ANSWER_MS)
        of_target = targets.result()
        answered = {source: target for source, target in partitions.items() if target in of_target}
        sources = self._source.list_offsets_async(dict.fromkeys(answered, LATEST), timeout_ms=ANSWER_MS)
        of_source = sources.result()
        return {
            source: EndsSeen(of_target[target].offset, of_source[source].offset, of_target[target].leader_epoch)
            for source, target in answered.items()
            if source in of_source
        }
