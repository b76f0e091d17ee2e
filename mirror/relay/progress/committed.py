"""Progress: the next source offset to copy, stored as committed offsets on the target (design: "Progress").

The offsets are keyed by the *target* topic and partition, in one of 16 groups per flow: a single group would send every
commit to one coordinator partition. The metadata names the source that the offsets belong to.
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
    """Counts of what was copied; bytes as on the wire."""

    records: int = 0
    batches: int = 0
    bytes: int = 0

    def minus(self, other: ProgressTotals) -> ProgressTotals:
        """Return the difference to ``other``."""
        return ProgressTotals(self.records - other.records, self.batches - other.batches, self.bytes - other.bytes)


NO_TOTALS: Final = ProgressTotals()
_MAX_UNREPORTED: Final = 2**50
"""More than an epoch can copy after its end; the sum over thousands of partitions still fits into an int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The committed progress of one partition."""

    offset: int
    """The next source offset to copy."""
    leader_epoch: int | None
    """The source's leader epoch of the last batch copied; None if there is none."""
    source_cluster_id: str
    topic_id: str
    """The id of the source topic."""
    time_ms: int = 0
    """When it was committed (ms since 1970); 0 if that is not known."""
    unreported: ProgressTotals = NO_TOTALS
    """What an epoch copied after its end, and did not report: the copy that resumes from here counts it."""
    target: TargetMark | None = None
    """The log that it was copied into; None if that is not known (version 0.1 did not store it)."""


class GroupAdmin(Protocol):
    """The part of ``Admin`` that is needed; like ``Admin``, it may be called by several threads."""

    def group_offsets(
        self,
        group: str,
        tps: Collection[TopicPartition],
        *,
        require_stable: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed."""
        ...


def group_of(flow: str, tp: TopicPartition) -> str:
    """Return the group that stores a target partition's progress; the same in every process and version."""
    return f"mirror.{flow}.{zlib.crc32(str(tp).encode()) % SHARDS}"


def to_offset(progress: Progress) -> OffsetAndMetadata:
    """Return ``progress`` as an offset to commit."""
    metadata = {
        "v": 1,
        "cluster": progress.source_cluster_id,
        "topic": progress.topic_id,
        "time": progress.time_ms,
        **({"left": progress.unreported} if progress.unreported != NO_TOTALS else {}),
        **({"target": progress.target.to_fields()} if progress.target is not None else {}),
    }
    return OffsetAndMetadata(progress.offset, progress.leader_epoch, json.dumps(metadata, separators=(",", ":")))


def from_offset(committed: OffsetAndMetadata) -> Progress:
    """Parse a committed offset. Never raises: one that another program committed has no cluster, topic and time."""
    metadata = stored.parse_object(committed.metadata)
    return Progress(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        source_cluster_id=stored.text(metadata.get("cluster")),
        topic_id=stored.text(metadata.get("topic")),
        time_ms=stored.time_ms(metadata.get("time")) or 0,
        unreported=_parse_totals(metadata.get("left")),
        target=mark_of(metadata.get("target")),
    )


class ProgressStore:
    """Reads a flow's progress on its target, for planning."""

    def __init__(self, admin: GroupAdmin, flow: str) -> None:
        self._admin = admin
        self._flow = flow

    def read(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Progress]:
        """Return the progress of these target partitions, without those that have none. Raises KafkaError.

        Open transactions are not waited for: what they would commit is not included. A copy that was killed during a
        commit leaves its transaction open until ``transaction.timeout.ms``, or until the next attempt fences it, and
        that attempt needs a plan first.
        """
        groups: dict[str, list[TopicPartition]] = defaultdict(list)
        for tp in sorted(tps):
            groups[group_of(self._flow, tp)].append(tp)
        found: dict[TopicPartition, Progress] = {}
        for group, members in groups.items():
            for tp, committed in self._admin.group_offsets(group, members, require_stable=False).items():
                found[tp] = from_offset(committed)
        return found


def _parse_totals(value: object) -> ProgressTotals:
    parsed = [stored.number(item, _MAX_UNREPORTED) for item in value] if isinstance(value, list) else []
    valid = [number for number in parsed if number is not None]
    return ProgressTotals(*valid) if len(parsed) == len(valid) == len(NO_TOTALS) else NO_TOTALS
