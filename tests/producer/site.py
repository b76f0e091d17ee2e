"""A cluster with one topic and a producer, as most tests of the producer core need them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import DeliveryTimeout, KafkaError
from mirror.producer.batch.batches import ProducerBatch, RecordMetadata
from mirror.wire.api import Api
from mirror.wire.records import Batch
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import ServerCall
from tests.fakes.record_batches import batches_in, values_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IN_FLIGHT = "max.in.flight.requests.per.connection"
TIMES = {"delivery.timeout.ms": 5_000, "request.timeout.ms": 4_000}
"""Short ones: ms."""


def make_cluster(brokers: int = 1, partitions: int = 2) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", partitions)
    return cluster


def values(cluster: FakeCluster, partition: int = 0) -> list[bytes]:
    """What is in the log, aborted or not."""
    batches = cluster.log("t", partition).batches()
    return [value for one in batches if not one.is_control for value in values_of(one.view)]


def committed(cluster: FakeCluster, partition: int = 0) -> list[bytes]:
    """What a reader of committed records sees by now."""
    log = cluster.log("t", partition)
    gone = [(one.producer_id, range(one.first_offset, one.last_offset)) for one in log.aborted]
    batches = [one for one in log.batches() if not one.is_control and one.base_offset < log.last_stable_offset]
    kept = [one for one in batches if not any(one.producer_id == p and one.base_offset in span for p, span in gone)]
    return [value for one in kept for value in values_of(one.view)]


def stamps(cluster: FakeCluster, partition: int = 0) -> list[tuple[int, int]]:
    """(epoch, first sequence) of each batch in the log."""
    batches = cluster.log("t", partition).batches()
    return [(one.producer_epoch, one.base_sequence) for one in batches if not one.is_control]


def attempts(cluster: FakeCluster) -> list[list[tuple[int, int]]]:
    """(epoch, first sequence) of each batch in each Produce that reached a broker."""
    return [[(one.producer_epoch, one.base_sequence) for one in batches(call)] for call in cluster.calls(Api.PRODUCE)]


def batches(call: ServerCall) -> list[Batch]:
    parts = [part for topic in call.body.topic_data for part in topic.partition_data]
    return [one for part in parts for one in batches_in(part.records.segments[0])]


def send(producer: FakeProducer, value: bytes = b"x", tp: TopicPartition = T0) -> ProducerBatch:
    made = producer.prepare(tp, value)
    producer.send_batch(made)
    return made


def failure(producer: FakeProducer, future: Future[Any]) -> KafkaError:
    """The error that ``future`` ends with."""
    with pytest.raises(KafkaError) as raised:
        producer.finish(future)
    return raised.value


def expired(producer: FakeProducer, sent: ProducerBatch) -> DeliveryTimeout:
    """How ``sent`` expired, at the moment when it had to."""
    error = failure(producer, sent.future)
    assert isinstance(error, DeliveryTimeout), error
    assert producer.completed_ms == sent.expires_ms
    return error


def finish(producer: FakeProducer, *futures: Future[RecordMetadata]) -> list[int]:
    """The offsets that were reported, in order."""
    return [producer.finish(future).offset for future in futures]


def transactional(version: int, *, brokers: int = 1, **options: object) -> FakeProducer:
    """A producer of the transactional id "x", initialized, on brokers of this transaction version."""
    cluster = make_cluster(brokers)
    cluster.features["transaction.version"] = version
    producer = FakeProducer(cluster, **{"transactional.id": "x", **options})
    producer.init()
    return producer
