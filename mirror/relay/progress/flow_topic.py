"""The flow's compacted topics on the target, as keys and values: of progress, status, offsets, groups, and others.

Each call opens and closes its own clients, so that it may be used by several threads. These share the target's network
thread with the other clients of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future, wait
from typing import Final, NamedTuple, TypeVar

from mirror.client import EARLIEST, LATEST, Admin, Consumer, Producer, RecordMetadata, TopicPartition
from mirror.closing import Closing
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.progress.log_reading import read_log
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decode import Record

K = TypeVar("K", bound=Hashable)

_LOG_PARTITION: Final = 0
_FETCH_BYTES: Final = 1024 * 1024
_COMPRESSION: Final = "zstd"
"""The records of many partitions, written together, differ little: they take an eighth of their size."""


class KeyValue(NamedTuple):
    """A record to write; without a value, it deletes what the key had."""

    key: bytes
    value: bytes | None


def topic_of(flow: str) -> str:
    """Return the progress topic of the flow, which is on the target; it is compacted and has one partition."""
    return f"mirror-progress.{flow}.internal"


def offset_topic_of(flow: str) -> str:
    """Return the topic of the flow's offset index, which is on the target; it is compacted and has one partition."""
    return f"mirror-offsets.{flow}.internal"


def group_topic_of(flow: str) -> str:
    """Return the topic of what the flow commits for consumer groups; it is on the target, with one partition."""
    return f"mirror-groups.{flow}.internal"


def inventory_topic_of(flow: str) -> str:
    """Return the topic of what the flow has created and configured on the target; it is there, with one partition."""
    return f"mirror-inventory.{flow}.internal"


def status_topic_of(flow: str) -> str:
    """Return the topic of what the flow's runs report of it; it is on the target, compacted, with one partition.

    Users grant the permissions for the prefix of progress topics.
    """
    return f"mirror-progress.{flow}.status.internal"


def takeover_topic_of(flow: str) -> str:
    """Return the topic of what the flow has taken over from MirrorMaker 2; it is on the target, with one partition.

    Only a takeover creates it. Users grant the permissions for the prefix of progress topics.
    """
    return f"mirror-progress.{flow}.takeover.internal"


def switch_topic_of(switch: str) -> str:
    """Return the topic of a switch's record; it is on both clusters, compacted, with one partition.

    Users grant the permissions for the prefix of progress topics.
    """
    return f"mirror-progress.{switch}.switch.internal"


def switch_of(topic: str) -> str:
    """Return the switch that has this topic for its record; empty if none has."""
    name = topic.removeprefix("mirror-progress.").removesuffix(".switch.internal")
    return name if topic == switch_topic_of(name) else ""


def latch_topic_of(flow: str) -> str:
    """Return the topic that says whether the flow may copy; it is on the target, with one partition.

    Only ``mirror hold`` creates it. Users grant the permissions for the prefix of progress topics.
    """
    return f"mirror-progress.{flow}.latch.internal"


def cluster_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return those of the dotted keys ``options`` that every client of a cluster takes."""
    keys = ClusterSettings.keys()
    return {key: value for key, value in options.items() if key in keys}


class FlowTopic:
    """Reads and writes all records of one of a flow's topics."""

    def __init__(self, target_options: Mapping[str, object], topic: str) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self.options: Final = cluster_options(target_options)
        self.settings: Final = ClusterSettings.parse(self.options)
        self.tp: Final = TopicPartition(topic, _LOG_PARTITION)

    def records(self, timer: Timer) -> Iterator[Record]:
        """Yield all records in order; none if there is no such topic. Raises KafkaError, KafkaTimeout."""
        with Admin(self.options) as admin, self.consumer() as consumer:
            if self.tp.topic not in admin.describe_topics([self.tp.topic], timeout_ms=timer.remaining_ms()):
                return
            start, end = log_bounds(admin, self.tp, timer)
            for fetched in read_log(consumer, self.tp, start, end, timer):
                yield from fetched.records()

    def consumer(self, isolation: str = "read_committed", *, wait_ms: int = 0) -> Consumer:
        """Create a consumer of the target, for whose fetches the broker waits ``wait_ms``; 0: the default."""
        return Consumer(
            {**self.options, "auto.offset.reset": "none", "isolation.level": isolation}
            | {"fetch.max.bytes": _FETCH_BYTES, "max.partition.fetch.bytes": _FETCH_BYTES}
            | ({"fetch.max.wait.ms": min(wait_ms, self.settings.request_timeout_ms // 2)} if wait_ms else {})
        )

    def write(self, records: Mapping[K, KeyValue], timeout_ms: int) -> dict[K, KafkaError]:
        """Write these records within ``timeout_ms``. Return those that may *not* have been written; never raises."""
        with FlowTopicWriter(self) as writer:
            return writer.write(records, timeout_ms)

    def producer(self, timeout_ms: int) -> Producer:
        """Create a producer for :meth:`write_with`, whose calls take at most ``timeout_ms``. Raises KafkaError."""
        shortest_ms = self.settings.request_timeout_ms + self.settings.retry_backoff_ms
        options = {"max.block.ms": timeout_ms, "delivery.timeout.ms": max(timeout_ms, shortest_ms)}
        return Producer({**self.options, **options, "compression.type": _COMPRESSION})

    def write_with(self, producer: Producer, records: Mapping[K, KeyValue], timeout_ms: int) -> dict[K, KafkaError]:
        """Do what :meth:`write` does, with a ``producer`` that stays open."""
        timer = Timer(SystemClock(), timeout_ms)
        errors: dict[K, KafkaError] = {}
        sent = self._send(producer, records, errors)
        wait(sent.values(), timeout=timer.remaining_ms() / 1000)
        for name, future in sent.items():
            if not future.done():
                errors[name] = KafkaTimeout(f"{self.tp.topic} did not acknowledge a record within {timeout_ms} ms")
            elif isinstance(failure := future.exception(), KafkaError):
                errors[name] = failure
        return errors

    def _send(
        self, producer: Producer, records: Mapping[K, KeyValue], errors: dict[K, KafkaError]
    ) -> dict[K, Future[RecordMetadata]]:
        sent: dict[K, Future[RecordMetadata]] = {}
        for name, record in records.items():
            try:
                sent[name] = producer.send(*self.tp, key=record.key, value=record.value)
            except KafkaError as error:
                # All records go to the same partition: after one timeout the others need not wait, too.
                errors.update(dict.fromkeys(records.keys() - sent.keys(), error))
                break
        return sent


class FlowTopicWriter(Closing):
    """Writes records of a topic with one producer for as long as that succeeds. Use it in one thread at a time.

    Each producer takes an id, which the topic's leader remembers for a day.
    """

    def __init__(self, topic: FlowTopic) -> None:
        self._topic: Final = topic
        self._producer: Producer | None = None
        self._is_closed = False

    def write(self, records: Mapping[K, KeyValue], timeout_ms: int) -> dict[K, KafkaError]:
        """Do what :meth:`FlowTopic.write` does."""
        if not records:
            return {}
        is_written = False
        try:
            producer = self._producer = self._producer or self._topic.producer(timeout_ms)
            failed = self._topic.write_with(producer, records, timeout_ms)
            is_written = not failed
        except KafkaError as error:
            return dict.fromkeys(records, error)
        finally:
            if self._is_closed or not is_written:
                self._release()  # a new one begins without what the old one holds back
        return failed

    def close(self) -> None:
        """Close the connections, without waiting, or at the end of a write that another thread has begun."""
        self._is_closed = True
        self._release()

    def _release(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):
                producer.close(timeout_ms=0)


def log_bounds(admin: Admin, tp: TopicPartition, timer: Timer, isolation: str = "read_uncommitted") -> tuple[int, int]:
    """Return the first offset and the end of the log, by default with open transactions. Raises KafkaError."""
    first, end = (
        admin.list_offsets({tp: spec}, isolation=isolation, timeout_ms=timer.remaining_ms())[tp].offset
        for spec in (EARLIEST, LATEST)
    )
    return first, end
