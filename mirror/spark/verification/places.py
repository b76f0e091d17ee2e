"""Decides which part of each partition is compared, from what both clusters have. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirror.relay.batches.topic_config import FOREVER
from mirror.relay.progress.gaps import GapKind, find_gap, why_other_source
from mirror.relay.progress.target_log import is_other_topic
from mirror.spark.planning.range_planner import NO_LEADER, NO_LEADER_TEXT
from mirror.verify.partition_results import PartitionResult, TopicFacts, VerifyRange
from mirror.verify.values import NOT_COPIED_YET, PROVED_BEFORE, Bounds, Uncompared, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.relay.batches.topic_config import TopicConfig
    from mirror.relay.progress.committed import Progress
    from mirror.spark.planning.flow_observation import TargetLog
    from mirror.spark.planning.range_planner import SourcePartition
    from mirror.verify.proof import ProvedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The configurations of a topic on both sides."""

    source: TopicConfig
    target: TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where the comparison of a partition begins. By default where its copy did."""

    source_offset: int | None = None
    """Not before this offset of the source."""
    proved: ProvedRange | None = None
    """Behind this part, which was compared before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition, and all that is known of it."""

    source: SourcePartition
    target: TargetLog
    progress: Progress | None
    topics: Topics
    source_cluster_id: str
    start: Start = field(default_factory=Start)
    has_others: bool = False
    """Whether others write to the target, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlace:
    """A partition that only the target has."""

    topic: str
    target_topic: str
    partition: int
    source_topic_id: str
    target: TargetLog
    topics: Topics


def decide_target_only(place: TargetPlace) -> VerifyRange | PartitionResult:
    """Return what is to be compared: whatever the partition has is not of the source."""
    target = place.target
    range_ = VerifyRange(
        topic=place.topic,
        target_topic=place.target_topic,
        partition=place.partition,
        bounds=Bounds(source_start=0, source_end=0, target_start=target.start, target_end=target.end),
        source_topic_id=place.source_topic_id,
        target_topic_id=target.topic_id,
        facts=_facts(place.topics),
        notes=("only the target has this partition",),
    )
    if target.error:
        return PartitionResult.of(range_, error=f"the target partition does not answer: {target.error}")
    return range_ if target.start < target.end else PartitionResult.of(range_, _nothing(range_.bounds))


def decide(place: Place) -> VerifyRange | PartitionResult:
    """Return what is to be compared; a result if nothing is, or if it cannot be."""
    if error := _error_of(place):
        return _result(place, error=error)
    if place.progress is None:
        return _without_progress(place)
    range_ = _range(place, place.progress)
    bounds = range_.bounds
    begins_behind = place.start.source_offset is not None and bounds.source_start >= bounds.source_end
    if begins_behind or (bounds.source_start >= bounds.source_end and bounds.target_start >= bounds.target_end):
        return PartitionResult.of(range_, _nothing(bounds))
    return range_


def _error_of(place: Place) -> str:
    source, progress = place.source, place.progress
    if source.leader == NO_LEADER:
        return f"the source partition does not answer: {source.error}" if source.error else NO_LEADER_TEXT
    if place.target.error:
        return f"the target partition does not answer: {place.target.error}"
    if progress is None:
        return ""
    if other := why_other_source(progress, place.source_cluster_id, source.topic, source.target_topic):
        return other
    gap = find_gap(progress, source.topic_id, source.earliest, source.end)
    return str(gap) if gap is not None and gap.kind is not GapKind.RETENTION else ""


def _without_progress(place: Place) -> PartitionResult:
    """Nothing is copied yet; but what the target has would be a copy whose progress was lost."""
    target = place.target
    if target.exists and target.end > target.start and not place.has_others:
        return _result(
            place,
            error="the flow has no progress in this partition, and the target has records: it may be lost"
            " (see progress-lost), so that it is not known what should be there",
        )
    start, end = place.source.earliest, place.source.end
    verdict = _nothing(Bounds(source_start=start, source_end=start, target_start=target.end, target_end=target.end))
    if start < end:
        verdict.uncompared.append(Uncompared("source", start, end, "nothing is copied yet"))
    return _result(place, verdict, outside=tuple(_unstable(place.source)))


def _range(place: Place, progress: Progress) -> VerifyRange:
    target, notes = place.target, list[str]()
    made_again = progress.target is not None and is_other_topic(progress.target, target.topic_id)
    if not target.exists:
        notes.append("the target topic does not exist")
    elif made_again:
        notes.append("the target topic was deleted and made again since it was copied")
    bounds, remark = _bounds(place, progress, made_again=made_again)
    found = _compared(place, bounds, notes=tuple([*notes, remark] if remark else notes))
    return replace(found, outside=tuple(_outside(place, progress, bounds)))


# Invariant: Records of the source outside the compared range are listed with the reason; "complete" means that there
#   are none.
# Test: tests/spark/verification/test_places.py::test_records_of_the_source_outside_the_comparison_are_listed
# Test: tests/spark/verification/test_verify_on_fakes.py::test_records_in_a_partition_that_only_the_target_has_are_found
def _outside(place: Place, progress: Progress, bounds: Bounds) -> Iterator[Uncompared]:
    """Yield the records of the source in front of ``bounds`` and behind them."""
    source, start = place.source, place.start
    begun = 0 if progress.beginning is None else progress.beginning.source
    front = PROVED_BEFORE if start.proved is not None else "--from leaves them out"
    until = progress.offset if source.until is None else max(progress.offset, source.until)
    parts = (
        (0, begun, "the copy has begun behind them"),
        (begun, min(bounds.source_start, progress.offset), front),
        (progress.offset, until, NOT_COPIED_YET),
        (until, source.end, NOT_COPIED_YET if source.until is None else "the flow ends in front of them"),
    )
    for first, last, reason in parts:
        begin, end = max(first, source.earliest), min(last, source.end)
        if begin < end:
            yield Uncompared("source", begin, end, reason)
    yield from _unstable(source)


def _unstable(source: SourcePartition) -> Iterator[Uncompared]:
    if source.high_watermark > source.end:
        reason = "they are newer, or an open transaction on the source withholds them"
        yield Uncompared("source", source.end, source.high_watermark, reason)


def _compared(place: Place, bounds: Bounds, *, notes: tuple[str, ...] = (), expected_digest: str = "") -> VerifyRange:
    source, progress = place.source, place.progress
    return VerifyRange(
        topic=source.topic,
        target_topic=source.target_topic,
        partition=source.partition,
        bounds=bounds,
        source_limit=source.end,
        source_topic_id=source.topic_id,
        target_topic_id=place.target.topic_id,
        facts=_facts(place.topics),
        first_copy_ms=0 if progress is None else progress.series,
        expected_digest=expected_digest,
        notes=notes,
        log_starts=(source.earliest, place.target.start),
    )


def _facts(topics: Topics) -> TopicFacts:
    target = topics.target
    return TopicFacts(
        source_compacted="compact" in topics.source.cleanup,
        target_compacted="compact" in target.cleanup,
        before_ms=FOREVER if target.append_time else target.before_max_ms,
        after_ms=FOREVER if target.append_time else target.after_max_ms,
        max_message_bytes=target.max_message_bytes,
    )


def _bounds(place: Place, progress: Progress, *, made_again: bool) -> tuple[Bounds, str]:
    """Return the bounds, and what a user has to know of them."""
    source, target, start, remark = place.source, place.target, place.start, ""
    begin = progress.beginning
    source_begin = 0 if begin is None else begin.source
    target_begin = 0 if begin is None or made_again else begin.target
    # Where it is not known where the copy has begun, either side may have more in front.
    unknown = begin is None
    proved = start.proved
    if proved is not None and _is_of_other_topics(proved, place):
        proved, remark = None, "the proof is of a topic that was made again since, so all of it was compared"
    if proved is not None:
        source_begin, target_begin, unknown = proved.source_end, proved.target_end, False
    moved = start.source_offset is not None and start.source_offset > source_begin
    if moved and start.source_offset is not None:
        source_begin = start.source_offset  # where its record is on the target is looked for
    target_start = min(max(target_begin, target.start), target.end)
    return (
        Bounds(
            source_start=max(source_begin, source.earliest),
            source_end=progress.offset,
            target_start=target_start,
            target_end=target.end,
            withheld=target.high_watermark > target.end,
            source_trimmed=unknown or moved or source.earliest > source_begin,
            target_trimmed=unknown or target.start > target_begin,
        ),
        remark,
    )


def _is_of_other_topics(proved: ProvedRange, place: Place) -> bool:
    pairs = ((proved.source_topic_id, place.source.topic_id), (proved.target_topic_id, place.target.topic_id))
    return any(one and other and one != other for one, other in pairs)


def _nothing(bounds: Bounds) -> Verdict:
    return Verdict(
        source_start=bounds.source_start,
        target_start=bounds.target_start,
        source_end=bounds.source_start,
        target_end=bounds.target_start,
    )


def _result(
    place: Place, verdict: Verdict | None = None, *, error: str = "", outside: tuple[Uncompared, ...] = ()
) -> PartitionResult:
    return PartitionResult(
        topic=place.source.topic,
        target_topic=place.source.target_topic,
        partition=place.source.partition,
        verdict=verdict,
        error=error,
        source_topic_id=place.source.topic_id,
        target_topic_id=place.target.topic_id,
        outside=outside,
    )


def decide_proved(place: Place, proved: ProvedRange) -> VerifyRange | PartitionResult:
    """Return what is to be compared of a range that was proved before, as far as both sides have it still."""
    source, target = place.source, place.target
    if error := _error_of(place):
        return _result(place, error=error)
    if _is_of_other_topics(proved, place):
        return _result(place, error="the topic was deleted and made again since it was proved")
    bounds = Bounds(
        source_start=max(proved.source_start, source.earliest),
        source_end=proved.source_end,
        target_start=max(proved.target_start, target.start),
        target_end=proved.target_end,
        source_trimmed=source.earliest > proved.source_start or bool(proved.not_compared),
        target_trimmed=target.start > proved.target_start or bool(proved.not_compared),
    )
    whole = (bounds.source_start, bounds.target_start) == (proved.source_start, proved.target_start)
    if not whole and (bounds.source_start >= bounds.source_end or bounds.target_start >= bounds.target_end):
        gone = f"offsets {proved.source_start} to {proved.source_end - 1} were proved, and a side has deleted them"
        return _result(place, error=gone)
    notes = () if whole else ("a side has deleted the beginning of what was proved: the rest was compared",)
    found = _compared(place, bounds, notes=notes, expected_digest=proved.sha256 if whole else "")
    others = Uncompared("source", bounds.source_end, source.end, "--check compares only what the proof says")
    return replace(found, outside=(others,) if others.start < others.end else ())
