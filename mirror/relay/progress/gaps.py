"""Where the source no longer has what comes next: what happened, where to go on, what is lost. Pure.

A gap is never passed over silently (MirrorMaker's users' first complaint): a flow fails, or says ``on-gap = "skip"``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mirror.relay.progress.committed import Progress


class GapKind(enum.StrEnum):
    """Why source offsets were not copied. The last two are no loss: a log's own holes, counted and passed."""

    RETENTION = "retention"
    TRUNCATED = "truncated"
    RECREATED = "recreated"
    COMPACTED = "compacted"
    MARKERS = "markers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source partition as it is now: its topic's id, its log's first offset, and its last stable one.

    ``leader_epoch`` is that of the leader who said so; None where its log has no epochs.
    """

    topic_id: str
    earliest: int
    end: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A loss: the progress stands at ``offset``; a copy that passes over it goes on at ``resume``.

    ``lost`` counts offsets: those never copied (retention), or copied and no longer in the source (truncated); 0 where
    that cannot be told (recreated).
    """

    kind: GapKind
    offset: int
    resume: int
    lost: int
    detail: str = ""

    def __str__(self) -> str:
        copied = f"{self.kind}: copied up to offset {self.offset}"
        match self.kind:
            case GapKind.RETENTION:
                gone = f"offsets {self.offset} to {self.resume - 1} are gone and were never copied"
                return f"{copied}, but the source begins at {self.resume}: {gone}"
            case GapKind.TRUNCATED:
                more = f"the target holds {self.lost} offsets that the source does not have any more"
                return f"{copied}, but the source's log was cut back to {self.resume} (data loss there): {more}"
            case _:
                return f"{copied} of a topic that was deleted and made again{self.detail}"

    def advice(self, flow_wants: str = 'on-gap = "skip"') -> str:
        """What a user can do, to stand behind the text."""
        return f"set {flow_wants} to go on at offset {self.resume}, or copy it under another flow name or target topic"


def find_gap(progress: Progress, topic_id: str, earliest: int, end: int, *, diverging: int | None = None) -> Gap | None:
    """The gap between ``progress`` and a source log of topic ``topic_id`` that holds ``[earliest, end)``, if any.

    ``diverging`` is where the log parts from the one that was copied, as far as leader epochs told (KIP-320).
    """
    at = progress.offset
    if progress.topic_id and topic_id and progress.topic_id != topic_id:
        return Gap(GapKind.RECREATED, at, earliest, 0, f" (topic id {progress.topic_id}, now {topic_id})")
    if diverging is not None and diverging < at:
        resume = max(earliest, min(diverging, end))
        return Gap(GapKind.TRUNCATED, at, resume, max(0, at - resume))
    if at > end:
        return Gap(GapKind.TRUNCATED, at, end, at - end)
    if at < earliest:
        return Gap(GapKind.RETENTION, at, earliest, earliest - at)
    return None


def other_source_text(progress: Progress, source_cluster_id: str) -> str:
    """Return the error of a partition whose ``progress`` is not that of ``source_cluster_id``."""
    return (
        "other source: its progress on the target is from another source cluster"
        f" ({progress.source_cluster_id}, not {source_cluster_id}); two deployments share a flow name, rename one flow"
    )
