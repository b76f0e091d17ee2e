"""Compares the logs, read by an independent client, with the results of the batches."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.client import TopicPartition
from mirror.errors import DeliveryTimeout
from tests.campaign.soak.load import Sent
from tests.stalls import Stalls

_READ_WITHIN_S: Final = 180.0
EXPIRY_LATE_MS: Final = 250
"""How long after delivery.timeout.ms a batch may expire."""
_MAX_SHOWN: Final = 5


class Found(NamedTuple):
    """A batch in the log: its number, its first offset, and how many of its records follow one another."""

    number: int
    offset: int
    records: int


def read_logs(servers: str, partitions: Collection[TopicPartition], *, committed: bool) -> dict[TopicPartition, Any]:
    """Return each partition's batches in the order of the log. AssertionError where not all of it can be read."""
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "verifier",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.message.max.bytes": 4 << 20,
            "queued.max.messages.kbytes": 64 << 10,
        }
    )
    try:
        return _read(consumer, partitions)
    finally:
        consumer.close()


def _read(consumer: Consumer, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
    until = time.monotonic() + _READ_WITHIN_S
    logs: dict[TopicPartition, list[Found]] = {tp: [] for tp in partitions}
    # Up to the high watermark, not the last stable offset: an open transaction would hide what follows it.
    ends = {tp: _end(consumer, tp) for tp in partitions}
    left = {tp for tp, end in ends.items() if end > 0}
    consumer.assign([ConfluentPartition(*tp, 0) for tp in left])
    while left:
        assert time.monotonic() < until, f"not read to the end within {_READ_WITHIN_S:.0f} s: {sorted(left)}"
        for message in consumer.consume(num_messages=2_000, timeout=1):
            topic, number, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert number is not None
            assert offset is not None
            tp = TopicPartition(topic, number)
            error = message.error()
            if error is None:
                _note(logs[tp], tp, offset, message.key())
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif offset >= ends[tp]:
                left.discard(tp)
    return logs


def _end(consumer: Consumer, tp: TopicPartition) -> int:
    _, end = consumer.get_watermark_offsets(ConfluentPartition(*tp), timeout=30)
    assert end is not None
    return end


def _note(log: list[Found], tp: TopicPartition, offset: int, key: Any) -> None:
    partition, number, record = (int(part) for part in bytes(key or b"").split(b":"))
    assert partition == tp.partition, f"{tp}: a record of partition {partition} at offset {offset}"
    last = log[-1] if log else None
    if last is not None and record and last.number == number:
        assert record == last.records, f"{tp}: record {record} of batch {number} at offset {offset} is out of order"
        log[-1] = Found(number, last.offset, record + 1)
    else:
        assert record == 0, f"{tp}: batch {number} begins with record {record} at offset {offset}"
        log.append(Found(number, offset, 1))


def log_findings(tp: TopicPartition, sent: Sequence[Sent], log: Sequence[Found]) -> list[str]:
    """Describe batches that are lost, duplicated, out of order, incomplete, or written although they failed."""
    times = Counter(found.number for found in log)
    by_number = {found.number: found for found in log}
    wrong = [f"batch {number} is there {count} times" for number, count in times.items() if count > 1]
    order = [found.number for found in log]
    wrong += [f"batch {b} follows batch {a}" for a, b in itertools.pairwise(order) if b <= a]
    wrong += [f"batch {number} was never sent" for number in times.keys() - {one.number for one in sent}]
    for one in sent:
        found = by_number.get(one.number)
        if one.acknowledged:
            if found is None:
                wrong.append(f"batch {one.number} was acknowledged (offset {one.base_offset}) and is lost")
            elif one.base_offset not in {-1, found.offset}:
                wrong.append(f"batch {one.number} was acknowledged at {one.base_offset} and is at {found.offset}")
        elif found is not None and not getattr(one.error, "may_have_been_written", False):
            wrong.append(
                f"batch {one.number} is at {found.offset}, but its error excludes that it was written: {one.error}"
            )
        if found is not None and found.records != one.count:
            wrong.append(f"batch {one.number} has {found.records} of {one.count} records")
    return [f"{tp}: {text}" for text in wrong[:_MAX_SHOWN]]


def expiry_findings(
    sent: Mapping[TopicPartition, Sequence[Sent]], delivery_timeout_ms: int, stalls: Stalls
) -> list[str]:
    """Describe expiries that came too early or too late, and every other failure.

    Times in which this process could not run are not counted.
    """
    wrong = []
    for tp, one in ((tp, one) for tp, all_sent in sent.items() for one in all_sent if one.error is not None):
        if not isinstance(one.error, DeliveryTimeout) or one.taken_ms < 0:
            if not (isinstance(one.error, TimeoutError) and "buffer.memory" in str(one.error)):
                wrong.append(f"{tp}: batch {one.number} ended with {type(one.error).__name__}: {one.error}")
            continue
        # The batch was created between both times. The producer's clock counts whole ms.
        least, most = one.completed_ms - one.taken_ms, one.completed_ms - one.asked_ms
        latest = (
            delivery_timeout_ms + EXPIRY_LATE_MS + stalls.between(one.taken_ms + delivery_timeout_ms, one.completed_ms)
        )
        if most < delivery_timeout_ms - 1 or least > latest:
            wrong.append(f"{tp}: batch {one.number} expired {least:.0f} to {most:.0f} ms after it was made")
        if not delivery_timeout_ms <= one.error.age_ms <= latest + 1:
            wrong.append(f"{tp}: batch {one.number} expired with an age of {one.error.age_ms} ms: {one.error}")
    return wrong[:_MAX_SHOWN]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of ``values`` lie; 0 where there are none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0
