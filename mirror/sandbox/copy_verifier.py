"""An independent judge of a copy: reads both sides with confluent-kafka and compares record by record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mirror.errors import SandboxError

_SILENCE_S: Final = 30.0
_CHUNK: Final = 5000


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """What a comparison found: ``records`` equal ones, and the first ``difference``, or None."""

    records: int
    difference: str | None

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same."""
        return self.difference is None


def compare(source: str, topic: str, target: str, target_topic: str, *, timestamps: bool = True) -> CopyCheck:
    """Compare keys, values, headers, timestamps and order of every partition of two topics.

    ``source`` and ``target`` are bootstrap addresses. Offsets may differ (transaction markers), records may not.
    Raises SandboxError where a side stops answering.
    """
    partitions = _partitions(source, topic)
    found = _partitions(target, target_topic)
    if found != partitions:
        return CopyCheck(0, f"{topic} has {partitions} partitions, {target_topic} has {found}")
    records = 0
    for partition in range(partitions):
        left = _records(source, topic, partition, timestamps=timestamps)
        right = _records(target, target_topic, partition, timestamps=timestamps)
        for one in left:
            other = next(right, None)
            if other is None or one[1:] != other[1:]:
                return CopyCheck(records, _difference(topic, partition, one, other))
            records += 1
        extra = next(right, None)
        if extra is not None:
            return CopyCheck(records, f"{target_topic}-{partition} offset {extra[0]}: not in the source")
    return CopyCheck(records, None)


def _difference(topic: str, partition: int, one: tuple[Any, ...], other: tuple[Any, ...] | None) -> str:
    where = f"{topic}-{partition} offset {one[0]}"
    if other is None:
        return f"{where}: missing in the target"
    names = ("offset", "key", "value", "headers", "timestamp")
    differing = [name for name, a, b in zip(names, one, other, strict=True) if a != b and name != "offset"]
    return f"{where}: {', '.join(differing)} differ from target offset {other[0]}"


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 32768,
        }
    )


def _partitions(bootstrap: str, topic: str) -> int:
    consumer = _consumer(bootstrap)
    try:
        found = consumer.list_topics(topic, timeout=_SILENCE_S).topics[topic]
        return 0 if found.error is not None else len(found.partitions)
    finally:
        consumer.close()


def _records(bootstrap: str, topic: str, partition: int, *, timestamps: bool) -> Iterator[tuple[Any, ...]]:
    """(offset, key, value, headers, timestamp) of each record, in order, up to the last stable offset of the start."""
    consumer = _consumer(bootstrap)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SILENCE_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        position = low
        while position < high:
            messages: list[Message] = consumer.consume(_CHUNK, timeout=0.5)
            if not messages:
                (tp,) = consumer.position([TopicPartition(topic, partition)])
                # Markers and compacted records advance the position without a message.
                position = max(position, tp.offset)
                _check_alive(consumer, bootstrap)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                position = (message.offset() or 0) + 1
                yield (
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers() or [],
                    message.timestamp() if timestamps else None,
                )
    finally:
        consumer.close()


def _check_alive(consumer: Consumer, bootstrap: str) -> None:
    try:
        consumer.list_topics(timeout=_SILENCE_S)
    except KafkaException as error:
        msg = f"{bootstrap} stopped answering the judge: {error}"
        raise SandboxError(msg) from error
