"""Numbered records that are produced into the topics of a round without interruption, during all faults."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import KafkaException, Producer

from tests.campaign.chaos.compare import NUMBER, Record

CLIENT_ID: Final = "load"
_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True  # It would log every lost connection.
_POLL_S: Final = 0.02
_WITHIN_S: Final = 120.0
_CALL_S: Final = 20.0
_HOUR_MS: Final = 3_600_000
_ABORT_PROBABILITY: Final = 0.3
_OPTIONS: Final = {
    "client.id": CLIENT_ID,
    "acks": "all",
    "enable.idempotence": True,
    # No record expires: everything that was sent is in the log at the end.
    "message.timeout.ms": 900_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 1_000,
    # Batches of several records: batches are what costs brokers, and this machine runs all of them.
    "linger.ms": 100,
}


class RecordSource:
    """Makes records. Each has its own number, and a timestamp that no copy would choose by itself."""

    def __init__(self, rng: random.Random, first: int = 1) -> None:
        """The numbers begin at ``first``."""
        self._rng = rng
        self._count = itertools.count(first)
        self._first_ms = int(time.time() * 1000) - _HOUR_MS - first
        self._lock = threading.Lock()

    def record(self) -> Record:
        with self._lock:
            number, rng = next(self._count), self._rng
            key = b"k%d" % rng.randrange(1_000) if rng.random() < 0.8 else None
            value = None if rng.random() < 0.02 else rng.randbytes(rng.randint(0, 100)) + bytes(rng.randint(0, 400))
            more = ((("empty", b""), ("null", None)) if rng.random() < 0.1 else ())[: rng.randint(0, 2)]
            return Record(key, value, ((NUMBER, b"%d" % number), *more), self._first_ms + number)


class Writer:
    """Produces ``per_second`` records into a topic with an idempotent producer until :meth:`stop`.

    ``sent`` are the records of each partition in order. All of them are in the log after :meth:`stop`.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        per_second: float,
        records: RecordSource,
        codec: str,
        **others: object,
    ) -> None:
        """``others`` are further keys of the producer, with underscores for dots."""
        self.topic: Final = topic
        self.sent: dict[int, list[Record]] = {}
        self.partitions = partitions
        self._per_second: Final = per_second
        self._records: Final = records
        self._failures = list[str]()
        options = {**_OPTIONS, "bootstrap.servers": address, "compression.type": codec}
        options |= {key.replace("_", "."): value for key, value in others.items()}
        self._producer = Producer(options, logger=_SILENT)
        self.stopping: Final = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"writer-{topic}", daemon=True)
        self._thread.start()

    def stop(self) -> dict[int, list[Record]]:
        """Stop and wait until every record is acknowledged. AssertionError where that takes over two minutes."""
        self.stopping.set()
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), f"the load of {self.topic} does not stop"
        left = self._producer.flush(_WITHIN_S)
        assert not left, f"{left} records of {self.topic} are not acknowledged"
        assert not self._failures, f"{self.topic}: {self._failures[0]}"
        return self.sent

    def _write(self) -> None:
        due, before = 0.0, time.monotonic()
        while not self.stopping.wait(_POLL_S):
            now = time.monotonic()
            due, before = due + (now - before) * self._per_second, now
            while due >= 1 and self._send():
                due -= 1
            due = min(due, self._per_second)  # After an interruption, send what one second has missed at most.
            self._producer.poll(0)

    def _send(self) -> bool:
        record = self._records.record()
        partition = record.number % self.partitions
        try:
            _produce(self._producer, self.topic, partition, record, partial(self._on_delivery, record))
        except (BufferError, KafkaException):
            return False  # The buffer is full, or the producer does not know a new partition yet.
        self.sent.setdefault(partition, []).append(record)
        return True

    def _on_delivery(self, _record: Record, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))


class PlainWriter(Writer):
    """A :class:`Writer` without idempotence and retries: what was sent when a broker ended may not be in the log."""

    def __init__(
        self, address: str, topic: str, partitions: int, per_second: float, records: RecordSource, codec: str
    ) -> None:
        self.acknowledged: Final = set[int]()
        plain = {"enable_idempotence": False, "retries": 0}
        super().__init__(address, topic, partitions, per_second, records, codec, **plain)

    def _on_delivery(self, record: Record, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged.add(record.number)


class TransactionalWriter:
    """Produces records in transactions, some of which it aborts. The source's log decides which were committed."""

    def __init__(
        self, address: str, topic: str, partitions: int, per_second: float, records: RecordSource, codec: str
    ) -> None:
        self.topic: Final = topic
        self._partitions: Final = partitions
        self._per_second: Final = per_second
        self._records: Final = records
        self._rng: Final = random.Random(topic)
        self._options: Final = {
            **_OPTIONS,
            "bootstrap.servers": address,
            "compression.type": codec,
            "transactional.id": f"load-{topic}",
            "transaction.timeout.ms": 60_000,
            "message.timeout.ms": 50_000,
        }
        self.stopping: Final = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"writer-{topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the end of the current transaction."""
        self.stopping.set()
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), f"the load of {self.topic} does not stop"

    def _write(self) -> None:
        while not self.stopping.is_set():
            producer = Producer(self._options, logger=_SILENT)
            # After a fatal error another producer with the same id takes over and aborts the open transaction.
            with contextlib.suppress(KafkaException):
                _retry(lambda producer=producer: producer.init_transactions(_CALL_S))  # type: ignore[misc]
                while not self.stopping.is_set():
                    self._transaction(producer)

    def _transaction(self, producer: Producer) -> None:
        count = self._rng.randint(1, 60)
        producer.begin_transaction()
        try:
            for _ in range(count):
                record = self._records.record()
                _produce(producer, self.topic, record.number % self._partitions, record, None)
            producer.poll(0)
            self.stopping.wait(count / self._per_second)
            if self._rng.random() < _ABORT_PROBABILITY:
                _retry(lambda: producer.abort_transaction(_CALL_S))
            else:
                _retry(lambda: producer.commit_transaction(_CALL_S))
        except (KafkaException, BufferError) as error:
            if isinstance(error, BufferError) or error.args[0].txn_requires_abort():
                _retry(lambda: producer.abort_transaction(_CALL_S))
            else:
                raise


def _retry(call: Callable[[], object]) -> None:
    """Repeat ``call`` until it succeeds, or fails with an error that is not retriable."""
    until = time.monotonic() + _WITHIN_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        else:
            return


def _produce(producer: Producer, topic: str, partition: int, record: Record, on_delivery: Any) -> None:
    producer.produce(
        topic,
        record.value,
        record.key,
        partition,
        timestamp=record.time_ms,
        headers=list(record.headers),
        on_delivery=on_delivery,
    )


class Load:
    """All writers of a round by their topic. A context manager, which stops all of them.

    ``deleted`` are the records of topics that were deleted, which had one partition. ``codecs`` are the codecs of the
    topics (``none`` for those that are not in it).
    """

    def __init__(self, address: str, seed: int, codecs: dict[str, str]) -> None:
        self._address: Final = address
        self._records: Final = RecordSource(random.Random(f"load {seed}"))
        self._codecs: Final = codecs
        self.writers: Final = dict[str, Writer]()
        self.deleted: Final = dict[str, list[Record]]()
        self._transactional: TransactionalWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for writer in self._all():
            writer.stopping.set()
        if kind is None or issubclass(kind, Exception):  # After an interrupt there is no time: the threads are daemons.
            for writer in self._all():
                with contextlib.suppress(AssertionError):
                    writer.stop()

    def _all(self) -> Iterator[Writer | TransactionalWriter]:
        yield from self.writers.values()
        if self._transactional is not None:
            yield self._transactional

    def write(self, topic: str, partitions: int, per_second: float) -> None:
        codec = self._codecs.get(topic, "none")
        self.writers[topic] = Writer(self._address, topic, partitions, per_second, self._records, codec)

    def write_transactions(self, topic: str, partitions: int, per_second: float) -> None:
        codec = self._codecs.get(topic, "none")
        self._transactional = TransactionalWriter(self._address, topic, partitions, per_second, self._records, codec)

    def pause(self, topic: str) -> None:
        """Stop writing into ``topic``, which is about to be deleted, after everything is acknowledged."""
        self.deleted[topic] = self.writers.pop(topic).stop().get(0, [])

    def stop(self) -> None:
        """Stop all writers. AssertionError where not everything is acknowledged."""
        for writer in self._all():
            writer.stop()

    def sent(self) -> dict[tuple[str, int], list[Record]]:
        """Return what was sent by topic and partition, but not in transactions."""
        return {(name, number): sent for name, writer in self.writers.items() for number, sent in writer.sent.items()}
