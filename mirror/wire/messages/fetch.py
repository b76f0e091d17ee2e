"""Fetch and ListOffsets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class FetchPartition(Message):
    """Where to read one partition, and how much."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchTopic(Message):
    """By id from version 13 on, by name before."""

    topic: str
    topic_id: uuid.UUID | None
    partitions: tuple[FetchPartition, ...]


@dataclass(slots=True)
class ForgottenTopic(Message):
    """Partitions that leave the session (KIP-227). By id from version 13 on, by name before."""

    topic: str
    topic_id: uuid.UUID | None
    partitions: tuple[int, ...]


@dataclass(slots=True)
class FetchRequest(Message):
    """Times in ms, sizes in bytes. ``isolation_level`` 1 is read_committed."""

    max_wait: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: tuple[FetchTopic, ...]
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()
    rack_id: str = ""
    replica_id: int = -1


@dataclass(slots=True)
class AbortedTransaction(Message):
    """From ``first_offset`` on, this producer's batches up to its abort marker are void."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchedLeader(Message):
    """The new leader, told with error 6 or 74 (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class FetchResponsePartition(Message):
    """``records`` is a writable view into the frame, never a copy; None where there are none."""

    partition_index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    preferred_read_replica: int = -1
    records: memoryview | None = None
    current_leader: FetchedLeader | None = None


@dataclass(slots=True)
class FetchResponseTopic(Message):
    """By id from version 13 on, by name before."""

    topic_id: uuid.UUID | None = None
    topic: str = ""
    partitions: tuple[FetchResponsePartition, ...] = ()


@dataclass(slots=True)
class FetchResponse(Message):
    """One answer to a Fetch."""

    error_code: int = 0
    session_id: int = 0
    responses: tuple[FetchResponseTopic, ...] = ()
    throttle_time: int = 0


@dataclass(slots=True)
class ListOffsetsPartition(Message):
    """``timestamp`` in ms, or -1 latest, -2 earliest."""

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsTopic(Message):
    """By name in every version."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@dataclass(slots=True)
class ListOffsetsRequest(Message):
    """``isolation_level`` 1: latest is the last stable offset."""

    isolation_level: int
    topics: tuple[ListOffsetsTopic, ...]
    timeout: int = 0
    replica_id: int = -1


@dataclass(slots=True)
class ListOffsetsResponsePartition(Message):
    """``offset`` -1 where no record is that young."""

    partition_index: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsResponseTopic(Message):
    """By name."""

    name: str
    partitions: tuple[ListOffsetsResponsePartition, ...]


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    """One answer to a ListOffsets."""

    topics: tuple[ListOffsetsResponseTopic, ...]
    throttle_time: int = 0
