"""Exports tails, each exactly once, into topics of their own on the other cluster.

All attempts have one transactional id, so that a later one fences an earlier one before it reads how far that was: the
last committed record of a tail's topic says so (:func:`mirror.switch.failback.tail.resumed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, Admin, ConfigResource, NewTopic, Producer, Record, TopicPartition
from mirror.config.flow_rules import target_options
from mirror.errors import BrokerError, FlowError
from mirror.relay.origin.registration import open_registration
from mirror.relay.origin.registry import registry_topic
from mirror.relay.progress.flow_topic import cluster_options
from mirror.runtime.clock import SystemClock
from mirror.switch.failback import tail
from mirror.switch.failback.tail import Span
from mirror.switch.failback.tail_log import TailLog
from mirror.verify.log_reader import LogReader
from mirror.wire.error_codes import TOPIC_ALREADY_EXISTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import FlowConfig, MirrorConfig

_MORE_BYTES: Final = 1024 * 1024
"""A record has more headers in its tail's topic, and its batch may be compressed less."""
_FOR_EVER: Final = "-1"


def transactional_id(switch: str) -> str:
    """Return the id under which tails are exported; users grant it for the prefix of flows."""
    return f"mirror.{switch}.tail"


def export_tails(
    config: MirrorConfig,
    flow: FlowConfig,
    switch: str,
    tails: Mapping[str, Sequence[Span]],
    *,
    cluster: str,
    generation: int,
    timeout_ms: int,
    on_line: Callable[[str], None],
) -> dict[str, int]:
    """Export the tails of these topics of ``flow``; return how many records of each were exported now.

    ``cluster`` is the old cluster's id. Raises KafkaError, FlowError: then it may be repeated, and goes on.
    """
    options = target_options(config, flow)
    with Admin(cluster_options(options)) as target, Admin(config.clusters[flow.source].client_options()) as source:
        ids = {
            name: str(one.topic_id or "") for name, one in source.describe_topics(tails, timeout_ms=timeout_ms).items()
        }
        for topic, spans in tails.items():
            _create(target, source, flow, topic, tail.topic_of(topic, generation), len(spans), timeout_ms)
        registration = None
        if flow.registers_producers:
            registration = open_registration(registry_topic(cluster_options(options)), flow.name, target, timeout_ms)
        producer = Producer(
            {"compression.type": "zstd", "batch.size": 64 * 1024, "linger.ms": 5}
            | {**options, "transactional.id": transactional_id(switch), "max.block.ms": timeout_ms},
            on_producer_id=None if registration is None else registration.on_producer_id,
        )
        try:
            producer.init_transactions(timeout_ms)
            with TailLog(config, flow, ids, timeout_ms) as log, LogReader(options, SystemClock(), timeout_ms) as own:
                exported = {}
                for topic, spans in tails.items():
                    exporter = _Topic(source, target, own, log, producer, cluster, generation, on_line)
                    exported[topic] = exporter.export(topic, spans)
                    on_line(f"{tail.topic_of(topic, generation)}: {exported[topic]} records exported")
                return exported
        finally:
            if registration is not None:
                registration.close()
            producer.close(timeout_ms=0)


class _Topic:
    """Exports one topic."""

    def __init__(
        self,
        source: Admin,
        target: Admin,
        own: LogReader,
        log: TailLog,
        producer: Producer,
        cluster: str,
        generation: int,
        on_line: Callable[[str], None],
    ) -> None:
        self._source: Final = source
        self._on_line: Final = on_line
        self._target: Final = target
        self._own: Final = own
        self._log: Final = log
        self._producer: Final = producer
        self._cluster: Final = cluster
        self._generation: Final = generation

    def export(self, topic: str, spans: Sequence[Span]) -> int:
        name, count = tail.topic_of(topic, self._generation), 0
        for partition, span in enumerate(spans):
            last = last_record(self._target, self._own, TopicPartition(name, partition))
            left = tail.resumed(span, last, self._cluster, partition, name)
            tp = TopicPartition(topic, partition)
            first = self._source.list_offsets({tp: EARLIEST})[tp].offset
            if left.start < min(first, left.end):
                self._on_line(f"{tp}: retention has deleted offsets {left.start} to {min(first, left.end)} of the tail")
                left = Span(min(first, left.end), left.end)
            for portion in tail.transactions(self._log.records(tp, left)):
                self._send(name, partition, portion)
                count += len(portion)
        return count

    def _send(self, name: str, partition: int, portion: Sequence[Record]) -> None:
        self._producer.begin_transaction()
        for one in portion:
            self._producer.send(
                name,
                partition,
                key=one.key,
                value=one.value,
                headers=tail.marked(one, self._cluster, partition),
                timestamp_ms=max(one.timestamp_ms, 0),
            )
        self._producer.commit_transaction()


def last_record(target: Admin, reader: LogReader, tp: TopicPartition) -> Record | None:
    """Return the last committed record of a partition; None if it has none. Raises KafkaError."""
    start, end = (target.list_offsets({tp: which})[tp].offset for which in (EARLIEST, LATEST))
    for span in tail.windows(start, end):
        last = None
        for fetched in reader.read(tp, *span):
            last = max(
                (one for one in fetched.records() if one.offset < span.end), key=lambda one: one.offset, default=last
            )
        if last is not None:
            return last
    return None


def _create(
    target: Admin, source: Admin, flow: FlowConfig, topic: str, name: str, partitions: int, timeout_ms: int
) -> None:
    """Create the topic of a tail, which keeps all. Raises KafkaError, FlowError."""
    resource = ConfigResource.topic(topic)
    found = source.describe_configs([resource], keys=["max.message.bytes"], timeout_ms=timeout_ms)[resource]
    largest = int(found["max.message.bytes"].value or 0) if "max.message.bytes" in found else 0
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": _FOR_EVER,
        "retention.bytes": _FOR_EVER,
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": str(largest + _MORE_BYTES),
    }
    wanted = NewTopic(name, partitions, flow.replication_factor, configs)
    error = target.create_topics([wanted], partial=True, timeout_ms=timeout_ms).failed.get(name)
    if isinstance(error, BrokerError) and error.code == TOPIC_ALREADY_EXISTS:
        there = len(target.describe_topics([name], timeout_ms=timeout_ms)[name].partitions)
        if there != partitions:
            raise FlowError(f"{name} has {there} partitions, and the tail {partitions}: delete it if nothing needs it")
    elif error is not None:
        raise error
