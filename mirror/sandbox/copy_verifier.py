"""Verifies a copy independently: reads both sides with confluent-kafka and compares them record by record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mirror.errors import SandboxError

_CALL_TIMEOUT_S: Final = 30.0
_MAX_MESSAGES: Final = 5000


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """The result of a comparison."""

    records: int
    """The number of equal records before the first difference."""
    difference: str | None
    """The first difference, or None."""

    @property
    def equal(self) -> bool:
        """Whether both sides have the same records."""
        return self.difference is None


def compare(source: str, topic: str, target: str, target_topic: str, *, timestamps: bool = True) -> CopyCheck:
    """Compare keys, values, headers, timestamps and order of every partition of two topics.

    ``source`` and ``target`` are bootstrap addresses. Offsets may differ (transaction markers), records may not.
    Raises SandboxError if a cluster does not respond.
    """
    partitions = partition_count(source, topic)
    copied = partition_count(target, target_topic)
    if copied != partitions:
        return CopyCheck(0, f"{topic} has {partitions} partitions, {target_topic} has {copied}")
    records = 0
    for partition in range(partitions):
        originals = read_records(source, topic, partition, timestamps=timestamps)
        copies = read_records(target, target_topic, partition, timestamps=timestamps)
        for original in originals:
            copy = next(copies, None)
            if copy is None or original[1:] != copy[1:]:
                return CopyCheck(records, describe_difference(topic, partition, original, copy))
            records += 1
        extra = next(copies, None)
        if extra is not None:
            return CopyCheck(records, f"{target_topic}-{partition} offset {extra[0]}: not in the source")
    return CopyCheck(records, None)


def describe_difference(topic: str, partition: int, original: tuple[Any, ...], copy: tuple[Any, ...] | None) -> str:
    """Return which fields of a record differ from its copy; None means that there is no copy."""
    where = f"{topic}-{partition} offset {original[0]}"
    if copy is None:
        return f"{where}: missing in the target"
    names = ("offset", "key", "value", "headers", "timestamp")
    differing = [name for name, a, b in zip(names, original, copy, strict=True) if a != b and name != "offset"]
    return f"{where}: {', '.join(differing)} differ from target offset {copy[0]}"


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "copy-verifier",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 32768,
        }
    )


def partition_count(bootstrap: str, topic: str) -> int:
    """Return the number of partitions of a topic; 0 if it does not exist."""
    consumer = _consumer(bootstrap)
    try:
        metadata = consumer.list_topics(topic, timeout=_CALL_TIMEOUT_S).topics[topic]
        return 0 if metadata.error is not None else len(metadata.partitions)
    finally:
        consumer.close()


def read_records(bootstrap: str, topic: str, partition: int, *, timestamps: bool) -> Iterator[tuple[Any, ...]]:
    """Yield (offset, key, value, headers, timestamp) of all records, up to the last stable offset at the start."""
    consumer = _consumer(bootstrap)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_CALL_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        position = low
        while position < high:
            messages: list[Message] = consumer.consume(_MAX_MESSAGES, timeout=0.5)
            if not messages:
                (tp,) = consumer.position([TopicPartition(topic, partition)])
                # Transaction markers and compacted records advance the position without a message.
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
        consumer.list_topics(timeout=_CALL_TIMEOUT_S)
    except KafkaException as error:
        msg = f"{bootstrap} does not respond to the verifier: {error}"
        raise SandboxError(msg) from error
