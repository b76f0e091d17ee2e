"""What became of ranges whose tasks did not answer: as far as the progress on the target tells it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Counted, Outcome, Range, RangeResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.relay.progress.committed import Progress

_LOST: Final = "its task was lost before it could answer"
_CUT_SHORT: Final = "the run was cut short before its task could answer"


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """The ``progress`` by target partition; ``error`` (one line) is why the target did not tell it, or None."""

    progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    error: str | None = None


def target_partition(one: Range) -> TopicPartition:
    """The partition that its progress is kept for."""
    return TopicPartition(one.target_topic, one.partition)


def unanswered(one: Range, reached: TargetProgress | None, *, cut_short: bool) -> RangeResult:
    """The result of a range whose task did not answer; ``reached`` is None where the target was not asked."""
    why = _CUT_SHORT if cut_short else _LOST
    result = RangeResult.begun(one, one.start, Outcome.UNFINISHED)
    if reached is None or reached.error is not None:
        asked = "" if reached is None else f", and the target did not tell how far it is ({reached.error})"
        result.counted = Counted.UNKNOWN
        result.error = f"{why}{asked}; the next run goes on from the progress on the target"
        return result
    progress = reached.progress.get(target_partition(one))
    other = progress is not None and progress.topic_id and one.topic_id and progress.topic_id != one.topic_id
    if progress is not None and not other:
        result.end = max(one.start, min(progress.offset, one.end))
    result.counted, result.records = Counted.OFFSETS, result.end - result.start
    result.error = f"{why}: what precedes offset {result.end} is committed, and the next run goes on there"
    return result
