"""What a lost leader or coordinator leaves behind; each was first seen on real brokers (``tests/campaign``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import DeliveryTimeout
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import values_of

_T0 = TopicPartition("t", 0)
_OPTIONS = {"delivery.timeout.ms": 12_000, "request.timeout.ms": 10_000}


def _log(cluster: FakeCluster) -> list[bytes]:
    return [value for one in cluster.log("t").batches() for value in values_of(one.view)]


def _no_longer_leader(body: Any) -> Any:
    """As a leader answers that wrote the batch, and lost its place while it waited for its replicas."""
    topics = tuple(
        replace(
            topic,
            partition_responses=tuple(
                replace(part, error_code=errors.NOT_LEADER) for part in topic.partition_responses
            ),
        )
        for topic in body.responses
    )
    return replace(body, responses=topics)


def test_refused_with_an_offset_may_have_been_written() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    producer = FakeProducer(cluster, **_OPTIONS)
    producer.finish(producer.send(_T0, b"0"))
    cluster.control.on(Api.PRODUCE, Action(rewrite=_no_longer_leader))
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_LEADER}), times=None)
    sent = producer.send(_T0, b"1")
    with pytest.raises(DeliveryTimeout) as raised:
        producer.finish(sent)
    assert raised.value.may_have_been_written
    assert _log(cluster) == [b"0", b"1"]


def test_refused_without_one_was_not_written() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    producer = FakeProducer(cluster, **_OPTIONS)
    producer.finish(producer.send(_T0, b"0"))
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_LEADER}), times=None)
    sent = producer.send(_T0, b"1")
    with pytest.raises(DeliveryTimeout) as raised:
        producer.finish(sent)
    assert not raised.value.may_have_been_written
    assert _log(cluster) == [b"0"]


def test_out_of_order_behind_several_expired_ones_is_no_data_loss() -> None:
    """The first of them was refused, so the second comes back out of order: nothing that was acknowledged is gone."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    producer = FakeProducer(cluster, **_OPTIONS, **{"max.in.flight.requests.per.connection": 3})
    producer.finish(producer.send(_T0, b"0"))
    cluster.log("t").leader = 9  # none, for some time: so they expire well before their requests do
    producer.loop.metadata.request_update()
    producer.run_for(500)
    stopped = cluster.control.on(Api.PRODUCE, Action(hold="before", errors={_T0: errors.NOT_LEADER}))
    expired = [producer.send(_T0, b"%d" % number) for number in (1, 2, 3)]
    cluster.after(5_000, lambda: cluster.move("t", 0, 1))
    cluster.after(13_000, stopped.release)
    producer.run_for(11_000)
    later = producer.send(_T0, b"4")
    for one in expired:
        with pytest.raises(DeliveryTimeout):
            producer.finish(one)
    assert producer.finish(later).base_offset >= 0
    assert _log(cluster) == [b"0", b"4"]


@pytest.mark.parametrize("version", [1, 2])
def test_the_transaction_after_a_refused_batch_begins_with_sequences_that_fit(version: int) -> None:
    """The sequence that the refused one had is missing: in the same epoch, whatever follows would be out of order."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.features["transaction.version"] = version
    producer = FakeProducer(cluster, **_OPTIONS, **{"transactional.id": "copier", "transaction.timeout.ms": 900_000})
    producer.init()
    producer.begin()
    producer.finish(producer.send(_T0, b"0"))
    producer.finish(producer.commit())
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    producer.begin()
    with pytest.raises(DeliveryTimeout):
        producer.finish(producer.send(_T0, b"1"))
    producer.finish(producer.abort())
    cluster.control.clear()
    producer.begin()
    producer.finish(producer.send(_T0, b"2"))
    producer.finish(producer.commit())


def test_what_a_broker_that_is_gone_coordinated_is_looked_up_again() -> None:
    """No request to it fails: there is none, since metadata does not name it any more."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    cluster.coordinators["copier"] = 2
    producer = FakeProducer(cluster, **{"transactional.id": "copier"})
    producer.init()
    producer.begin()
    producer.finish(producer.send(_T0, b"0"))
    cluster.kill(2)
    cluster.coordinators["copier"] = 1
    producer.loop.metadata.request_update()
    producer.run_for(2_000)
    producer.finish(producer.commit(timeout_ms=5_000))
