"""The client, as applications import it: ``from mirror.client import Consumer, Producer, Admin, TopicPartition``."""

from __future__ import annotations

from mirror.cluster.topics import (
    EARLIEST,
    LATEST,
    Broker,
    ClusterDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from mirror.consumer.fetched import Fetched
from mirror.producer.batches import RecordMetadata
from mirror.runtime.admin import Admin
from mirror.runtime.consumer import Consumer
from mirror.runtime.producer import Producer

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "Broker",
    "ClusterDescription",
    "Consumer",
    "Fetched",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetResult",
    "PartitionDescription",
    "Producer",
    "RecordMetadata",
    "TopicDescription",
    "TopicPartition",
]
