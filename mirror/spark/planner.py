"""What a flow copies, decided from what was seen: pure functions, no cluster and no Spark here.

::

    topics seen ──select_topics──► wanted ──start_of──► Range ──pack──► tasks
                                              └────────► RangeResult   (settled: nothing to copy, or it must not be)
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError
from mirror.relay.gaps import classify
from mirror.relay.ranges import OPEN_END, Outcome, Range, RangeResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.config.models import FlowConfig
    from mirror.relay.gaps import Gap
    from mirror.relay.progress import Progress

NO_LEADER: Final = -1
"""The leader id that metadata gives for a partition without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """One source partition as the planner saw it; offsets in records.

    ``earliest`` is the log start offset, ``end`` the last stable offset, ``first`` where a flow without progress
    begins (its ``start``), ``leader`` a broker id or :data:`NO_LEADER` (then the offsets say nothing).
    """

    topic: str
    target_topic: str
    partition: int
    topic_id: str
    leader: int
    earliest: int
    end: int
    first: int


def select_topics(flow: FlowConfig, names: Iterable[str]) -> list[str]:
    """The source topics that ``flow`` copies, sorted. Raises FlowError where there is none."""
    seen = sorted(names)
    wanted = [name for name in seen if flow.wants(name)]
    if wanted:
        return wanted
    patterns = ", ".join(repr(pattern) for pattern in flow.topics)
    excluded = ", ".join(repr(pattern) for pattern in flow.topics_exclude)
    raise FlowError(
        f"flow {flow.name}: none of the {len(seen)} topics of cluster {flow.source} matches topics = [{patterns}]"
        f" without topics-exclude = [{excluded}]; correct the patterns, create the topic, or grant"
        " Describe on it: topics without that permission are not seen"
    )


def writer_of(flow: FlowConfig, target_topic: str) -> str | None:
    """The source topic that ``flow`` would copy into ``target_topic`` if its source has it, or None.

    Both names that a target topic can stem from are tried, so that nobody has to list the other flow's cluster first.
    """
    for topic in (target_topic, target_topic.removeprefix(f"{flow.source}.")):
        if flow.wants(topic) and flow.target_topic(topic) == target_topic:
            return topic
    return None


def start_of(
    flow: FlowConfig,
    source_cluster_id: str,
    seen: SourcePartition,
    progress: Progress | None,
    *,
    anew_before_ms: int = 0,
    follow: bool = False,
) -> Range | RangeResult:
    """What is to be copied of one partition: a Range, or a settled result where a task has nothing to do.

    ``progress`` is what the target holds for it. One that was committed before ``anew_before_ms`` (ms since 1970) gets
    a Range even with nothing to copy: the task commits it anew, before the target forgets it. With ``follow`` there is
    always something to copy, sooner or later, and no end.

    A gap between progress and log is a ``failed`` result, unless the flow says ``on-gap = "skip"``: then the Range
    begins behind it, and the task counts it. Progress of another source cluster is always ``failed``: to copy on would
    mix records silently.
    """

    def settled(outcome: Outcome, at: int, error: str | None = None) -> RangeResult:
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

    def copied(start: int) -> Range:
        return Range(
            flow=flow.name,
            topic=seen.topic,
            target_topic=seen.target_topic,
            partition=seen.partition,
            start=start,
            end=OPEN_END if follow else max(start, seen.end),
            source_cluster_id=source_cluster_id,
            topic_id=seen.topic_id,
        )

    if seen.leader == NO_LEADER and not (follow and progress):
        at = progress.offset if progress else 0
        return settled(Outcome.FAILED, at, "the source partition has no leader; the next run goes on from here")
    if progress is None:
        # A range of no records still goes to a task, which commits where the flow begins: a flow that starts at
        # "latest" would otherwise start at a later "latest" in each run, and skip what came between.
        empty = seen.first >= seen.end and seen.first == seen.earliest and not follow
        return settled(Outcome.COMPLETE, seen.first) if empty else copied(seen.first)
    if progress.source_cluster_id not in {"", source_cluster_id}:
        return settled(Outcome.FAILED, progress.offset, _other_source(source_cluster_id, progress))
    gap = None if seen.leader == NO_LEADER else classify(progress, seen.topic_id, seen.earliest, seen.end)
    if gap is not None:
        return copied(gap.resume) if flow.on_gap == "skip" else settled(Outcome.FAILED, gap.offset, _fails(gap))
    if not follow and progress.offset >= seen.end and progress.time_ms >= anew_before_ms:
        return settled(Outcome.COMPLETE, progress.offset)
    return copied(progress.offset)


def _other_source(source_cluster_id: str, progress: Progress) -> str:
    return (
        f"other source: the progress on the target is that of source cluster {progress.source_cluster_id}, this one"
        f" is {source_cluster_id}; two deployments share a flow name, rename one flow"
    )


def _fails(gap: Gap) -> str:
    return f"{gap}; {gap.advice()}"


def pack(ranges: Sequence[Range], tasks: int) -> list[list[Range]]:
    """Spread ``ranges`` over at most ``tasks`` tasks by backlog, largest first, each onto the emptiest task so far.

    O(n log n). The longest task is at most 4/3 of the best possible (R. L. Graham, 1969, "longest processing time
    first"). No task is empty; a range, so a partition, is in exactly one task.
    """
    count = min(tasks, len(ranges))
    packed: list[list[Range]] = [[] for _ in range(count)]
    # The number of ranges breaks ties, so that ranges without records are spread as well.
    emptiest = [(0, 0, task) for task in range(count)]
    for each in sorted(ranges, key=lambda r: (r.start - r.end, r.topic, r.partition)):
        backlog, held, task = emptiest[0]
        packed[task].append(each)
        heapq.heapreplace(emptiest, (backlog + each.end - each.start, held + 1, task))
    return packed
