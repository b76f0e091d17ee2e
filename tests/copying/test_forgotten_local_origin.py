"""Flows in both directions whose brokers forget producers and transactional ids: the registry still knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.progress import stored_json as stored
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.copying.both_ways import WAYS, BothWays, write_idempotent, write_plain, write_transactional
from tests.copying.pair import End
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_REMEMBERED_MS: Final = 16_000
"""More than what the youngest records may be old and a batch may be retried for, which a copy by sequences needs."""
_BRIEFLY: Final = {"delivery.timeout.ms": 4_000, "request.timeout.ms": 2_000}
_FORGETS: Final = {
    "producer.id.expiration.ms": str(_REMEMBERED_MS),
    "producer.id.expiration.check.interval.ms": "200",
    # Then the next attempt under the transactional id gets another producer id.
    "transactional.id.expiration.ms": str(_REMEMBERED_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
_WRITERS: Final = {b"plain": write_plain, b"idempotent": write_idempotent, b"transactional": write_transactional}
_EACH: Final = 50
_ROUNDS: Final = 3


@pytest.fixture(scope="module")
def both() -> Iterator[BothWays]:
    with Cluster(properties=_FORGETS, heap=jvm.BROKER) as a, Cluster(properties=_FORGETS, heap=jvm.BROKER) as b:
        yield BothWays(a, b)


def test_nothing_comes_back_and_nothing_is_lost_once_the_producers_are_forgotten(both: BothWays) -> None:
    """One topic for each way, so that all wait together."""
    topics = {way: both.topics() for way in WAYS}
    sides = both.there.source, both.there.target
    written: dict[bytes, list[bytes]] = {}
    for number in range(_ROUNDS):
        for way, topic in topics.items():
            for side, cluster in zip(sides, (b"a", b"b"), strict=True):
                for kind, write in _WRITERS.items():
                    producer = b"%s %s " % (cluster, kind)
                    values = [b"%s%d" % (producer, number * _EACH + each) for each in range(_EACH)]
                    write(side, topic, values)
                    written.setdefault(producer + topic.encode(), []).extend(values)
            results = both.copy(topic, writing=_BRIEFLY, **WAYS[way])
            assert [result.records for result in results] == [_EACH * len(_WRITERS)] * 2
        for side in sides:
            _await_forgotten(side, list(topics.values()))
    for way, topic in topics.items():
        assert [result.records for result in both.copy(topic, writing=_BRIEFLY, **WAYS[way])] == [0, 0], (
            "nothing comes back"
        )
        for side in sides:
            found = [value or b"" for value in side.read(topic)]
            assert len(found) == 2 * len(_WRITERS) * _EACH * _ROUNDS
            for producer in (b"%s %s " % (cluster, kind) for cluster in (b"a", b"b") for kind in _WRITERS):
                own = [value for value in found if value.startswith(producer)]
                assert own == written[producer + topic.encode()], f"the order of {producer!r} is kept"
            registered = _registered(side) & {batch.producer_id for batch in side.batches(topic)}
            assert len(registered) >= _ROUNDS, "each round was copied under an id of its own"


def _registered(side: End) -> set[int]:
    """Return the producer ids of all flows that the registry of a cluster has."""
    keys = (stored.parse_object(record.key) for record in side.records(REGISTRY_TOPIC))
    return {int(str(key["producer"])) for key in keys if "producer" in key}


def _await_forgotten(side: End, topics: list[str]) -> None:
    """Wait until no leader has the state of any producer."""
    tps = [TopicPartition(topic, 0) for topic in topics]
    with Admin({"bootstrap.servers": side.address}) as admin:
        eventually(
            lambda: not any(admin.describe_producers(tps).values()),
            within_s=4 * _REMEMBERED_MS / 1_000,
            what="the end of the producers' state",
            every_s=0.5,
        )
