"""Fetch and ListOffsets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class FetchPartition(Message):
    """The offset to read one partition from, and the most bytes to return."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchTopic(Message):
    """Topics are identified by id from version 13, by name before."""

    topic: str
    topic_id: uuid.UUID | None
    partitions: tuple[FetchPartition, ...]


@dataclass(slots=True)
class ForgottenTopic(Message):
    """Partitions to remove from the session (KIP-227). Identified by id from version 13, by name before."""

    topic: str
    topic_id: uuid.UUID | None
    partitions: tuple[int, ...]


@dataclass(slots=True)
class FetchRequest(Message):
    """Times are in ms, sizes in bytes. ``isolation_level`` 1 is read_committed."""

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
    """The batches of this producer from ``first_offset`` to its abort marker are aborted."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchedLeader(Message):
    """The new leader, sent with errors 6 and 74 (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class FetchResponsePartition(Message):
    """``records`` is a writable view of the frame, never a copy; None if there are none."""

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
    """Topics are identified by id from version 13, by name before."""

    topic_id: uuid.UUID | None = None
    topic: str = ""
    partitions: tuple[FetchResponsePartition, ...] = ()


@dataclass(slots=True)
class FetchResponse(Message):
    """Response to a Fetch request."""

    most_bytes: ClassVar[int] = 128 * 1024 * 1024
    """Beside what is asked for: the first batch is returned whole (KIP-74). No broker takes one of more than 100 MiB,
    unless its ``socket.request.max.bytes`` is raised."""

    error_code: int = 0
    session_id: int = 0
    responses: tuple[FetchResponseTopic, ...] = ()
    throttle_time: int = 0


@dataclass(slots=True)
class ListOffsetsPartition(Message):
    """``timestamp`` is in ms, or -1 for the latest offset, -2 for the earliest."""

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsTopic(Message):
    """Topics are identified by name in every version."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@dataclass(slots=True)
class ListOffsetsRequest(Message):
    """With ``isolation_level`` 1 the latest offset is the last stable offset."""

    isolation_level: int
    topics: tuple[ListOffsetsTopic, ...]
    timeout: int = 0
    replica_id: int = -1


@dataclass(slots=True)
class ListOffsetsResponsePartition(Message):
    """``offset`` is -1 if no record is at or after the requested timestamp."""

    partition_index: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsResponseTopic(Message):
    """Results of one topic, identified by name."""

    name: str
    partitions: tuple[ListOffsetsResponsePartition, ...]


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    """Response to a ListOffsets request."""

    topics: tuple[ListOffsetsResponseTopic, ...]
    throttle_time: int = 0
