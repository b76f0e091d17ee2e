"""Progress: the next source offset to copy, kept as committed offsets on the target (design: "Progress").

Keyed by the *target* topic and partition, in one of 16 groups per flow: one group alone would put every commit on one
coordinator partition. The metadata says whose offsets these are.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.target_log import TargetMark, mark_of

SHARDS: Final = 16


class ProgressTotals(NamedTuple):
    """Of what is copied; bytes as on the wire."""

    records: int = 0
    batches: int = 0
    bytes: int = 0

    def minus(self, other: ProgressTotals) -> ProgressTotals:
        """What ``other`` does not have."""
        return ProgressTotals(self.records - other.records, self.batches - other.batches, self.bytes - other.bytes)


NO_TOTALS: Final = ProgressTotals()
_MOST_LEFT: Final = 2**50
"""More than a copy can leave behind an epoch; results of thousands of partitions still add up to an int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``offset`` is the next one to copy, ``leader_epoch`` that of the last batch copied, where there was one.

    ``time_ms`` (ms since 1970) is when it was committed; 0 where that is not known. ``left`` is what an epoch copied
    after its end, and nobody has reported: whoever goes on from here counts it. ``target`` is the log that it was
    copied into, None where that is not known (version 0.1 did not keep it).
    """

    offset: int
    leader_epoch: int | None
    source_cluster_id: str
    topic_id: str
    time_ms: int = 0
    unreported: ProgressTotals = NO_TOTALS
    target: TargetMark | None = None


class GroupAdmin(Protocol):
    """What is needed of ``Admin``; safe to use from several threads, as it is."""

    def group_offsets(
        self,
        group: str,
        tps: Collection[TopicPartition],
        *,
        require_stable: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        ...


def group_of(flow: str, tp: TopicPartition) -> str:
    """The group that keeps a target partition's progress; the same in every process and version."""
    return f"mirror.{flow}.{zlib.crc32(str(tp).encode()) % SHARDS}"


def to_offset(progress: Progress) -> OffsetAndMetadata:
    """As it is committed."""
    about = {
        "v": 1,
        "cluster": progress.source_cluster_id,
        "topic": progress.topic_id,
        "time": progress.time_ms,
        **({"left": progress.unreported} if progress.unreported != NO_TOTALS else {}),
        **({"target": progress.target.to_fields()} if progress.target is not None else {}),
    }
    return OffsetAndMetadata(progress.offset, progress.leader_epoch, json.dumps(about, separators=(",", ":")))


def from_offset(committed: OffsetAndMetadata) -> Progress:
    """What was committed; one of a stranger has no cluster, no topic and no time. Raises nothing, whatever it holds."""
    about = stored.parse_object(committed.metadata)
    return Progress(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        source_cluster_id=stored.text(about.get("cluster")),
        topic_id=stored.text(about.get("topic")),
        time_ms=stored.time_ms(about.get("time")) or 0,
        unreported=_sums(about.get("left")),
        target=mark_of(about.get("target")),
    )


class ProgressStore:
    """Reads a flow's progress on its target, all of it at once: for plans."""

    def __init__(self, admin: GroupAdmin, flow: str) -> None:
        self._admin = admin
        self._flow = flow

    def read(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Progress]:
        """The progress of these target partitions; absent where there is none. Raises KafkaError.

        It is that before any transaction under way: a copy that was killed while it committed leaves one open until
        ``transaction.timeout.ms``, or until the next attempt shuts it out, and that one needs a plan first.
        """
        groups: dict[str, list[TopicPartition]] = defaultdict(list)
        for tp in sorted(tps):
            groups[group_of(self._flow, tp)].append(tp)
        found: dict[TopicPartition, Progress] = {}
        for group, members in groups.items():
            for tp, committed in self._admin.group_offsets(group, members, require_stable=False).items():
                found[tp] = from_offset(committed)
        return found


def _sums(value: object) -> ProgressTotals:
    found = [stored.number(each, _MOST_LEFT) for each in value] if isinstance(value, list) else []
    known = [each for each in found if each is not None]
    return ProgressTotals(*known) if len(found) == len(known) == len(NO_TOTALS) else NO_TOTALS
