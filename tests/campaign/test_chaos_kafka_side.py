"""The campaign's own calls to a cluster whose brokers learn of changes one after the other."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.campaign.chaos import kafka_side
from tests.campaign.chaos.kafka_side import KafkaSide

LATE = "host:3"


class Brokers:
    """Three brokers, which clients of all of them ask in turn; the last one learns of a change some requests later."""

    def __init__(self, known: set[str], late_requests: int, turn: int = 0) -> None:
        self.known, self.known_to_late = set(known), set(known)
        self.late_requests = late_requests
        self.requests = 0
        self.turn = turn

    def client(self, options: dict[str, Any]) -> Client:
        servers = options["bootstrap.servers"].split(",")
        self.turn += 1
        return Client(self, servers[self.turn % len(servers)])

    def topics(self, server: str) -> set[str]:
        if server != LATE:
            return self.known
        self.requests += 1
        if self.requests > self.late_requests:
            self.known_to_late = set(self.known)
        return self.known_to_late


class Client:
    """An admin client that asks one server."""

    def __init__(self, brokers: Brokers, server: str) -> None:
        self.brokers, self.server = brokers, server

    def list_topics(self, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        partitions = {0: SimpleNamespace(leader=1)}
        return SimpleNamespace(
            topics={topic: SimpleNamespace(partitions=partitions) for topic in self.brokers.topics(self.server)}
        )

    def create_topics(self, new: list[Any]) -> dict[str, Future[None]]:
        self.brokers.known |= {topic.topic for topic in new}
        return {topic.topic: _done(None) for topic in new}

    def delete_topics(self, topics: list[str]) -> dict[str, Future[None]]:
        self.brokers.known -= set(topics)
        return {topic: _done(None) for topic in topics}

    def describe_topics(self, topics: Any) -> dict[str, Future[Any]]:
        assert topics
        described: Future[Any] = _done(SimpleNamespace(topic_id="an-id"))
        if "t" not in self.brokers.topics(self.server):
            described = Future()
            described.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"t": described}


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _side(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> KafkaSide:
    monkeypatch.setattr(kafka_side, "AdminClient", brokers.client)
    monkeypatch.setattr(kafka_side, "POLL_S", 0)
    cluster = SimpleNamespace(bootstrap_servers=f"host:1,host:2,{LATE}")
    return KafkaSide("source", cast("Any", cluster), cast("Any", None), None)


def test_topic_is_created_when_every_broker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(set(), late_requests=3)
    _side(monkeypatch, brokers).create("t", 1)
    assert brokers.known_to_late == {"t"}


def test_topic_is_deleted_when_no_broker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({"t", "other"}, late_requests=3)
    _side(monkeypatch, brokers).delete("t")
    assert brokers.known_to_late == {"other"}


def test_affected_broker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(set(), late_requests=10**9)
    side = _side(monkeypatch, brokers)
    side.affected.add(3)
    side.create("t", 1)
    assert brokers.requests == 0


def test_id_of_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(set(), late_requests=3, turn=1)
    brokers.known.add("t")
    assert _side(monkeypatch, brokers).topic_id("t") == "an-id"
    assert brokers.requests == 1, "the first request, which failed"
