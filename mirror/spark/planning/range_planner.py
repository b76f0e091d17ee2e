"""What a flow copies, decided from what was seen: pure functions, no cluster and no Spark here.

::

    topics seen ──select_topics──► wanted ──start_of──► Range ──limits──► packing ──► tasks
                                              └────────► RangeResult   (settled: nothing to copy, or it must not be)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.config.models import matches
from mirror.errors import FlowError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.gaps import GapKind, classify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import FlowConfig
    from mirror.relay.progress.committed import Progress
    from mirror.relay.progress.gaps import Gap

NO_LEADER: Final = -1
"""The leader id that metadata gives for a partition without one."""
NO_LEADER_TEXT: Final = "the source partition has no leader"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """One source partition as the planner saw it; offsets in records.

    ``earliest`` is the log start offset, ``end`` the last stable offset, ``high_watermark`` the end that readers of all
    records see (0: not known), ``first`` where a flow without progress begins (its ``start``, or ``from``, which may
    lie behind the end), ``until`` where the flow ends here (None: it does not, or not yet), ``leader`` a broker id or
    :data:`NO_LEADER` (then the offsets say nothing, and ``trouble`` says why, if it is not just that).
    ``leader_epoch`` is the leader's at the time of ``end``, None where the log has none.
    """

    topic: str
    target_topic: str
    partition: int
    topic_id: str
    leader: int
    earliest: int
    end: int
    first: int
    until: int | None = None
    high_watermark: int = 0
    error: str = ""
    leader_epoch: int | None = None

    @property
    def stop(self) -> int:
        """Where a copy of what is there now ends."""
        return self.end if self.until is None else min(self.end, self.until)

    @property
    def stable(self) -> tuple[int, int]:
        """The last stable offset and the high watermark, of what the flow copies."""
        high = self.high_watermark if self.until is None else min(self.high_watermark, self.until)
        return self.stop, high


def select_topics(flow: FlowConfig, names: Iterable[str]) -> list[str]:
    """The source topics that ``flow`` copies, sorted. Raises FlowError where there is none."""
    seen = sorted(names)
    wanted = [name for name in seen if flow.includes(name)]
    if wanted:
        return wanted
    patterns = _listed(flow.topics)
    excluded = [name for name in seen if matches(flow.topics, name)]
    if excluded:
        shown = ", ".join(excluded[:_NAMED]) + (", ..." if len(excluded) > _NAMED else "")
        raise FlowError(
            f"flow {flow.name}: topics = [{patterns}] matches nothing but topics that"
            f" topics-exclude = [{_listed(flow.topics_exclude)}] leaves out ({shown}), as it does internal ones:"
            " correct topics, or write a topics-exclude of your own"
        )
    raise FlowError(
        f"flow {flow.name}: none of the {len(seen)} topics of cluster {flow.source} matches topics = [{patterns}]"
        f" without topics-exclude = [{_listed(flow.topics_exclude)}]; correct the patterns, create the topic, or grant"
        " Describe on it: topics without that permission are not seen"
    )


def unmatched_patterns(flow: FlowConfig, wanted: Iterable[str]) -> list[str]:
    """A line for each pattern of ``flow`` that matches none of its ``wanted`` topics: a slip of the pen, maybe."""
    topics = list(wanted)
    return [
        f"topics = {pattern!r} matches no topic of cluster {flow.source} that is copied (one of {len(flow.topics)}"
        " patterns); correct it, or take it out if nothing is to come"
        for pattern in flow.topics
        if not any(matches((pattern,), topic) for topic in topics)
    ]


def _listed(patterns: Iterable[str]) -> str:
    return ", ".join(repr(pattern) for pattern in patterns)


def source_topic_for(flow: FlowConfig, target_topic: str) -> str | None:
    """The source topic that ``flow`` would copy into ``target_topic`` if its source has it, or None.

    Both names that a target topic can stem from are tried, so that nobody has to list the other flow's cluster first.
    """
    for topic in (target_topic, target_topic.removeprefix(f"{flow.source}.")):
        if flow.includes(topic) and flow.target_topic(topic) == target_topic:
            return topic
    return None


def plan_range(
    flow: FlowConfig,
    source_cluster_id: str,
    seen: SourcePartition,
    progress: Progress | None,
    *,
    recommit_before_ms: int = 0,
    follow: bool = False,
) -> Range | RangeResult:
    """What is to be copied of one partition: a Range, or a settled result where a task has nothing to do.

    ``progress`` is the committed source position on the target. If it was committed before ``recommit_before_ms`` (ms
    since 1970), a Range is planned even with nothing to copy, so that a task commits it again before it expires. With
    ``follow`` every partition with a position gets a Range, even if its source has no leader now.

    A gap between progress and log is a ``failed`` result, unless the flow says ``on-gap = "skip"``: then the Range
    begins behind it, and the task counts it. Progress of another source cluster is always ``failed``: to copy on would
    mix records silently.
    """

    def settled(outcome: Outcome, at: int, error: str | None = None) -> RangeResult:
        return result_without_task(flow, seen, outcome, error, at=at)

    def copied(start: int) -> Range:
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
        why = f"the source partition does not answer: {seen.error}" if seen.error else NO_LEADER_TEXT
        return settled(Outcome.FAILED, at, f"{why}; the next run goes on from here")
    if progress is None:
        # Where the source has not come to ``from`` yet, there is no place to keep.
        nothing = _nothing_yet(seen) and not (follow and seen.first <= seen.end)
        return settled(Outcome.COMPLETE, seen.first) if nothing else copied(seen.first)
    if progress.source_cluster_id not in {"", source_cluster_id}:
        return settled(Outcome.FAILED, progress.offset, _other_source(source_cluster_id, progress))
    gap = None if seen.leader == NO_LEADER else classify(progress, seen.topic_id, seen.earliest, seen.end)
    beyond = seen.until is not None and progress.offset >= seen.until
    # Behind the flow's own end the source may forget what it likes.
    if gap is not None and not (beyond and gap.kind is GapKind.RETENTION):
        return copied(gap.resume) if flow.on_gap == "skip" else settled(Outcome.FAILED, gap.offset, _fails(gap))
    if not follow and progress.offset >= seen.stop and progress.time_ms >= recommit_before_ms:
        return settled(Outcome.COMPLETE, progress.offset)
    return copied(progress.offset)


def result_without_task(
    flow: FlowConfig, seen: SourcePartition, outcome: Outcome, error: str | None, *, at: int | None = None
) -> RangeResult:
    """The settled result of a partition that needs no task, or may have none; ``at``: by default where it begins."""
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


def _nothing_yet(seen: SourcePartition) -> bool:
    """Whether a partition without progress needs no task.

    Where it begins at the end of its log, it does: the task commits that place. A flow that starts at "latest" would
    otherwise start at a later "latest" in each run, and skip what came between.
    """
    if seen.first > seen.end or (seen.until is not None and seen.first >= seen.until):
        return True  # the source has not come to ``from`` yet, or all of it is behind ``until``
    return seen.first >= seen.end and seen.first == seen.earliest


def _other_source(source_cluster_id: str, progress: Progress) -> str:
    return (
        f"other source: the progress on the target is that of source cluster {progress.source_cluster_id}, this one"
        f" is {source_cluster_id}; two deployments share a flow name, rename one flow"
    )


def _fails(gap: Gap) -> str:
    return f"{gap}; {gap.advice()}"
