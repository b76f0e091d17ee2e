"""The results of ranges whose tasks did not answer, as far as the progress on the target shows them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import CountBasis, Outcome, Range, RangeResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.relay.progress.committed import Progress

_LOST: Final = "its task was lost before it could answer"
_CUT_SHORT: Final = "the run was cut short before its task could answer"


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """The progress that was read from the target at the end of a run."""

    progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    """By target partition."""
    error: str | None = None
    """Why it could not be read, in one line; None if it was read."""


def target_partition(range_: Range) -> TopicPartition:
    """Return the target partition, under which the range's progress is committed."""
    return TopicPartition(range_.target_topic, range_.partition)


def result_without_answer(range_: Range, target: TargetProgress | None, *, cut_short: bool) -> RangeResult:
    """Return the result of a range whose task did not answer; ``target`` is None if its progress was not read.

    ``cut_short`` says that the task did not answer because its run was ended.
    """
    reason = _CUT_SHORT if cut_short else _LOST
    result = RangeResult.initial(range_, range_.start, Outcome.UNFINISHED)
    if target is None or target.error is not None:
        unread = "" if target is None else f", and its progress could not be read from the target ({target.error})"
        result.counted = CountBasis.UNKNOWN
        result.error = f"{reason}{unread}; the next run resumes from the progress on the target"
        return result
    progress = target.progress.get(target_partition(range_))
    recreated = progress is not None and progress.topic_id and range_.topic_id and progress.topic_id != range_.topic_id
    if progress is not None and not recreated:
        result.end = max(range_.start, min(progress.offset, range_.end))
    result.counted, result.records = CountBasis.OFFSETS, result.end - result.start
    result.error = f"{reason}: everything before offset {result.end} is committed, and the next run resumes there"
    return result
