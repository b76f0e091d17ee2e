"""Flows in both directions between two clusters under the same topic names, and producers of all kinds."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Producer

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.origin.registry import prepare_registries, registry_topic
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.sandbox.cluster import Cluster
from tests.copying.pair import End, TwoClusters
from tests.copying.site import name

LOCAL: Final[dict[str, Any]] = {"only_local": True, "registers_producers": True}
WAYS: Final[dict[str, dict[str, Any]]] = {
    "sequences": {"exactly_once_by": "sequences"},
    "transactions": {"exactly_once_by": "transactions"},
    "at least once": {"exactly_once": False},
}


class BothWays:
    """A flow from each of two clusters to the other."""

    def __init__(self, a: Cluster, b: Cluster) -> None:
        self.a: Final = a
        self.b: Final = b
        self.there: Final = TwoClusters(a, b, name, name("a-b"))
        self.back: Final = TwoClusters(b, a, name, name("b-a"))
        for side in (self.there.source, self.there.target):
            if REGISTRY_TOPIC not in side.topics():
                side.create(REGISTRY_TOPIC, cleanup_policy="compact")
        self.prepare(self.there)
        self.prepare(self.back)

    @staticmethod
    def prepare(pair: TwoClusters) -> None:
        options = ({"bootstrap.servers": side.address} for side in (pair.source, pair.target))
        prepare_registries(pair.flow, *options, only_local=True)

    @staticmethod
    def registry_of(side: End) -> FlowTopic:
        return registry_topic({"bootstrap.servers": side.address})

    def topics(self) -> str:
        topic = self.there.topics()
        self.back.own_topics()
        return topic

    def copy(self, topic: str, **policy: Any) -> list[RangeResult]:
        results = [*self.there.copy(topic, **LOCAL, **policy), *self.back.copy(topic, **LOCAL, **policy)]
        for result in results:
            assert result.outcome is Outcome.COMPLETE, (result.outcome, result.error)
        return results


def now_ms() -> int:
    return int(time.time() * 1000)


def write_plain(side: End, topic: str, values: list[bytes]) -> None:
    side.fill(topic, values, first_ms=now_ms(), enable_idempotence=False)


def write_idempotent(side: End, topic: str, values: list[bytes]) -> None:
    side.fill(topic, values, first_ms=now_ms())


def write_transactional(side: End, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": side.address, "transactional.id": name("local")})
    producer.init_transactions(10)
    for commits in (True, False):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value if commits else b"aborted", partition=0)
        producer.flush(10)  # A transaction without records on the broker cannot be aborted.
        (producer.commit_transaction if commits else producer.abort_transaction)(10)
