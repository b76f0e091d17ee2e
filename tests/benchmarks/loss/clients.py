"""Clients of both clusters, by confluent-kafka: what they have seen is all that is measured."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.benchmarks.loss.accounting import Arrival

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 4
_COMMIT_S: Final = 1.0
_JOIN_S: Final = 60.0

Options = Mapping[str, Any]


class Writer:
    """Produces numbered records of 100 bytes at a fixed rate; knows when each was acknowledged (all replicas)."""

    def __init__(self, options: Options, rate: int) -> None:
        self.acknowledged: Final[dict[int, float]] = {}
        """By number, since when."""
        self.moved: Final[dict[int, float]] = {}
        """The same of those that were acknowledged after the last :meth:`move`."""
        self.refused = 0
        self._rate: Final = rate
        self._next = 0
        self._over = threading.Event()
        self._guard: Final = threading.Lock()
        self._producer: Producer | None = _producer(options)
        self._moved = False
        self._thread: Final = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def move(self, options: Options | None) -> None:
        """Go on at another cluster, or pause; what was not acknowledged before is given up."""
        made = None if options is None else _producer(options)
        with self._guard:
            before, self._producer = self._producer, made
            self._moved = options is not None
        if before is not None:
            before.purge()
            before.flush(5)

    def stop(self) -> None:
        """End it, once what it has handed over is acknowledged."""
        self._over.set()
        self._thread.join(_JOIN_S)
        if self._producer is not None:
            self._producer.flush(10)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.is_set():
            with self._guard:
                if self._producer is not None:
                    self._send(self._producer)
            self._next += 1
            if (early := began + self._next / self._rate - time.monotonic()) > 0:
                time.sleep(early)

    def _send(self, producer: Producer) -> None:
        number, acknowledged = self._next, self.moved if self._moved else self.acknowledged

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                acknowledged[number] = time.monotonic()
            else:
                self.refused += 1

        try:
            producer.produce(TOPIC, b"%-100d" % number, partition=number % PARTITIONS, on_delivery=delivered)
        except (BufferError, KafkaException):  # its buffer is full, or it has learned that it may not write
            self.refused += 1
        producer.poll(0)


def _producer(options: Options) -> Producer:
    # Idempotent: otherwise a source that does not answer for long gets records twice, as if the copy had doubled them.
    return Producer({"linger.ms": 0, "log_level": 0, "enable.idempotence": True, "acks": "all", **options})


class Reader:
    """Reads each partition of the target from its beginning, at read_committed."""

    def __init__(self, options: Options) -> None:
        self.arrivals: Final[list[Arrival]] = []
        self.firsts: Final[dict[int, float]] = {}
        """When each record came for the first time, by number."""
        self._over = threading.Event()
        own = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
        # A broker that was away is back for this client soon after it is for others.
        own |= {"fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000}
        self._consumer: Final = Consumer({**own, "auto.offset.reset": "earliest", **options})
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        self._thread: Final = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                came, number = time.monotonic(), int(message.value() or b"")
                self.arrivals.append((came, number))
                self.firsts.setdefault(number, came)
        self._consumer.close()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(_JOIN_S)


class Application:
    """A consumer of a group, which commits each second what it has read."""

    def __init__(self, options: Options) -> None:
        """Without a position it begins at the beginning."""
        self.read: Final[list[tuple[float, int]]] = []
        self._over = threading.Event()
        self._commits = True
        own = {"group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
        own |= {"session.timeout.ms": 6000, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100}
        self._consumer: Final = Consumer({**own, **options})
        self._consumer.subscribe([TOPIC])
        self._thread: Final = threading.Thread(target=self._run, name="application", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic() + _COMMIT_S
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.append((time.monotonic(), int(message.value() or b"")))
            if self.read and time.monotonic() >= due:
                self._commit(wait=False)
                due = time.monotonic() + _COMMIT_S
        if self._commits:
            self._commit(wait=True)
        self._consumer.close()

    def _commit(self, *, wait: bool) -> None:
        with contextlib.suppress(KafkaException):  # nothing new, or the coordinator is away: the next one says it all
            if wait:
                self._consumer.commit(asynchronous=False)
            else:
                self._consumer.commit()

    def abandon(self) -> None:
        """Have it end without a last commit, as a crash does; :meth:`stop` waits for that."""
        self._commits = False
        self._over.set()

    def stop(self) -> None:
        """End it, in order if it was not abandoned."""
        self._over.set()
        self._thread.join(_JOIN_S)
