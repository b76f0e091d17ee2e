"""Chains of batches: nothing is sent behind a hole, until another chain begins."""

from __future__ import annotations

import pytest

from mirror.errors import RecordRejected
from mirror.producer.batch.batches import ProducerBatch
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action
from tests.producer.site import IN_FLIGHT, T0, finish, make_cluster, values


def test_a_chain_ends_where_a_batch_is_lost() -> None:
    """What was queued or in flight behind it, and what comes later, fails with it; others of the partition go on."""
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{IN_FLIGHT: 2})
    finish(producer, producer.send(T0, b"first"))
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.MESSAGE_TOO_LARGE}))
    chain = [producer.prepare(T0, b"%d" % number) for number in range(4)]
    for one in chain:
        one.chain = 0
        producer.send_batch(one)
    producer.run_for(2_000)
    late = producer.prepare(T0, b"late")
    late.chain = 0
    producer.send_batch(late)
    for one in [*chain, late]:
        with pytest.raises(RecordRejected):
            producer.finish(one.future)
    assert producer.finish(producer.send(T0, b"another")).base_offset == 1
    assert values(cluster) == [b"first", b"another"]
    assert producer.released == producer.taken


@pytest.mark.parametrize("in_flight", [1, 5])
def test_another_chain_goes_on_behind_the_lost_one(in_flight: int) -> None:
    """Also where both are under way at the same time, and where what comes late still belongs to the lost one."""
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{IN_FLIGHT: in_flight})
    finish(producer, producer.send(T0, b"first"))
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.MESSAGE_TOO_LARGE}))

    def chained(chain: int, value: bytes) -> ProducerBatch:
        one = producer.prepare(T0, value)
        one.chain = chain
        producer.send_batch(one)
        return one

    lost = [chained(7, b"lost %d" % number) for number in range(3)]
    kept = [chained(3, b"kept %d" % number) for number in range(3)]
    lost.append(chained(7, b"lost, too"))
    finish(producer, *[one.future for one in kept])
    lost.append(chained(7, b"late"))
    kept.append(chained(3, b"kept at last"))
    finish(producer, kept[-1].future)
    for one in lost:
        with pytest.raises(RecordRejected):
            producer.finish(one.future)
    assert values(cluster) == [b"first", b"kept 0", b"kept 1", b"kept 2", b"kept at last"]
    assert producer.released == producer.taken


def test_broken_chains_are_not_remembered_for_ever() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster)
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.MESSAGE_TOO_LARGE}), times=None)
    for chain in range(50):
        one = producer.prepare(T0, b"%d" % chain)
        one.chain = chain
        with pytest.raises(RecordRejected):
            producer.finish(producer.send_batch(one))
    assert list(producer.queue(T0).broken) == list(range(42, 50))
