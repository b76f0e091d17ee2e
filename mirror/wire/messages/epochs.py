"""OffsetForLeaderEpoch: the end offset of a leader epoch (KIP-101, KIP-320)."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class EpochPartition(Message):
    """``leader_epoch`` is the epoch to look up, ``current_leader_epoch`` the one in the client's metadata."""

    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class EpochTopic(Message):
    """Partitions of one topic; topics are identified by name in every version."""

    topic: str
    partitions: tuple[EpochPartition, ...]


@dataclass(slots=True)
class OffsetForLeaderEpochRequest(Message):
    """``replica_id`` -1: the request comes from a consumer."""

    topics: tuple[EpochTopic, ...]
    replica_id: int = -1


@dataclass(slots=True)
class EpochEnd(Message):
    """``end_offset`` is the first offset after ``leader_epoch``, the largest epoch not above the requested one."""

    error_code: int
    partition: int
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class EpochEndTopic(Message):
    """Results of one topic, identified by name."""

    topic: str
    partitions: tuple[EpochEnd, ...]


@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Message):
    """Response to an OffsetForLeaderEpoch request."""

    topics: tuple[EpochEndTopic, ...]
    throttle_time: int = 0
