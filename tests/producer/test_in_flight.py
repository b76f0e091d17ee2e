"""``max.in.flight.requests.per.connection``: how many batches of a partition are under way at most, and at least."""

from __future__ import annotations

import pytest

from mirror.wire.api import Api
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action
from tests.producer.site import IN_FLIGHT, T0, finish, make_cluster, send, values


@pytest.mark.parametrize("allowed", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("apart_ms", [0, 5], ids=lambda ms: f"{ms} ms apart")
def test_as_many_are_in_flight_as_are_allowed(allowed: int, apart_ms: int) -> None:
    """Handed over in one turn of the loop, or over several; 1 is strictly serial."""
    producer = FakeProducer(make_cluster(), **{IN_FLIGHT: allowed})
    finish(producer, producer.send(T0, b"first"))
    producer.cluster.control.on(Api.PRODUCE, Action(delay_ms=2_000), times=None)
    sent, most = [], 0
    for number in range(8):
        sent.append(send(producer, b"%d" % number))
        if apart_ms:
            producer.run_for(apart_ms)
            most = max(most, len(producer.queue(T0).in_flight))
    producer.run_for(1)
    most = max(most, len(producer.queue(T0).in_flight))
    assert most == len(producer.queue(T0).in_flight) == allowed
    while not all(one.future.done() for one in sent):
        producer.run_for(100)
        most = max(most, len(producer.queue(T0).in_flight))
    assert most == allowed
    assert values(producer.cluster) == [b"first", *(b"%d" % number for number in range(8))]


def test_by_default_two_are_in_flight() -> None:
    """KIP-185."""
    producer = FakeProducer(make_cluster())
    finish(producer, producer.send(T0, b"first"))
    producer.cluster.control.on(Api.PRODUCE, Action(delay_ms=2_000), times=None)
    for number in range(8):
        send(producer, b"%d" % number)
    producer.run_for(5)
    assert len(producer.queue(T0).in_flight) == 2
