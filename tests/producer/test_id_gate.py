"""Producer ids that have to be admitted before the first batch is sent under them."""

from __future__ import annotations

import pytest

from mirror.errors import DeliveryPhase
from mirror.producer.batch.queue import LAST_EPOCH, ProducerId
from mirror.wire.api import Api
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.producer.site import T0, T1, TIMES, expired, finish, make_cluster, values


def _begin_transaction(producer: FakeProducer) -> None:
    producer.init()
    producer.begin()


def _fence(cluster: FakeCluster) -> ProducerId:
    producer = FakeProducer(cluster, **{"transactional.id": "fence"})
    _begin_transaction(producer)
    producer.add_partitions(T0)
    producer.finish(producer.commit())
    identity = producer.core.identity
    assert identity is not None
    return identity


@pytest.mark.parametrize("way", ["idempotent", "transactional", "transactional by version 1", "adopted"])
def test_no_batch_is_sent_under_a_producer_id_before_it_is_admitted(way: str) -> None:
    cluster, asked = make_cluster(), list[int]()
    cluster.features["transaction.version"] = 1 if way.endswith("1") else 2
    transactional = way.startswith("transactional")
    options = {"transactional.id": "x"} if transactional else {}
    producer = FakeProducer(cluster, ask_id=asked.append, **options)
    if transactional:
        _begin_transaction(producer)
    if way == "adopted":
        producer.adopt(T0, _fence(cluster), 1)
    sent = [producer.send_in_chain(T0, 1, b"a"), producer.send_in_chain(T0, 1, b"b")]
    producer.run_for(1_000)
    assert len(asked) == 1
    assert not cluster.calls(Api.PRODUCE)
    producer.admit_id(asked[0])
    finish(producer, *sent)
    assert values(cluster) == [b"a", b"b"]
    assert {one.producer_id for one in cluster.log("t").batches() if not one.is_control} == set(asked)
    finish(producer, producer.send_in_chain(T0, 1, b"c"))
    assert len(asked) == 1


def test_the_next_producer_id_is_asked_for_once_the_epochs_of_one_are_used_up() -> None:
    cluster, asked = make_cluster(), list[int]()
    producer = FakeProducer(cluster, ask_id=asked.append)
    first = producer.send(T0, b"a")
    producer.run_for(100)
    producer.admit_id(asked[0])
    finish(producer, first)
    queue = producer.queue(T0)
    queue.identity, queue.used_up = ProducerId(asked[0], LAST_EPOCH), True
    second = producer.send(T0, b"b")
    producer.run_for(1_000)
    assert len(set(asked)) == 2
    assert values(cluster) == [b"a"]
    producer.admit_id(asked[1])
    finish(producer, second)
    assert values(cluster) == [b"a", b"b"]


def test_a_batch_whose_producer_id_is_never_admitted_expires_in_the_phase_of_fencing() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, ask_id=lambda _: None, **TIMES)
    made = [producer.prepare(tp, b"x") for tp in (T0, T1)]
    for batch in made:
        producer.send_batch(batch)
    assert {expired(producer, batch).phase for batch in made} == {DeliveryPhase.FENCING}
    assert not cluster.calls(Api.PRODUCE)
