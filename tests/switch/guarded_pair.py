"""Two real clusters that obey ACLs, a flow between them, and clients of confluent-kafka that go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer

from mirror.client import AclBinding, AclOperation, Admin, NewTopic, ResourceType
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import create, guarded, login
from tests.topic_creation import create_topics

TOPICS: Final = ("orders", "clicks")
PARTITIONS: Final = 3
GROUP: Final = "billing"


@dataclass
class Pair:
    """The clusters, and the file of the flow and of the switch."""

    source: Cluster
    target: Cluster
    config: Path

    def command(self, *arguments: str) -> list[str]:
        """The arguments of a command about the switch."""
        return [
            "cutover",
            "move",
            "--config",
            str(self.config),
            "--folder",
            str(self.config.parent / "proofs"),
            *arguments,
        ]


@contextmanager
def pair(folder: Path, switch: str = "") -> Iterator[Pair]:
    """Two clusters: alice may write, bob may read, on both."""
    with guarded() as source, guarded() as target:
        for cluster in (source, target):
            with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                if cluster is source:
                    create_topics(admin, [NewTopic(name, PARTITIONS) for name in (*TOPICS, "idle")])
                create(admin, [*grants((*TOPICS, "idle"))])
        config = folder / "mirror.toml"
        config.write_text(
            f'[clusters.old]\n"bootstrap.servers" = "{source.bootstrap_servers}"\n'
            f'[clusters.new]\n"bootstrap.servers" = "{target.bootstrap_servers}"\n'
            f"{_flow('ahead', 'old', 'new')}{_flow('back', 'new', 'old')}"
            f'[switches.move]\nflows = ["ahead"]\nquiet-seconds = 3\ndeadline-seconds = 600\n{switch}'
        )
        yield Pair(source, target, config)


def _flow(name: str, source: str, target: str) -> str:
    return (
        f'[flows.{name}]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["orders", "clicks", "idle"]\n'
        f'naming = "identity"\norigin = "local"\norigin-from = "earliest"\n[flows.{name}.groups]\n'
    )


def grants(topics: Sequence[str]) -> Iterator[AclBinding]:
    """Yield who may do what: alice writes, bob reads."""
    for topic in topics:
        yield AclBinding(ResourceType.TOPIC, topic, "User:alice", AclOperation.WRITE)
        yield AclBinding(ResourceType.TOPIC, topic, "User:bob", AclOperation.READ)
    yield AclBinding(ResourceType.GROUP, GROUP, "User:bob", AclOperation.READ)


@dataclass
class Writer:
    """A producer that writes numbered records until it is stopped, and keeps what was acknowledged."""

    options: dict[str, Any]
    name: str
    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer({"linger.ms": 2, "acks": "all", "retries": 0, "message.timeout.ms": 20_000, **self.options})
        number = 0
        while not self._stop.wait(0.01):
            value = f"{self.name}-{number}"
            number += 1
            try:
                producer.produce(TOPICS[number % 2], value, key=value, on_delivery=self._delivered)
            except KafkaException:  # librdkafka refuses itself what the brokers have refused
                self.refused += 1
            producer.poll(0)
        producer.flush(30)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())
        else:
            self.refused += 1

    def stop(self) -> list[str]:
        """End it, and return what was acknowledged."""
        self._stop.set()
        self._thread.join(60)
        return self.acknowledged


def read_some(options: dict[str, Any], most: int) -> list[str]:
    """Have the group read so many records, and commit; return them."""
    consumer = Consumer({**options, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([*TOPICS])
    found: list[str] = []
    try:
        while len(found) < most:
            message = consumer.poll(20.0)
            if message is None:
                break
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
        if found:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def as_user(cluster: Cluster, user: str) -> dict[str, Any]:
    """The options of a client of that user."""
    return dict(login(cluster, user))
