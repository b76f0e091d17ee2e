"""Records that keep coming, numbered, into the topics of a round, whatever befalls their brokers."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from confluent_kafka import KafkaException, Producer

from tests.campaign.faults.compare import NUMBER, Record

_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True  # of every broker that is gone there would be lines
_TURN_S: Final = 0.02
_WITHIN_S: Final = 120.0
_CALL_S: Final = 20.0
_HOUR_MS: Final = 3_600_000
_ABORTED: Final = 0.3
_PATIENT: Final = {
    "acks": "all",
    "enable.idempotence": True,
    # No record is given up: what was sent is there.
    "message.timeout.ms": 900_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 1_000,
    # Batches of several records: what costs brokers is a batch, and this machine has them all.
    "linger.ms": 100,
}


class Numbers:
    """Makes records: each has a number of its own, and a time by which a copied one is told from one made by a copy."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = itertools.count(1)
        self._first_ms = int(time.time() * 1000) - _HOUR_MS
        self._lock = threading.Lock()

    def record(self) -> Record:
        with self._lock:
            number, rng = next(self._count), self._rng
            key = b"k%d" % rng.randrange(1_000) if rng.random() < 0.8 else None
            value = None if rng.random() < 0.02 else rng.randbytes(rng.randint(0, 100)) + bytes(rng.randint(0, 400))
            more = ((("empty", b""), ("null", None)) if rng.random() < 0.1 else ())[: rng.randint(0, 2)]
            return Record(key, value, ((NUMBER, b"%d" % number), *more), self._first_ms + number)


class Writer:
    """``per_second`` records into a topic, by an idempotent producer of its own, until :meth:`stop`.

    ``sent`` are those of each partition, in order: all of them are in the log once it has stopped.
    """

    def __init__(self, address: str, topic: str, partitions: int, per_second: float, numbers: Numbers) -> None:
        self.topic: Final = topic
        self.sent: dict[int, list[Record]] = {}
        self.partitions = partitions
        self._per_second: Final = per_second
        self._numbers: Final = numbers
        self._failures = list[str]()
        self._producer = Producer({"bootstrap.servers": address, **_PATIENT}, logger=_SILENT)
        self.over: Final = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"writer-{topic}", daemon=True)
        self._thread.start()

    def stop(self) -> dict[int, list[Record]]:
        """No more; all that was sent is acknowledged. AssertionError where it is not in two minutes."""
        self.over.set()
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), f"the load of {self.topic} does not end"
        left = self._producer.flush(_WITHIN_S)
        assert not left, f"{left} records of {self.topic} are not acknowledged"
        assert not self._failures, f"{self.topic}: {self._failures[0]}"
        return self.sent

    def _write(self) -> None:
        due, began = 0.0, time.monotonic()
        while not self.over.wait(_TURN_S):
            now = time.monotonic()
            due, began = due + (now - began) * self._per_second, now
            while due >= 1 and self._send():
                due -= 1
            due = min(due, self._per_second)  # no more than a second is made up for
            self._producer.poll(0)

    def _send(self) -> bool:
        record = self._numbers.record()
        partition = record.number % self.partitions
        try:
            _produce(self._producer, self.topic, partition, record, self._noted)
        except (BufferError, KafkaException):
            return False  # full, or a new partition that it has not heard of
        self.sent.setdefault(partition, []).append(record)
        return True

    def _noted(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))


class Transactions:
    """The same in transactions, of which some are aborted. What became of one in doubt is for the source to tell."""

    def __init__(self, address: str, topic: str, partitions: int, per_second: float, numbers: Numbers) -> None:
        self.topic: Final = topic
        self._partitions: Final = partitions
        self._per_second: Final = per_second
        self._numbers: Final = numbers
        self._rng: Final = random.Random(topic)
        self._options: Final = {
            **_PATIENT,
            "bootstrap.servers": address,
            "transactional.id": f"load-{topic}",
            "transaction.timeout.ms": 60_000,
            "message.timeout.ms": 50_000,
        }
        self.over: Final = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"writer-{topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more, and no transaction left open."""
        self.over.set()
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), f"the load of {self.topic} does not end"

    def _write(self) -> None:
        while not self.over.is_set():
            producer = Producer(self._options, logger=_SILENT)
            # An error that it cannot go on from: another producer under its name takes over, and aborts what is open.
            with contextlib.suppress(KafkaException):
                _again(lambda producer=producer: producer.init_transactions(_CALL_S))  # type: ignore[misc]
                while not self.over.is_set():
                    self._transaction(producer)

    def _transaction(self, producer: Producer) -> None:
        count = self._rng.randint(1, 60)
        producer.begin_transaction()
        try:
            for _ in range(count):
                record = self._numbers.record()
                _produce(producer, self.topic, record.number % self._partitions, record, None)
            producer.poll(0)
            self.over.wait(count / self._per_second)
            if self._rng.random() < _ABORTED:
                _again(lambda: producer.abort_transaction(_CALL_S))
            else:
                _again(lambda: producer.commit_transaction(_CALL_S))
        except (KafkaException, BufferError) as error:
            if isinstance(error, BufferError) or error.args[0].txn_requires_abort():
                _again(lambda: producer.abort_transaction(_CALL_S))
            else:
                raise


def _again(call: Callable[[], object]) -> None:
    """Until it is carried out; what was done already is no error."""
    until = time.monotonic() + _WITHIN_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        else:
            return


def _produce(producer: Producer, topic: str, partition: int, record: Record, note: Any) -> None:
    producer.produce(
        topic,
        record.value,
        record.key,
        partition,
        timestamp=record.time_ms,
        headers=list(record.headers),
        on_delivery=note,
    )


class Load:
    """All writers of a round, by their topic. A context manager, which leaves none behind."""

    def __init__(self, address: str, seed: int) -> None:
        self._address: Final = address
        self._numbers: Final = Numbers(random.Random(f"load {seed}"))
        self.writers: Final = dict[str, Writer]()
        self.gone: Final = dict[str, list[Record]]()
        """What the first partition of a topic had that was deleted."""
        self._transactions: Transactions | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for each in self._each():
            each.over.set()
        if kind is None or issubclass(kind, Exception):  # else there is no time: the threads are daemons
            for each in self._each():
                with contextlib.suppress(AssertionError):
                    each.stop()

    def _each(self) -> Iterator[Writer | Transactions]:
        yield from self.writers.values()
        if self._transactions is not None:
            yield self._transactions

    def write(self, topic: str, partitions: int, per_second: float) -> None:
        self.writers[topic] = Writer(self._address, topic, partitions, per_second, self._numbers)

    def transact(self, topic: str, partitions: int, per_second: float) -> None:
        self._transactions = Transactions(self._address, topic, partitions, per_second, self._numbers)

    def pause(self, topic: str) -> None:
        """All of the topic is acknowledged, and nothing more is sent: it is about to be deleted."""
        self.gone[topic] = self.writers.pop(topic).stop().get(0, [])

    def stop(self) -> None:
        """The end: everything is acknowledged. AssertionError where it does not come to that."""
        for each in self._each():
            each.stop()

    def sent(self) -> dict[tuple[str, int], list[Record]]:
        """By topic and partition, but for those of transactions."""
        return {(name, number): sent for name, each in self.writers.items() for number, sent in each.sent.items()}
