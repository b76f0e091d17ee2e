"""A broker that asks a transaction's coordinator about two things at once drops one of the questions.

It asks, to verify or to add, about a transaction's first batch of each partition, and about its offsets
(AddPartitionsToTxnManager): what came in the other request is refused, and would back off.
"""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

_T0 = TopicPartition("t", 0)


def _producer(version: int) -> FakeProducer:
    cluster = FakeCluster()
    cluster.features["transaction.version"] = version
    cluster.add_topic("t")
    producer = FakeProducer(cluster, **{"transactional.id": "x", "max.in.flight.requests.per.connection": 5})
    producer.init()
    return producer


def _commit_one(producer: FakeProducer) -> None:
    producer.begin()
    producer.send(_T0)
    producer.finish(producer.commit())


def _count(producer: FakeProducer, api: Api) -> int:
    return len(producer.cluster.calls(api))


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_wait_for_the_first_batch(version: int) -> None:
    producer = _producer(version)
    _commit_one(producer)
    held = producer.cluster.control.on(Api.PRODUCE, Action(hold="before"))
    producer.begin()
    producer.send(_T0)
    offsets = producer.add_offsets("g", {_T0: 1})
    producer.run_for(1_000)
    assert _count(producer, Api.TXN_OFFSET_COMMIT) == 0
    held.release()
    producer.finish(producer.commit())
    assert offsets.done()
    assert _count(producer, Api.TXN_OFFSET_COMMIT) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_the_first_batch_of_each_transaction_goes_alone_where_it_adds(version: int) -> None:
    producer = _producer(version)
    _commit_one(producer)
    held = producer.cluster.control.on(Api.PRODUCE, Action(hold="before"))
    producer.begin()
    futures = [producer.send(_T0) for _ in range(5)]
    producer.run_for(1_000)
    assert len(producer.queue(_T0).in_flight) == (5 if version == 1 else 1)
    held.release()
    producer.finish(producer.commit())
    offsets = [future.result().base_offset for future in futures]
    assert offsets == sorted(offsets)


def test_the_first_batch_waits_for_offsets_that_are_on_their_way() -> None:
    producer = _producer(2)
    _commit_one(producer)
    held = producer.cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(hold="before"))
    producer.begin()
    offsets = producer.add_offsets("g", {_T0: 1})
    producer.run_until(lambda: _count(producer, Api.TXN_OFFSET_COMMIT) == 1)
    sent = producer.send(_T0)
    producer.run_for(1_000)
    assert not sent.done()
    held.release()
    producer.finish(producer.commit())
    assert offsets.done()
    assert sent.result().base_offset > 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_leader_gets_the_first_batches_of_a_transactions_partitions_one_request_after_the_other(version: int) -> None:
    cluster = FakeCluster()
    cluster.features["transaction.version"] = version
    cluster.add_topic("t", 3)
    producer = FakeProducer(cluster, **{"transactional.id": "x"})
    producer.init()
    for _ in range(2):
        held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
        before = _count(producer, Api.PRODUCE)
        producer.begin()
        producer.send(_T0)
        producer.run_until(lambda before=before: _count(producer, Api.PRODUCE) > before)  # type: ignore[misc]
        others = [producer.send(TopicPartition("t", partition)) for partition in (1, 2)]
        producer.run_for(1_000)
        assert _count(producer, Api.PRODUCE) == before + 1
        held.release()
        for other in others:
            producer.finish(other)
        assert _count(producer, Api.PRODUCE) == before + 2, "both in one request"
        producer.finish(producer.commit())
