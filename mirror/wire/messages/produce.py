"""Produce and InitProducerId."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from mirror.wire.messages.base import FEW_BYTES, Message, Records


@dataclass(slots=True)
class ProducePartition(Message):
    """One batch for one partition. Brokers refuse two batches for a partition in one request (error 87)."""

    index: int
    records: Records


@dataclass(slots=True)
class ProduceTopic(Message):
    """Topics are identified by id from version 13, by name before."""

    name: str
    topic_id: uuid.UUID | None
    partition_data: tuple[ProducePartition, ...]


@dataclass(slots=True)
class ProduceRequest(Message):
    """``acks`` -1 waits for all in-sync replicas, for up to ``timeout`` ms."""

    acks: int
    timeout: int
    topic_data: tuple[ProduceTopic, ...]
    transactional_id: str | None = None


@dataclass(slots=True)
class ProducedLeader(Message):
    """The new leader, sent with error 6 (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class RecordError(Message):
    """A record that made the broker refuse its batch (KIP-467)."""

    batch_index: int
    batch_index_error_message: str | None = None


@dataclass(slots=True)
class ProduceResponsePartition(Message):
    """``base_offset`` is the offset of the first record of the batch in the log."""

    index: int
    error_code: int
    base_offset: int
    log_append_time: int | None = None
    log_start_offset: int = -1
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    current_leader: ProducedLeader | None = None


@dataclass(slots=True)
class ProduceResponseTopic(Message):
    """Topics are identified by id from version 13, by name before."""

    name: str = ""
    topic_id: uuid.UUID | None = None
    partition_responses: tuple[ProduceResponsePartition, ...] = ()


@dataclass(slots=True)
class ProduceResponse(Message):
    """Response to a Produce request."""

    responses: tuple[ProduceResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class InitProducerIdRequest(Message):
    """A null transactional id requests the id of an idempotent producer."""

    transactional_id: str | None
    transaction_timeout: int
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class InitProducerIdResponse(Message):
    """The producer id and epoch for the headers of batches."""

    most_bytes: ClassVar[int] = FEW_BYTES

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1
    throttle_time: int = 0
