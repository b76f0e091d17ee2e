"""One client fetching a topic to nothing, in a process: ``python fetch_clients.py NAME SERVERS TOPIC COUNT``.

Prints a line of JSON: records, bytes, wall seconds and CPU seconds, imports and connecting left out.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass

PARTITIONS = 4


@dataclass(slots=True)
class Measure:
    """From the first fetch to the last record."""

    records: int
    bytes: int
    seconds: float
    cpu_s: float


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _measure(read: Callable[[], tuple[int, int]], count: int) -> Measure:
    """Call ``read`` (records, bytes of one round) until ``count`` records came."""
    records = size = 0
    began, cpu = time.perf_counter(), _cpu_s()
    while records < count:
        more, more_bytes = read()
        records += more
        size += more_bytes
    return Measure(records, size, time.perf_counter() - began, _cpu_s() - cpu)


def ours(servers: str, topic: str, count: int, *, verify: bool) -> Measure:
    """Batches as views; records are counted by the batches' headers."""
    from mirror.client import Consumer, TopicPartition
    from mirror.wire.records import Batch

    with Consumer({"bootstrap.servers": servers}) as consumer:
        consumer.list_topics()
        tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)

        def read() -> tuple[int, int]:
            records = size = 0
            for fetched in consumer.poll(timeout_ms=1_000):
                if fetched.error is not None:
                    raise fetched.error
                for batch in fetched.batches:
                    if verify:
                        batch.verify()
                    assert isinstance(batch, Batch)
                    records += batch.count
                size += fetched.size
            return records, size

        return _measure(read, count)


def librdkafka(servers: str, topic: str, count: int) -> Measure:
    """confluent-kafka's ``consume()`` in chunks; every record becomes an object."""
    from confluent_kafka import Consumer, TopicPartition

    options = {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer(options)
    try:
        consumer.list_topics(topic, timeout=20)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

        def read() -> tuple[int, int]:
            messages = consumer.consume(10_000, timeout=1.0)
            return len(messages), sum(len(message.value() or b"") for message in messages)

        return _measure(read, count)
    finally:
        consumer.close()


def kafka_python(servers: str, topic: str, count: int) -> Measure:
    """kafka-python's ``poll()``, in pure Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]

    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    try:
        consumer.topics()
        tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)

        def read() -> tuple[int, int]:
            result = consumer.poll(timeout_ms=1_000, max_records=10_000)
            records = [record for part in result.values() for record in part]
            return len(records), sum(len(record.value or b"") for record in records)

        return _measure(read, count)
    finally:
        consumer.close()


CLIENTS: dict[str, Callable[[str, str, int], Measure]] = {
    "mirror, CRC verified": lambda servers, topic, count: ours(servers, topic, count, verify=True),
    "mirror, CRC not verified": lambda servers, topic, count: ours(servers, topic, count, verify=False),
    "confluent-kafka (librdkafka)": librdkafka,
    "kafka-python": kafka_python,
}


if __name__ == "__main__":
    name, servers, topic, count = sys.argv[1:]
    sys.stdout.write(json.dumps(asdict(CLIENTS[name](servers, topic, int(count)))) + "\n")
