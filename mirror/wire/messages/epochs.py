"""OffsetForLeaderEpoch: where a leader epoch ended (KIP-101, KIP-320)."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class EpochPartition(Message):
    """``leader_epoch`` is the one asked about, ``current_leader_epoch`` the one the client believes in."""

    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class EpochTopic(Message):
    """By name in every version."""

    topic: str
    partitions: tuple[EpochPartition, ...]


@dataclass(slots=True)
class OffsetForLeaderEpochRequest(Message):
    """``replica_id`` -1: a consumer asks."""

    topics: tuple[EpochTopic, ...]
    replica_id: int = -1


@dataclass(slots=True)
class EpochEnd(Message):
    """``end_offset`` is the first offset beyond ``leader_epoch`` (the largest known one not above the asked)."""

    error_code: int
    partition: int
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class EpochEndTopic(Message):
    """By name."""

    topic: str
    partitions: tuple[EpochEnd, ...]


@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Message):
    """One answer to an OffsetForLeaderEpoch."""

    topics: tuple[EpochEndTopic, ...]
    throttle_time: int = 0
