"""Offsets of groups: OffsetCommit and OffsetFetch."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class OffsetCommitPartition(Message):
    """``committed_offset`` is the next offset to read."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


@dataclass(slots=True)
class OffsetCommitTopic(Message):
    """By name (versions up to 9)."""

    name: str
    partitions: tuple[OffsetCommitPartition, ...]


@dataclass(slots=True)
class OffsetCommitRequest(Message):
    """Without membership: generation -1 and no member id."""

    group_id: str
    topics: tuple[OffsetCommitTopic, ...]
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class OffsetCommitResponsePartition(Message):
    """One partition's verdict."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class OffsetCommitResponseTopic(Message):
    """By name."""

    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """One answer to an OffsetCommit."""

    topics: tuple[OffsetCommitResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class OffsetFetchTopic(Message):
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


@dataclass(slots=True)
class OffsetFetchGroup(Message):
    """``topics`` None asks for all that the group has."""

    group_id: str
    topics: tuple[OffsetFetchTopic, ...] | None


@dataclass(slots=True)
class OffsetFetchRequest(Message):
    """``require_stable``: wait out pending transactions (KIP-447)."""

    groups: tuple[OffsetFetchGroup, ...]
    require_stable: bool = True


@dataclass(slots=True)
class OffsetFetchResponsePartition(Message):
    """``committed_offset`` -1 where there is none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseTopic(Message):
    """By name (versions up to 9)."""

    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@dataclass(slots=True)
class OffsetFetchResponseGroup(Message):
    """One group's offsets."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """One answer to an OffsetFetch."""

    groups: tuple[OffsetFetchResponseGroup, ...]
    throttle_time: int = 0
