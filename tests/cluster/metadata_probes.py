"""Metadata whose requests are answered by hand."""

from __future__ import annotations

import random
import uuid

from mirror.cluster.metadata import Metadata
from mirror.cluster.types import TopicPartition
from mirror.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from tests.cluster.probes import settings

ID = uuid.UUID(int=1)
OTHER_ID = uuid.UUID(int=2)
T0 = TopicPartition("t", 0)


class Asked:
    """Metadata, and its requests answered by hand."""

    def __init__(self, **options: object) -> None:
        self.metadata = Metadata(settings(**options), random.Random(1))
        self.now = 1_000

    def ask(self) -> list[str | None]:
        """The topics of the one request that is due."""
        (self.request,) = self.metadata.poll(self.now).requests
        body = self.request.body
        assert isinstance(body, MetadataRequest)
        return [topic.name for topic in body.topics or ()]

    def quiet(self) -> int:
        """Nothing is due; ms until something is."""
        requests, wait = self.metadata.poll(self.now)
        assert requests == []
        return wait

    def answer(self, *topics: MetadataTopic, brokers: int = 2) -> None:
        listed = tuple(MetadataBroker(node, f"broker-{node}", 9092) for node in range(1, brokers + 1))
        self.request.on_response(MetadataResponse(listed, "cluster", 1, topics), self.now)

    def update(self, *topics: MetadataTopic) -> None:
        """Ask and answer, as soon as the backoff allows."""
        self.metadata.request_update()
        self.now += 1_000
        self.ask()
        self.answer(*topics)


def topic(leader: int, epoch: int, *, topic_id: uuid.UUID = ID, name: str = "t") -> MetadataTopic:
    return MetadataTopic(0, name, topic_id, False, (MetadataPartition(0, 0, leader, epoch),))


def known(*options: MetadataTopic) -> Asked:
    asked = Asked()
    asked.metadata.want(["t"])
    asked.ask()
    asked.answer(*(options or (topic(1, 5),)))
    return asked
