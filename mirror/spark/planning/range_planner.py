"""Decides what a flow copies of each partition, from the clusters' state. Pure: no cluster and no Spark here.

::

    source topics ──select_topics──► plan_range ──► Range ──limits──► packing ──► tasks
                                              └───► RangeResult (nothing to copy, or it cannot be copied)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.config.patterns import matches
from mirror.errors import MAX_NAMES_SHOWN, FlowError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.gaps import GapKind, find_gap, why_other_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.models import FlowConfig
    from mirror.relay.progress.committed import Progress

NO_LEADER: Final = -1
"""The leader id in the metadata of a partition without a leader."""
NO_LEADER_TEXT: Final = "the source partition has no leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """The state of one source partition. Without a leader its offsets are not valid."""

    topic: str
    target_topic: str
    partition: int
    topic_id: str
    leader: int
    """A broker id, or :data:`NO_LEADER`."""
    earliest: int
    """The log start offset."""
    end: int
    """The last stable offset."""
    first: int
    """Where a flow without progress begins, by its ``start`` or ``from``; ``from`` may lie after ``end``."""
    until: int | None = None
    """Where the flow ends in this partition; None if it has no end, or the source has not come to it yet."""
    high_watermark: int = 0
    """0 if it could not be read."""
    error: str = ""
    """Why there is no leader, if the reason is not just that metadata has none."""
    leader_epoch: int | None = None
    """The leader epoch at the time of ``end``; None if the log has no epochs."""
    diverging: int | None = None
    """Where the log diverges from the copied one, if that is in front of a progress at the log's end (KIP-320)."""

    @property
    def tp(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def target_tp(self) -> TopicPartition:
        """The partition that it is copied into."""
        return TopicPartition(self.target_topic, self.partition)

    @property
    def stop(self) -> int:
        """Where a copy of the records that exist now ends."""
        return self.end if self.until is None else min(self.end, self.until)

    @property
    def stable(self) -> tuple[int, int]:
        """The last stable offset and the high watermark, no further than where the flow ends."""
        high = self.high_watermark if self.until is None else min(self.high_watermark, self.until)
        return self.stop, high


def select_topics(flow: FlowConfig, names: Iterable[str]) -> list[str]:
    """Return the source topics that ``flow`` copies, sorted, also those that cannot get their name on the target.

    Raises FlowError if its ``topics`` select none, unless it may wait for the first one.
    """
    all_names = sorted(names)
    included = [name for name in all_names if flow.concerns(name)]
    if flow.may_wait_for_topics or not all(flow.carries_only_heartbeats(name) for name in included):
        return included
    raise no_topics(flow, all_names)


def no_topics(flow: FlowConfig, all_names: list[str]) -> FlowError:
    """Return the error of a flow that selects none of ``all_names``, the topics of its source."""
    patterns = _listed(flow.topics)
    left_out = {name: reason for name, reason in topics_left_out(flow, all_names).items() if flow.wants(name)}
    if left_out:
        return FlowError(
            f"flow {flow.name}: topics = [{patterns}] matches nothing but topics that are never copied"
            f" ({_some(f'{name}: {reason}' for name, reason in left_out.items())}): correct topics, or create one"
        )
    excluded = [name for name in all_names if matches(flow.topics, name)]
    if excluded:
        shown = _some(excluded)
        return FlowError(
            f"flow {flow.name}: topics = [{patterns}] matches nothing but topics that"
            f" topics-exclude = [{_listed(flow.topics_exclude)}] excludes ({shown}), as it does internal ones:"
            " correct topics, or set a topics-exclude of your own"
        )
    return FlowError(
        f"flow {flow.name}: none of the {len(all_names)} topics of cluster {flow.source} matches topics = [{patterns}]"
        f" without topics-exclude = [{_listed(flow.topics_exclude)}]; correct the patterns, create the topic, or grant"
        " Describe on it: a topic without that permission is not listed"
    )


def topics_left_out(flow: FlowConfig, names: Iterable[str]) -> dict[str, str]:
    """Return the topics that the flow's patterns match, and that it does not copy, with the reason."""
    return {name: reason for name in sorted(names) if (reason := flow.why_not_copied(name)) is not None}


def left_out_lines(left_out: Mapping[str, str]) -> list[str]:
    """Return a line for each rule by which topics are left out, with their number and names."""
    by_reason: dict[str, list[str]] = {}
    for topic, reason in left_out.items():
        by_reason.setdefault(reason, []).append(topic)
    return [
        f"left out: {len(topics)} topic{'s' if len(topics) > 1 else ''}, since {reason}: {_some(topics)}"
        for reason, topics in by_reason.items()
    ]


def unmatched_patterns(flow: FlowConfig, selected: Iterable[str], left_out: Mapping[str, str]) -> list[str]:
    """Return a line for each pattern of ``flow`` that matches none of its ``selected`` topics, and may be a typo.

    ``left_out`` are the topics that are not copied by a rule.
    """
    topics, lines = list(selected), []
    for pattern in flow.topics:
        if any(matches((pattern,), topic) for topic in topics):
            continue
        found = [f"{name}: {reason}" for name, reason in left_out.items() if matches((pattern,), name)]
        if found:
            lines.append(f"topics = {pattern!r} matches only topics that are left out ({_some(found)}); correct it")
        else:
            lines.append(
                f"topics = {pattern!r} matches no topic of cluster {flow.source} that is copied (one of"
                f" {len(flow.topics)} patterns); correct it, or remove it if no such topic is to come"
            )
    lines += [
        f"names = {pattern!r} matches no topic of cluster {flow.source} that is copied; correct it, or remove it if no"
        " such topic is to come"
        for pattern in flow.names
        if not any(matches((pattern,), topic) for topic in topics)
    ]
    return lines


def _some(texts: Iterable[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:MAX_NAMES_SHOWN]) + (", ..." if len(listed) > MAX_NAMES_SHOWN else "")


def _listed(patterns: Iterable[str]) -> str:
    return ", ".join(repr(pattern) for pattern in patterns)


def plan_range(
    flow: FlowConfig,
    source_cluster_id: str,
    seen: SourcePartition,
    progress: Progress | None,
    *,
    recommit_before_ms: int = 0,
    follow: bool = False,
) -> Range | RangeResult:
    """Return the range to copy of one partition, or its result if a task has nothing to do.

    ``progress`` is the committed source position on the target. If it was committed before ``recommit_before_ms`` (ms
    since 1970), a Range is planned even with nothing to copy, so that a task commits it again before it expires. With
    ``follow`` every partition with a position gets a Range, even if its source has no leader now.

    A gap between progress and log is a ``failed`` result, unless the flow has ``on-gap = "skip"``: then the Range
    begins after the gap, and the task counts it. If the progress is a lower bound, the task finds out whether retention
    has made a gap. Progress of another source cluster always fails, since the copy would
    silently mix the records of both.
    """

    def without_task(outcome: Outcome, at: int, error: str | None = None) -> RangeResult:
        return result_without_task(flow, seen, outcome, error, at=at)

    def range_from(start: int) -> Range:
        return Range(
            flow=flow.name,
            topic=seen.topic,
            target_topic=seen.target_topic,
            partition=seen.partition,
            start=start,
            end=max(start, seen.stop),
            source_cluster_id=source_cluster_id,
            topic_id=seen.topic_id,
            source_end=seen.end,
            first=seen.first,
            source_epoch=seen.leader_epoch,
        )

    if seen.leader == NO_LEADER and not (follow and progress):
        at = progress.offset if progress else 0
        reason = f"the source partition does not answer: {seen.error}" if seen.error else NO_LEADER_TEXT
        return without_task(Outcome.FAILED, at, f"{reason}; the next run resumes from here")
    if progress is None or (flow.start_over and not progress.is_of_topic(seen.topic)):
        # Before the source has come to `from`, there is no position to commit.
        nothing = _needs_no_task(seen) and not (follow and seen.first <= seen.end)
        return without_task(Outcome.COMPLETE, seen.first) if nothing else range_from(seen.first)
    if other := why_other_source(progress, source_cluster_id, seen.topic, seen.target_topic):
        return without_task(Outcome.FAILED, progress.offset, other)
    gap = None
    if seen.leader != NO_LEADER:
        gap = find_gap(progress, seen.topic_id, seen.earliest, seen.end, diverging=seen.diverging)
    beyond = seen.until is not None and progress.offset >= seen.until
    # Records after the flow's own end may be deleted from the source. What is behind a lower bound may be copied: only
    # the task that fences the partition can know.
    unknown = beyond or not progress.exact
    if gap is not None and not (unknown and gap.kind is GapKind.RETENTION):
        skips = flow.on_gap == "skip"
        # A task that has nothing to read behind the progress does not notice that the log diverges before it.
        unread = skips and gap.kind is GapKind.TRUNCATED and progress.offset == seen.end
        advice = "it is skipped with the source's next record" if unread else gap.advice()
        failed = without_task(Outcome.FAILED, gap.offset, f"{gap}; {advice}")
        return range_from(gap.resume) if skips and not unread else failed
    if not follow and progress.offset >= seen.stop and progress.time_ms >= recommit_before_ms:
        return without_task(Outcome.COMPLETE, progress.offset)
    return range_from(progress.offset)


def result_without_task(
    flow: FlowConfig, seen: SourcePartition, outcome: Outcome, error: str | None, *, at: int | None = None
) -> RangeResult:
    """Return the result of a partition without a task; ``at`` is its position, by default where the flow begins."""
    at = seen.first if at is None else at
    return RangeResult(
        flow=flow.name,
        topic=seen.topic,
        target_topic=seen.target_topic,
        partition=seen.partition,
        start=at,
        end=at,
        outcome=outcome,
        error=error,
    )


def _needs_no_task(seen: SourcePartition) -> bool:
    """Return whether a partition without progress needs no task.

    It needs one if the flow begins at the end of a log with records before it: the task commits that position. Without
    it, a flow with ``start = "latest"`` would start at a later end in each run and skip the records in between.
    """
    if seen.first > seen.end or (seen.until is not None and seen.first >= seen.until):
        return True  # The source has not come to `from` yet, or all of its log is after `until`.
    return seen.first >= seen.end and seen.first == seen.earliest
