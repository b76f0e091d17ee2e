"""What a copy knows about the log that it writes to: the topic's id, the log's end, and its leader epoch. Pure.

It is stored with the progress. Without it, a target topic that was deleted and created again, or a log that lost
acknowledged records, would be copied into from the committed offset on, with a gap that nothing shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import FlowError
from mirror.relay.progress.stored_record import Int16, Int32, Int64
from mirror.wire.records import AnyBatch, Batch, is_commit_marker


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMark:
    """A target partition's log as it was known at a commit."""

    topic_id: str
    """Empty if it is not known."""
    end: int
    """The offset after the last append; the log reaches at least this far."""
    leader_epoch: Int32 | None = None
    """An epoch in which the log was seen to reach this far; None if it is not known.

    The append may belong to a later epoch: a broker that was elected again without a broken connection accepts batches
    from a client that does not know the new epoch. So the append is also identified by its producer.
    """
    producer_id: Int64 = -1
    """The producer of the last append; -1: there was no append."""
    batch: tuple[Int16, Int32] | None = None
    """(Producer epoch, base sequence) of the last append by a producer without transactions; otherwise None.

    Batches that such a producer wrote later are not aborted with the attempt, so the producer id does not identify the
    append.
    """
    since: int | None = None
    """In transactions, an exact offset at or before the end: behind it, at most one transaction is in the progress.

    That is the one that has stored the mark, before its data had offsets. None: not known.
    """

    @property
    def is_exact(self) -> bool:
        """Whether nothing that the copy has appended behind the end is in the progress."""
        return self.producer_id < 0 or self.batch is not None or self.since == self.end

    @property
    def exact_end(self) -> int:
        """The end, or an exact offset before it, if one is known: what the copy has appended may be behind it."""
        return self.end if self.is_exact or self.since is None else self.since

    def indexed_end(self, *, exactly_once: bool) -> int | None:
        """Return the target offset to which an offset index reaches if it has all records of the progress.

        None: the end, which was stored before its data had offsets, does not tell. Markers, aborted records and those
        of others take offsets, too, so records of an earlier transaction may be behind it unless ``since`` is known.
        """
        return self.end if not exactly_once or self.is_exact or self.since is not None else None

    def ending_at(self, end: int) -> TargetMark:
        """Return the mark with an exact end."""
        return replace(self, end=end, since=end if self.producer_id >= 0 and self.batch is None else None)

    def may_precede_appends(self, log_end: int) -> bool:
        """Whether the copy may have committed something behind it, in a log that ends at ``log_end``.

        Behind a transaction is its marker, and a later one takes at least two more offsets.
        """
        return log_end > self.end + 1

    # Invariant: A transaction's marker that an election has removed alone loses no record: without it, its data count
    #   as lost.
    # Test: tests/relay/task/test_healing_on_fakes.py::test_marker_that_is_lost_alone_loses_no_record
    def may_lack_marker(self, cut: int) -> bool:
        """Whether its leader epoch, which ended at ``cut``, may have ended between a transaction's data and its marker.

        The marker is in a later epoch then, or an unclean election has removed it.
        """
        return self.producer_id >= 0 and self.batch is None and self.end == cut


def is_other_topic(mark: TargetMark, topic_id: str) -> bool:
    """Whether the records that ``mark`` covers are not in the topic with this id. An empty log lacks none."""
    return mark.end > 0 and bool(mark.topic_id and topic_id) and mark.topic_id != topic_id


def holds_append(fetched: Iterable[Fetched], mark: TargetMark, at: int, until: int) -> bool:
    """Whether the target still holds the append of ``mark``, as far as its batches from offset ``at`` on show.

    They are read with those of open transactions; those from ``until`` on do not count. Needed if the log entered a
    later leader epoch than the mark's below the mark's end: either the append itself is of that epoch, or the log was
    truncated and has grown again.

    Each commit stores its own mark, so everything that a transactional producer wrote after the mark was aborted: a
    batch of that producer that is committed is the append. A producer without transactions may have continued behind
    the loss: its append is identified by its sequence. If compaction has removed the batches at that place, nothing
    can be shown, and no loss is reported.
    """
    expected, in_transaction = at, False
    for batch in (batch for fetch in fetched for batch in fetch.batches if batch.next_offset > at):
        if batch.base_offset > expected:
            return True
        expected = batch.next_offset
        if batch.base_offset < until and _is_append(batch, mark):
            if not batch.is_transactional:
                return True
            in_transaction = True
        elif isinstance(batch, Batch) and batch.is_control and batch.producer_id == mark.producer_id:
            if in_transaction and is_commit_marker(batch):
                return True
            in_transaction = False
        if batch.base_offset >= until and not in_transaction:
            return False
    return False


def is_committed(fetched: Iterable[Fetched], mark: TargetMark, until: int) -> bool:
    """Whether the append of ``mark``, with which the ``fetched`` batches begin, is in no transaction that is open.

    They are read from the last offset in front of the mark's end on, with those of open transactions; those from
    ``until`` on do not count. Others may have written there before the transaction's marker, which is the producer's
    next one. If compaction has removed the batches at that place, nothing can be shown, and it counts as committed.
    """
    expected = mark.end - 1
    for batch in (batch for fetch in fetched for batch in fetch.batches if batch.next_offset >= mark.end):
        if batch.base_offset > expected:
            return True
        expected = batch.next_offset
        if batch.next_offset == mark.end:
            if not (isinstance(batch, Batch) and batch.producer_id == mark.producer_id and not batch.is_control):
                return True  # the last transaction of the copy has ended before
            continue
        if isinstance(batch, Batch) and batch.producer_id == mark.producer_id:
            if batch.is_control:
                # The log cleaner empties the markers of what it has removed.
                return is_commit_marker(batch) or not batch.count
            if not batch.is_transactional:
                return True
        if batch.base_offset >= until:
            return False
    return False


def _is_append(batch: AnyBatch, mark: TargetMark) -> TypeGuard[Batch]:
    if not isinstance(batch, Batch) or batch.is_control or not batch.producer_id == mark.producer_id >= 0:
        return False
    return mark.batch in {None, (batch.producer_epoch, batch.base_sequence)}


class TargetLogTracker:
    """Tracks the target's log over all attempts of one copy.

    If the target partition has another leader epoch than the verified mark, the new leader has to be compared with the
    mark before anything is committed: its acknowledgements do not show what it may have lost.
    """

    def __init__(self) -> None:
        self.verified: TargetMark | None = None
        """The last mark that was committed, or compared with a leader."""
        self.regression: tuple[int, int] | None = None
        """(Acknowledged offset, known end) of an append below the end that the log was known to have."""
        self._compare_epoch: int | None = None
        self._compared_epoch: int | None = None

    def mark_at(
        self, end: int, producer_id: int, batch: tuple[int, int] | None, since: int | None = None
    ) -> TargetMark | None:
        """Return the mark to commit if the log will reach to ``end`` with this append; ``since`` as in the mark."""
        verified = self.verified
        if verified is None or end <= verified.end:
            return verified
        return replace(verified, end=end, producer_id=producer_id, batch=batch, since=since)

    def on_committed(self, mark: TargetMark | None) -> None:
        """A commit has stored ``mark``."""
        if mark is not None and self.regression is None:
            if self.verified is not None and mark.leader_epoch != self.verified.leader_epoch:
                self._compared_epoch = None  # another attempt's, which covers more than what was compared
            self.verified = mark

    def on_compared(self, current: TargetMark | None) -> bool:
        """Take the result of a comparison: the mark that holds for the present leader, or None.

        Returns whether its log holds everything.
        """
        if current is not None and self.verified is not None:
            # A broker that lags behind may describe an earlier epoch than the one that the leader was asked in.
            epochs = [epoch for epoch in (current.leader_epoch, self._compare_epoch) if epoch is not None]
            self._compared_epoch = self._compare_epoch
            self.verified = replace(self.verified, topic_id=current.topic_id, leader_epoch=max(epochs, default=None))
        return current is not None

    def take_regression(self) -> tuple[int, int] | None:
        """Return and clear :attr:`regression`, once the start position was resolved again."""
        below, self.regression = self.regression, None
        return below

    def mark_to_compare(self, leader_epoch: int | None) -> TargetMark | None:
        """Return the mark to compare with the present leader; None if that leader was compared last.

        ``leader_epoch`` is the latest that the client knows. Until the client's metadata is refreshed, it may be older
        than the one in the last comparison.
        """
        verified = self.verified
        if verified is None or leader_epoch is None or leader_epoch in {verified.leader_epoch, self._compared_epoch}:
            return None
        self._compare_epoch = leader_epoch
        return verified


def recreated_error(flow: str, topic: str, mark: TargetMark, topic_id: str) -> FlowError:
    """Return the error of a target ``topic`` that was deleted and created again: the same one for all its partitions.

    ``mark`` is that of the progress of one of them, ``topic_id`` that of the topic now.
    """
    ids = f" (topic id {mark.topic_id}, now {topic_id})" if mark.topic_id and mark.topic_id != topic_id else ""
    return FlowError(
        f"target-recreated: target topic {topic} was deleted{ids}, and made again by a run, as each topic that is"
        f" missing, or by others: nothing that flow {flow} had copied is in it; {_ADVICE_RECREATED}"
    )


def deleted_text(flow: str, topic: str) -> str:
    """Return the line about a target topic that does not exist any more.

    The next run creates it again, and then fails with the error of :func:`recreated_error`.
    """
    return (
        f"target-deleted: target topic {topic} does not exist any more, nor what flow {flow} had copied into it: a run"
        f" makes it again, without that; {_ADVICE_RECREATED}"
    )


def truncated_error(
    flow: str, tp: TopicPartition, mark: TargetMark, cut: int, copied_to: int | None, unhealed: str = ""
) -> FlowError:
    """Return the error of a target log that was truncated to ``cut``, and may have grown again.

    ``copied_to`` is the source offset of the progress; None if there is no progress. ``unhealed`` is the reason why
    what is missing cannot be copied again in order; empty if this was not tried.
    """
    because = f"; they cannot be copied again in order: {unhealed}" if unhealed else ""
    return FlowError(
        f"target-truncated: target {tp} lost records that it had acknowledged: flow {flow} had written up to offset"
        f" {mark.end}, and the log was cut back to {cut}: {mark.end - cut} offsets are missing{_copied(copied_to)}"
        f"{because}; {_ADVICE}"
    )


_ADVICE_RECREATED: Final = (
    'to copy all of it again from the flow\'s start, set on-target-recreated = "start-over", or copy under another flow'
    " name with from"
)
_ADVICE: Final = (
    "to copy all of it again from the flow's start, set start-over = true (what is still in the target is then there"
    " twice), or copy into another target topic, or under another flow name into an emptied one"
)


def _copied(copied_to: int | None) -> str:
    return "" if copied_to is None else f" (the source was copied up to offset {copied_to})"
