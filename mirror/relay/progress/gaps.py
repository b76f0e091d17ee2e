"""Gaps: the source no longer has the next offset to copy. What happened, where to resume, what is lost. Pure.

A gap is never skipped silently (the first complaint of MirrorMaker's users): the flow fails, or its configuration says
``on-gap = "skip"``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mirror.relay.progress.committed import Progress

_LOSS = "data loss there"
_OR_MADE_AGAIN = ", or the topic was deleted and made again, which it has no id to show"


class GapKind(enum.StrEnum):
    """Why source offsets were not copied. The last two are no loss: a log's own holes are counted and skipped."""

    RETENTION = "retention"
    TRUNCATED = "truncated"
    RECREATED = "recreated"
    COMPACTED = "compacted"
    MARKERS = "markers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The present state of a source partition."""

    topic_id: str
    earliest: int
    """The first offset of the log."""
    end: int
    """The last stable offset."""
    leader_epoch: int | None = None
    """The epoch of the leader that reported this state; None if its log has no epochs."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A loss: the progress is at ``offset``, and a copy that skips the gap resumes at ``resume``."""

    kind: GapKind
    offset: int
    resume: int
    lost: int
    """Offsets that were never copied (retention), or were copied and are no longer in the source (truncated).

    0 if that is not known (recreated).
    """
    detail: str = ""

    @property
    def leaves_copied_log(self) -> bool:
        """Whether earlier progress belongs to records that the source no longer has."""
        return self.kind is GapKind.RECREATED or self.resume < self.offset

    def __str__(self) -> str:
        copied = f"{self.kind}: copied up to offset {self.offset}"
        match self.kind:
            case GapKind.RETENTION:
                lost = f"offsets {self.offset} to {self.resume - 1} are gone and were never copied"
                return f"{copied}, but the source begins at {self.resume}: {lost}"
            case GapKind.TRUNCATED:
                surplus = f"the target holds {self.lost} offsets that the source does not have any more"
                return f"{copied}, but the source's log was cut back to {self.resume} ({_LOSS}{self.detail}): {surplus}"
            case _:
                return f"{copied} of a topic that was deleted and made again{self.detail}"

    def advice(self, skip_setting: str = 'on-gap = "skip"') -> str:
        """What a user can do, to follow the text of the gap."""
        return (
            f"set {skip_setting} to resume at offset {self.resume}, or copy it under another flow name or target topic"
        )


# Invariant: A gap is classified, and stops the partition unless the flow skips gaps: a topic that was created again is
#   named, never resumed, also where topics have no ids.
# Test: tests/relay/partition/test_gap_check.py::test_recreated_topic_is_named_never_resumed
# Test: tests/relay/task/
#   test_old_sources_on_fakes.py::test_without_ids_a_longer_topic_of_fewer_elections_stops_the_partition
def find_gap(progress: Progress, topic_id: str, earliest: int, end: int, *, diverging: int | None = None) -> Gap | None:
    """Return the gap between ``progress`` and a log of topic ``topic_id`` that holds ``[earliest, end)``; None if none.

    ``diverging`` is the offset at which the log diverges from the one that was copied, according to leader epochs
    (KIP-320).
    """
    at = progress.offset
    if progress.topic_id and topic_id and progress.topic_id != topic_id:
        return Gap(GapKind.RECREATED, at, earliest, 0, f" (topic id {progress.topic_id}, now {topic_id})")
    cause = "" if topic_id else _OR_MADE_AGAIN
    if diverging is not None and diverging < at:
        resume = max(earliest, min(diverging, end))
        return Gap(GapKind.TRUNCATED, at, resume, max(0, at - resume), cause)
    if at > end:
        return Gap(GapKind.TRUNCATED, at, end, at - end, cause)
    if at < earliest:
        return Gap(GapKind.RETENTION, at, earliest, earliest - at)
    return None


def why_other_source(progress: Progress, source_cluster_id: str, topic: str, target_topic: str) -> str:
    """Return why ``progress`` is not that of the copy of source ``topic`` into ``target_topic``; empty if it is."""
    if progress.source_cluster_id not in {"", source_cluster_id}:
        return (
            "other source: its progress on the target is from another source cluster"
            f" ({progress.source_cluster_id}, not {source_cluster_id}); two deployments share a flow name, rename one"
            " flow"
        )
    return "" if progress.is_of_topic(topic) else other_topic_text(progress.source_topic, topic, target_topic)


def other_topic_text(copied: str, topic: str, target_topic: str) -> str:
    """Return why source ``topic`` is not copied into ``target_topic``, which is the copy of source topic ``copied``."""
    return (
        f"other topic: target topic {target_topic} is the copy of source topic {copied}, and its name is now that of"
        f" source topic {topic}: give {topic} another name in names, or {copied} its name back; or delete"
        f" {target_topic}, if its records are not needed, or copy behind them with start-over = true"
    )
