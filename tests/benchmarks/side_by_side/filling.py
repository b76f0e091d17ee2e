"""Makes a workload's records at the source, once, by confluent-kafka; the same ones for the same seed."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from mirror.sandbox import demo_data
from mirror.sandbox.cluster import Cluster
from tests.benchmarks.side_by_side.links import LATEST, READ_UNCOMMITTED, LinkError, Offsets, Topic
from tests.benchmarks.side_by_side.workloads import COMPACTED, TRANSACTIONAL, Workload

Event = tuple[bytes, bytes, list[tuple[str, str | bytes | None]], int]

SOURCE_PROPERTIES: Final = {"log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "1000"}
_POOL_BYTES: Final = 20_000_000
_SMALL: Final = 150
"""Below it an order does not fit: then a reading of a sensor is made."""
_INTERVAL_MS: Final = 7
_KEYS_PER_RECORD: Final = 0.627
"""As many keys leave half of the records: n records of k keys leave k (1 - exp(-n / k))."""
_TRANSACTION: Final = 1_000
_ABORT_EACH: Final = 20
_WITHIN_S: Final = 120.0
_CLEANED_WITHIN_S: Final = 300.0
_SEGMENT: Final = 4 << 20
_BY_KEY: Final = -1


def events(workload: Workload, seed: int) -> Iterator[Event]:
    """(key, value, headers, ms): each value of a pool comes again and again, with a number of its own."""
    rng = random.Random(seed)
    first_ms = int(time.time() * 1_000) - workload.age_ms - workload.records * _INTERVAL_MS
    if workload.value_bytes < _SMALL:
        yield from _readings(rng, workload, first_ms)
        return
    pool = [
        demo_data.make_order(rng, number, workload.value_bytes)
        for number in range(min(workload.records, _POOL_BYTES // workload.value_bytes))
    ]
    keys = int(workload.records * _KEYS_PER_RECORD)
    tails = [value[value.index(b",") :] for _, value, _, _ in pool]
    for number in range(workload.records):
        key, _, headers, _ = pool[number % len(pool)]
        if workload.kind == COMPACTED:
            key = b"C%08d" % rng.randrange(keys)
        yield (
            key,
            b'{"order": %08d%b' % (number + 10_000_000, tails[number % len(pool)]),
            headers,
            first_ms + number * _INTERVAL_MS,
        )


def _readings(rng: random.Random, workload: Workload, first_ms: int) -> Iterator[Event]:
    for number in range(workload.records):
        sensor = rng.randrange(10_000)
        head = b'{"reading":%d,"sensor":"S%04d","value":%d,"note":"' % (number, sensor, rng.randrange(100_000))
        note = b"%0*x" % (max(0, workload.value_bytes - len(head) - 2), rng.getrandbits(64))
        yield b"S%04d" % sensor, head + note + b'"}', [], first_ms + number * _INTERVAL_MS


def fill(cluster: Cluster, workload: Workload, seed: int) -> None:
    """Create the workload's topic and write it; of a compacted one, wait until the cleaner has been through."""
    address = cluster.bootstrap_servers
    config = {"segment.bytes": str(_SEGMENT)} if workload.kind == COMPACTED else {}
    create(address, workload.topic, workload.partitions, 1, **config)
    options: dict[str, Any] = {
        "bootstrap.servers": address,
        "compression.type": workload.codec,
        "linger.ms": 50,
        "batch.size": workload.batch_bytes,
        "batch.num.messages": workload.batch_records,
        "queue.buffering.max.messages": 200_000,
    }
    if workload.kind == TRANSACTIONAL:
        options |= {"transactional.id": workload.topic, "linger.ms": 5}
        _write_transactions(_Writer(options, workload.topic), events(workload, seed))
    else:
        writer = _Writer(options, workload.topic)
        for number, event in enumerate(events(workload, seed)):
            writer.write(event, number % workload.busy if workload.busy else _BY_KEY)
        writer.flush()
    if workload.kind == COMPACTED:
        _compact(cluster, workload)


class _Writer:
    """A producer whose failures end the program."""

    def __init__(self, options: dict[str, Any], topic: str) -> None:
        self.producer: Final = Producer(options)
        self._topic = topic
        self._failure: str | None = None

    def write(self, event: Event, partition: int = _BY_KEY) -> None:
        key, value, headers, ms = event
        while True:
            try:
                self.producer.produce(
                    self._topic, value, key, partition, headers=headers, timestamp=ms, on_delivery=self._on_delivered
                )
                break
            except BufferError:
                self.producer.poll(0.05)
        self.producer.poll(0)

    def flush(self) -> None:
        left = self.producer.flush(_WITHIN_S)
        if left or self._failure:
            raise RuntimeError(f"{self._topic} could not be filled: {self._failure or f'{left} records wait'}")

    def _on_delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = str(error)


def _write_transactions(writer: _Writer, every: Iterator[Event]) -> None:
    """The last one is committed; an aborted one's records reach the log, too."""
    producer, number = writer.producer, 0
    producer.init_transactions(_WITHIN_S)
    while chunk := list(itertools.islice(every, _TRANSACTION)):
        number += 1
        if number % _ABORT_EACH == 0:
            producer.begin_transaction()
            for key, value, headers, ms in chunk:
                writer.write((key, value.replace(b'{"order"', b'{"never"', 1), headers, ms))
            writer.flush()
            producer.abort_transaction(_WITHIN_S)
        producer.begin_transaction()
        for event in chunk:
            writer.write(event)
        writer.flush()
        producer.commit_transaction(_WITHIN_S)


def create(address: str, topic: str, partitions: int, replicas: int, **config: str) -> None:
    """A topic that keeps its records, whose times are past, and that every broker knows."""
    admin = AdminClient({"bootstrap.servers": address})
    in_sync = {"min.insync.replicas": str(min(2, replicas))}
    new = NewTopic(topic, partitions, replicas, config={"retention.ms": "-1", **in_sync, **config})
    admin.create_topics([new])[topic].result(_WITHIN_S)
    until = time.monotonic() + _WITHIN_S
    while not _is_there(address, topic, partitions):
        if time.monotonic() > until:
            raise RuntimeError(f"the topic {topic} has no leaders after {_WITHIN_S:.0f} s")
        time.sleep(0.1)


def _is_there(address: str, topic: str, partitions: int) -> bool:
    """Whether every leader knows that it is one: metadata names it earlier."""
    try:
        with Offsets(Topic(address, topic)) as offsets:
            return len(offsets.read(LATEST, READ_UNCOMMITTED)) == partitions
    except (LinkError, KeyError):  # of a partition without a leader
        return False


def _compact(cluster: Cluster, workload: Workload) -> None:
    """Set the policy only now: a cleaner that follows the writer would do all of it many times."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, workload.topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(_WITHIN_S)
    (data,) = cluster.directory.glob("broker-*/data")
    until = time.monotonic() + _CLEANED_WITHIN_S
    while not cleaned(data, workload.topic, workload.partitions):
        if time.monotonic() > until:
            raise RuntimeError(f"the cleaner was not through {workload.topic} after {_CLEANED_WITHIN_S:.0f} s")
        time.sleep(0.5)


def cleaned(data: Path, topic: str, partitions: int) -> bool:
    """Whether all of each log but its last segment, which is never cleaned, is cleaned (its checkpoint file says)."""
    file = data / "cleaner-offset-checkpoint"
    lines = file.read_text(encoding="ascii").splitlines()[2:] if file.exists() else []
    upto = {(name, int(number)): int(offset) for name, number, offset in (line.rsplit(" ", 2) for line in lines)}
    return all(
        upto.get((topic, number), -1) >= max(int(log.stem) for log in (data / f"{topic}-{number}").glob("*.log"))
        for number in range(partitions)
    )


def delete(address: str, topics: list[str]) -> None:
    """Delete topics, and wait until they are gone."""
    if not topics:
        return
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_topics(topics).values():
        future.result(_WITHIN_S)
    until = time.monotonic() + _WITHIN_S
    while set(topics) & set(admin.list_topics(timeout=_WITHIN_S).topics):
        if time.monotonic() > until:
            raise RuntimeError(f"topics are still there {_WITHIN_S:.0f} s after their deletion: {', '.join(topics)}")
        time.sleep(0.1)
