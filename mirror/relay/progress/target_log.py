"""What a copy knows of the log that it writes to: which topic's it is, how far it reaches, in which epoch. Pure.

It is kept with the progress. A target topic that was deleted and made again, or a log that lost what it had
acknowledged, would otherwise be copied into from the kept offset on, with a gap that nothing shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched, without_aborted
from mirror.errors import FlowError
from mirror.relay.progress import stored_json as stored
from mirror.wire.records import AnyBatch, Batch

if TYPE_CHECKING:
    from mirror.relay.progress.committed import Progress

_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMark:
    """A target partition's log as it was known at a commit.

    It reaches at least to ``end``, the offset behind the last append; ``leader_epoch`` is one in which the log was seen
    to reach so far. The append may belong to a later epoch: a broker that was elected again without a broken connection
    takes batches from a client that does not know of it. So ``producer_id`` is kept as well, that of the last append
    (-1: there was none). ``batch`` is (producer epoch, base sequence) of that append, where what the same producer
    wrote behind it is not aborted with the attempt; None otherwise. ``topic_id`` is empty, and ``leader_epoch`` None,
    where they are not known.
    """

    topic_id: str
    end: int
    leader_epoch: int | None = None
    producer_id: int = -1
    batch: tuple[int, int] | None = None

    def to_fields(self) -> dict[str, Any]:
        """As JSON keeps it."""
        about = {"id": self.topic_id, "end": self.end, "epoch": self.leader_epoch, "producer": self.producer_id}
        return about if self.batch is None else {**about, "batch": list(self.batch)}


def mark_of(value: object) -> TargetMark | None:
    """The inverse of :meth:`TargetMark.to_fields`; None for anything else, as version 0.1 wrote it."""
    about = value if isinstance(value, dict) else {}
    end, producer_id = stored.number(about.get("end")), stored.number(about.get("producer"))
    if end is None:
        return None
    return TargetMark(
        topic_id=stored.text(about.get("id")),
        end=end,
        leader_epoch=stored.number(about.get("epoch"), _INT32_MAX),
        producer_id=-1 if producer_id is None else producer_id,
        batch=_batch_of(about.get("batch")),
    )


def _batch_of(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - producer epoch, sequence
        return None
    epoch, sequence = stored.number(value[0], _INT16_MAX), stored.number(value[1], _INT32_MAX)
    return None if epoch is None or sequence is None else (epoch, sequence)


def is_other_topic(mark: TargetMark, topic_id: str) -> bool:
    """Whether what ``mark`` speaks of is not in the topic that has this id now; nothing is missing of an empty log."""
    return mark.end > 0 and bool(mark.topic_id and topic_id) and mark.topic_id != topic_id


def holds_append(fetched: Iterable[Fetched], mark: TargetMark, at: int) -> bool:
    """Whether the target still holds the append that ``mark`` speaks of, as far as its batches from ``at`` on tell.

    Asked where the log has a leader epoch later than the mark's below the mark's end: either the append itself is of
    that epoch, or the log was cut back and has grown again. Each commit brings its own mark, so that whatever a
    transactional producer wrote after the mark was aborted: a batch of its own that is not aborted is the append. One
    without transactions may have gone on behind the loss: its append is known by its sequence. Where compaction has
    removed what stood there, nothing can be told, and nothing is to be alarmed about.
    """
    expected = at
    for one in fetched:
        for batch, aborted in without_aborted(one.batches, one.aborted):
            if batch.next_offset <= at:
                continue
            if batch.base_offset > expected:
                return True
            if not (aborted or batch.is_control) and _is_append(batch, mark):
                return True
            expected = batch.next_offset
    return False


def _is_append(batch: AnyBatch, mark: TargetMark) -> bool:
    if not isinstance(batch, Batch) or not batch.producer_id == mark.producer_id >= 0:
        return False
    return mark.batch in {None, (batch.producer_epoch, batch.base_sequence)}


class TargetLogTracker:
    """The mark of one copy, over all its attempts: ``verified`` is the last one that was kept, or compared.

    Where the target partition has another leader epoch than that, it has to be compared before anything is committed:
    what the new leader acknowledges says nothing of what it may have lost.
    """

    def __init__(self) -> None:
        self.verified: TargetMark | None = None
        self.regression: tuple[int, int] | None = None
        """(acknowledged offset, known end): an append went where the log had been known to reach further."""
        self._asked_in: int | None = None
        self._compared_in: int | None = None

    def mark_at(self, end: int, producer_id: int, batch: tuple[int, int] | None) -> TargetMark | None:
        """The mark of a commit, where the log reaches to ``end`` by then, with this append."""
        known = self.verified
        if known is None or end <= known.end:
            return known
        return replace(known, end=end, producer_id=producer_id, batch=batch)

    def on_committed(self, mark: TargetMark | None) -> None:
        """A commit has kept ``mark``."""
        if mark is not None and self.regression is None:
            self.verified = mark

    def on_compared(self, now: TargetMark | None) -> bool:
        """The present leader was asked; whether its log has all (``now`` is the mark that holds for it)."""
        if now is not None and self.verified is not None:
            # A broker that was behind may have described an earlier epoch than the one that the leader was asked in.
            epochs = [epoch for epoch in (now.leader_epoch, self._asked_in) if epoch is not None]
            self._compared_in = self._asked_in
            self.verified = replace(self.verified, topic_id=now.topic_id, leader_epoch=max(epochs, default=None))
        return now is not None

    def take_regression(self) -> tuple[int, int] | None:
        """:attr:`regression`, once: the target has been settled again since."""
        low, self.regression = self.regression, None
        return low

    def mark_to_compare(self, leader_epoch: int | None) -> TargetMark | None:
        """The mark to ask the present leader for, where it is not the one that was compared last.

        ``leader_epoch`` is as the client last heard. It may also be older than the one that was described then, until
        the client's metadata is due.
        """
        known = self.verified
        if known is None or leader_epoch is None or leader_epoch in {known.leader_epoch, self._compared_in}:
            return None
        self._asked_in = leader_epoch
        return known


def recreated_error(
    flow: str, tp: TopicPartition, mark: TargetMark, topic_id: str, progress: Progress | None
) -> FlowError:
    """The target topic was deleted and made again."""
    ids = f" (topic id {mark.topic_id}, now {topic_id})" if mark.topic_id and mark.topic_id != topic_id else ""
    return FlowError(
        f"target-recreated: target {tp} was deleted and made again{ids}: the log that flow {flow} had copied into"
        f" reached to offset {mark.end}, and nothing of it is here{_copied(progress)}; {_ADVICE}"
    )


def truncated_error(flow: str, tp: TopicPartition, mark: TargetMark, cut: int, progress: Progress | None) -> FlowError:
    """The target's log was cut back to ``cut``, and may have grown again."""
    return FlowError(
        f"target-truncated: target {tp} lost records that it had acknowledged: flow {flow} had written up to offset"
        f" {mark.end}, and the log was cut back to {cut}: {mark.end - cut} offsets are missing{_copied(progress)};"
        f" {_ADVICE}"
    )


_ADVICE: Final = (
    "to copy all of it again from the flow's start, set start-over = true (what is still in the target is then there"
    " twice), or copy into another target topic, or under another flow name into an emptied one"
)


def _copied(progress: Progress | None) -> str:
    return "" if progress is None else f" (the source was copied up to offset {progress.offset})"
