"""Produces a realistic data set: JSON order events with keys, headers and timestamps, equal for equal seeds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.errors import SandboxError

FIRST_MS: Final = 1_760_000_000_000
"""The time of the first order, in ms since 1970, if none is given."""
INTERVAL_MS: Final = 7
"""The time between two orders, in ms."""
_CITIES: Final = ("Paris", "Berlin", "Kraków", "Zürich", "Oslo", "Lisboa", "Αθήνα")
_STATES: Final = ("created", "paid", "packed", "shipped", "delivered", "returned")
_QUEUE_FULL_POLL_S: Final = 0.05


def make_order(
    rng: random.Random, number: int, size: int, first_ms: int = FIRST_MS
) -> tuple[bytes, bytes, list[tuple[str, str | bytes | None]], int]:
    """Return an order as (key, value, headers, timestamp in ms); the value has at least ``size`` bytes."""
    customer = rng.randrange(50_000)
    event: dict[str, Any] = {
        "order": number,
        "customer": f"C{customer:06d}",
        "state": rng.choice(_STATES),
        "city": rng.choice(_CITIES),
        "total": round(rng.lognormvariate(3.5, 0.8), 2),
        "items": [{"sku": f"SKU-{rng.randrange(9999):04d}", "n": rng.randint(1, 5)} for _ in range(rng.randint(1, 4))],
    }
    value = json.dumps(event, ensure_ascii=False).encode()
    if len(value) < size:
        event["note"] = rng.randbytes((size - len(value)) // 2).hex()
        value = json.dumps(event, ensure_ascii=False).encode()
    headers: list[tuple[str, str | bytes | None]] = [("type", b"order"), ("trace", rng.randbytes(8).hex().encode())]
    return event["customer"].encode(), value, headers, first_ms + number * INTERVAL_MS + rng.randrange(5)


def produce_orders(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    partitions: int = 4,
    size: int = 0,
    seed: int = 1,
    first_ms: int = FIRST_MS,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Create ``topic`` and produce ``records`` orders, compressed with lz4 in large batches.

    ``on_progress`` gets the number of records sent so far. Raises SandboxError if the cluster does not accept all.
    """
    _create(bootstrap, topic, partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 256 * 1024,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    rng = random.Random(seed)  # noqa: S311 - test data
    for number in range(records):
        key, value, headers, timestamp = make_order(rng, number, size, first_ms)
        while True:
            try:
                producer.produce(topic, value, key, headers=headers, timestamp=timestamp, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(_QUEUE_FULL_POLL_S)
        if number % 10_000 == 0:
            producer.poll(0)
            if on_progress is not None:
                on_progress(number)
    unsent = producer.flush(60)
    if unsent or failures:
        reason = failures[0] if failures else "the flush timed out"
        msg = f"{bootstrap} did not accept {unsent + len(failures)} of {records} records: {reason}"
        raise SandboxError(msg)


def _create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The events' timestamps are in the past: with the default retention, the broker would delete them within a minute.
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    for future in admin.create_topics([new]).values():
        future.result(60)
