"""Progress: the next source offset to copy, kept as committed offsets on the target (design: "Progress").

Keyed by the *target* topic and partition, in one of 16 groups per flow: one group alone would put every commit on one
coordinator partition. The metadata says whose offsets these are.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from mirror.cluster.topics import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaError

SHARDS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``offset`` is the next one to copy, ``leader_epoch`` that of the last batch copied, where there was one."""

    offset: int
    leader_epoch: int | None
    source_cluster_id: str
    topic_id: str


class GroupAdmin(Protocol):
    """What is needed of ``Admin``; safe to use from several threads, as it is."""

    def group_offsets(
        self, group: str, tps: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        ...

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int | None = None
    ) -> None:
        """Commit for a group."""
        ...


def group_of(flow: str, tp: TopicPartition) -> str:
    """The group that keeps a target partition's progress; the same in every process and version."""
    return f"mirror.{flow}.{zlib.crc32(str(tp).encode()) % SHARDS}"


class ProgressStore:
    """Reads and writes a flow's progress on its target."""

    def __init__(self, admin: GroupAdmin, flow: str, source_cluster_id: str) -> None:
        self._admin = admin
        self._flow = flow
        self._source_cluster_id = source_cluster_id

    def read(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Progress]:
        """The progress of these target partitions; absent where there is none. Raises KafkaError."""
        found: dict[TopicPartition, Progress] = {}
        for group, members in self._by_group(tps).items():
            for tp, committed in self._admin.group_offsets(group, members).items():
                about = _parse(committed.metadata)
                found[tp] = Progress(
                    offset=committed.offset,
                    leader_epoch=committed.leader_epoch,
                    source_cluster_id=about.get("cluster", ""),
                    topic_id=about.get("topic", ""),
                )
        return found

    def write(self, progress: Mapping[TopicPartition, Progress], wall_ms: int) -> dict[TopicPartition, KafkaError]:
        """Commit; ``wall_ms`` says when. Returns what was *not* kept, each with the reason; empty where all was."""

        def commit(members: Collection[TopicPartition]) -> dict[TopicPartition, KafkaError]:
            group = group_of(self._flow, next(iter(members)))
            try:
                self._admin.commit_group_offsets(group, {tp: self._committed(progress[tp], wall_ms) for tp in members})
            except KafkaError as error:
                return dict.fromkeys(members, error)
            return {}

        groups = self._by_group(progress)
        # All at once: each group has a coordinator of its own, and one that is slow must not hold up the others.
        with ThreadPoolExecutor(max_workers=SHARDS, thread_name_prefix="mirror-progress") as pool:
            return {tp: error for lost in pool.map(commit, groups.values()) for tp, error in lost.items()}

    def _committed(self, progress: Progress, wall_ms: int) -> OffsetAndMetadata:
        about = {"v": 1, "cluster": self._source_cluster_id, "topic": progress.topic_id, "time": wall_ms}
        return OffsetAndMetadata(progress.offset, progress.leader_epoch, json.dumps(about, separators=(",", ":")))

    def _by_group(self, tps: Collection[TopicPartition]) -> dict[str, list[TopicPartition]]:
        groups: dict[str, list[TopicPartition]] = defaultdict(list)
        for tp in sorted(tps):
            groups[group_of(self._flow, tp)].append(tp)
        return groups


def _parse(metadata: str) -> dict[str, str]:
    """The JSON we wrote; empty for anything else, as committed by a stranger."""
    try:
        about = json.loads(metadata) if metadata else {}
    except ValueError:
        return {}
    if not isinstance(about, dict):
        return {}
    return {key: value for key, value in about.items() if isinstance(value, str)}
