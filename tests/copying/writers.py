"""Writes to the source: batches with exactly the given records, and concurrent transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Producer as Confluent

from mirror.client import Producer, TopicPartition
from mirror.wire.encode import BatchBuilder
from mirror.wire.header_names import Headers
from mirror.wire.records import Batch
from tests.e2e.broker_side import FIRST_MS, WITHIN_S, failed_into

_NO_LIMIT: Final = 2**31 - 1


class Made(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    time_ms: int = FIRST_MS


def made(count: int, *, first: int = 0, size: int = 40) -> list[Made]:
    """Make ``count`` different records that compress well, a millisecond apart."""
    return [
        Made(b"k%d" % number, (b"%09d " % number).ljust(size, b"."), (("n", b"%d" % number),), FIRST_MS + number)
        for number in range(first, first + count)
    ]


def batch_of(records: Iterable[Made], codec: str = "none") -> Batch:
    """Build one batch of all ``records``."""
    builder = BatchBuilder(codec, _NO_LIMIT)
    for record in records:
        assert builder.append(record.key, record.value, record.headers, record.time_ms)
    return builder.build()


def write_batches(servers: str, topic: str, batches: Iterable[Batch], partition: int = 0) -> None:
    """Write with this project's producer, which keeps the batches as they are."""
    with Producer({"bootstrap.servers": servers, "buffer.memory": 100 << 20}) as producer:
        tp = TopicPartition(topic, partition)
        for future in [producer.send_batch(tp, batch) for batch in batches]:
            future.result(timeout=WITHIN_S)


def write(producer: Confluent, topic: str, records: Sequence[Made], partition: int = 0) -> None:
    """Write with confluent-kafka, and wait for all acknowledgements."""
    failures = list[str]()
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            on_delivery=failed_into(failures),
            timestamp=record.time_ms,
            headers=list(record.headers),
        )
    assert producer.flush(WITHIN_S) == 0
    assert not failures, failures[0]


def transactional(servers: str, name: str) -> Confluent:
    """Create a producer that may begin a transaction."""
    producer = Confluent({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WITHIN_S)
    return producer
