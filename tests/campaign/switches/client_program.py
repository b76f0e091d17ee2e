"""Producers and consumers of confluent-kafka that move to the cluster that files name, and note what they have done.

    python -m tests.campaign.switches.client_program SETTINGS

It does the same as ``java/SwitchClients.java``, from the same settings (:mod:`tests.campaign.switches.clients`).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer

_POLL_S: Final = 0.05
_IN_TRANSACTION: Final = 5
_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True  # It would log every lost connection.
_COMMON: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.timeout.ms": 10_000,
}


class Settings:
    """The settings, and where clients are pointed now."""

    def __init__(self, path: Path) -> None:
        lines = (line.partition("=")[::2] for line in path.read_text(encoding="utf-8").splitlines())
        self.values: Final = dict(lines)
        self.folder: Final = Path(self.values["folder"])

    def place(self, kind: str) -> str:
        """Return the cluster where ``kind`` (producers, consumers) are pointed; empty: nowhere."""
        return (self.folder / kind).read_text(encoding="utf-8").strip()

    def options(self, cluster: str, user: str) -> dict[str, Any]:
        return {
            **_COMMON,
            "bootstrap.servers": self.values[f"bootstrap.{cluster}"],
            "sasl.username": user,
            "sasl.password": user,
        }


class Notes:
    """One client's file, written line by line by one thread."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._file: Final = (settings.folder / "notes" / name).open("a", encoding="utf-8")

    def add(self, kind: str, cluster: str, *more: str) -> None:
        self._file.write(" ".join((kind, cluster, str(time.time_ns() // 1_000_000), *more)) + "\n")

    def flush(self) -> None:
        self._file.flush()


class WritingClient:
    """A producer of numbered records; ``kind`` is idempotent or transactional."""

    def __init__(self, settings: Settings, name: str, kind: str, topics: list[str]) -> None:
        self._settings: Final = settings
        self._name: Final = name
        self._transactional: Final = kind == "transactional"
        self._topics: Final = topics
        self._notes: Final = Notes(settings, name)
        self._every_s: Final = 1 / float(settings.values["per.second"])
        self._number = 0

    def run(self) -> None:
        while True:
            cluster = self._settings.place("producers")
            try:
                self._write(cluster)
            except KafkaException as error:  # Such as a fatal one: the application starts again.
                self._notes.add("F", cluster, str(error.args[0].name()))
                self._notes.flush()
                time.sleep(_POLL_S)

    def _write(self, cluster: str) -> None:
        options = self._settings.options(cluster, "alice")
        options |= {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 15_000, "linger.ms": 2}
        if self._transactional:
            options |= {"transactional.id": self._name, "transaction.timeout.ms": 15_000}
        producer = Producer(options, logger=_SILENT)
        try:
            if self._transactional:
                producer.init_transactions(20)
            while self._settings.place("producers") == cluster:
                self._transaction(producer, cluster) if self._transactional else self._record(producer, cluster)
        finally:
            producer.purge()  # It moves as an application does that is started again: what is not acknowledged is lost.
            producer.flush(1)
            self._notes.flush()

    def _next(self) -> tuple[str, str]:
        self._number += 1
        return self._topics[self._number % len(self._topics)], f"{self._name}-{self._number}"

    def _record(self, producer: Producer, cluster: str) -> None:
        def delivered(error: Any, message: Message) -> None:
            if error is None:
                self._notes.add("A", cluster, (message.value() or b"").decode())
            else:
                self._notes.add("F", cluster, error.name())
            self._notes.flush()

        topic, value = self._next()
        try:
            producer.produce(topic, value, key=value, on_delivery=delivered)
        except KafkaException as error:  # It refuses itself what the brokers have refused.
            if error.args[0].fatal():
                raise
            self._notes.add("F", cluster, error.args[0].name())
        except BufferError:
            pass
        self._wait(producer)

    def _wait(self, producer: Producer) -> None:
        until = time.monotonic() + self._every_s
        while (left := until - time.monotonic()) > 0:
            producer.poll(left)  # It returns behind each event.

    def _transaction(self, producer: Producer, cluster: str) -> None:
        producer.begin_transaction()
        values = []
        try:
            for _ in range(_IN_TRANSACTION):
                topic, value = self._next()
                producer.produce(topic, value, key=value)
                values.append(value)
                self._wait(producer)
            producer.commit_transaction(15)
        except KafkaException as error:
            self._notes.add("F", cluster, error.args[0].name())
            self._notes.flush()
            if error.args[0].fatal():
                raise
            producer.abort_transaction(15)
            time.sleep(_POLL_S)
            return
        for value in values:
            self._notes.add("A", cluster, value)
        self._notes.flush()


class ReadingClient:
    """A member of a group, which commits behind each batch."""

    def __init__(self, settings: Settings, name: str, group: str, topics: list[str]) -> None:
        self._settings: Final = settings
        self._group: Final = group
        self._topics: Final = topics
        self._notes: Final = Notes(settings, name)

    def run(self) -> None:
        while True:
            cluster = self._settings.place("consumers")
            try:
                if cluster:
                    self._read(cluster)
            except KafkaException:
                pass
            time.sleep(_POLL_S)

    def _read(self, cluster: str) -> None:
        options = self._settings.options(cluster, "bob")
        options |= {
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 20_000,
            "fetch.min.bytes": 100_000,  # Answers and commits are what costs brokers.
            "fetch.wait.max.ms": 500,
            "partition.assignment.strategy": "range",
        }
        consumer = Consumer(options, logger=_SILENT)
        try:
            consumer.subscribe(self._topics)
            while self._settings.place("consumers") == cluster:
                assigned = _assigned(consumer)
                if messages := [one for one in consumer.consume(5_000, 1.0) if one.error() is None]:
                    for message in messages:
                        self._notes.add("R", cluster, (message.value() or b"").decode())
                    self._notes.flush()
                    self._commit(consumer, cluster, assigned)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, cluster: str, assigned: set[tuple[str, int]]) -> None:
        try:
            found = consumer.commit(asynchronous=False)
            # What was read of partitions that have left since is not committed.
            known = all(one.error is None for one in found or ()) and _assigned(consumer) == assigned
        except KafkaException:
            known = False
        self._notes.add("C" if known else "U", cluster)
        self._notes.flush()


def _assigned(consumer: Consumer) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in consumer.assignment()}


def main() -> None:
    """Run all clients until the process is killed; one that dies ends the process."""
    settings = Settings(Path(sys.argv[1]))
    clients: list[tuple[str, WritingClient | ReadingClient]] = []
    for key, value in settings.values.items():
        kind, _, name = key.partition(".")
        if kind in {"producer", "consumer"}:
            first, topics = value.split(" ", 1)
            made = WritingClient if kind == "producer" else ReadingClient
            clients.append((name, made(settings, name, first, topics.split(","))))
    threads = [threading.Thread(target=client.run, name=name, daemon=True) for name, client in clients]
    for thread in threads:
        thread.start()
    while all(thread.is_alive() for thread in threads):
        time.sleep(_POLL_S)
    sys.exit(f"{[thread.name for thread in threads if not thread.is_alive()]} have ended")


if __name__ == "__main__":
    main()
