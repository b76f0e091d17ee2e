"""A plain loop with confluent-kafka, as a good programmer writes it: ``python -m ... JSON`` (see :mod:`.copiers`).

Consumes in chunks, produces each record to its own partition with key, headers and time, at read_committed, idempotent,
with linger 20 ms and the source's codec; ends at the source's end, when all is acknowledged.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

_CHUNK = 10_000
_WITHIN_S = 60.0


def copy(source: str, topic: str, target: str, copy_topic: str, codec: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": f"loop-{copy_topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,  # by default it sleeps a second whenever its queue is full
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": target,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": codec,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    failures: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    left = set(consumer.list_topics(topic, timeout=_WITHIN_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
    while left:
        messages: list[Any] = consumer.consume(_CHUNK, timeout=0.1)
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                left.discard(message.partition())
                continue
            while True:
                try:
                    producer.produce(
                        copy_topic,
                        message.value(),
                        message.key(),
                        message.partition(),
                        headers=message.headers(),
                        timestamp=message.timestamp()[1],
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    if producer.flush(_WITHIN_S) or failures:
        raise SystemExit(f"not all was taken: {failures[:1] or 'time-out'}")
    consumer.close()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    copy(asked["source"], asked["topic"], asked["target"], asked["copy"], asked["codec"])
