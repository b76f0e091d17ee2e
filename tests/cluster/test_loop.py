"""The loop without its thread: order of a turn, closing, and what its death tells to whom."""

from __future__ import annotations

import pytest

from mirror.cluster.admin.cluster import DescribeCluster
from mirror.cluster.calls.offset_calls import ListOffsets
from mirror.cluster.events import CompletableEvent
from mirror.cluster.loop import LeaveEvent
from mirror.cluster.types import LATEST, TopicPartition
from mirror.consumer.events import PollEvent
from mirror.errors import ClientClosed, KafkaError, NetworkThreadDied
from mirror.wire.api import Api
from tests.fakes.client import FakeClient, FakeConsumer, FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

_T0 = TopicPartition("t", 0)


def _cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("t")
    return cluster


class Note(CompletableEvent[None]):
    """Writes down when it was applied."""

    def __init__(self, name: str, order: list[str], error: Exception | None = None) -> None:
        super().__init__(name, 2**62, 0)
        self.order = order
        self.error = error

    def apply(self, core: object, now: int) -> None:
        del core, now
        self.order.append(self.what)
        if self.error is not None:
            raise self.error
        self.complete(None)


def test_events_are_applied_in_order_before_anything_is_sent() -> None:
    cluster, order = _cluster(), list[str]()
    client = FakeClient(cluster)
    poll = client.network.poll

    def noted(timeout_ms: int) -> None:
        order.append("network")
        poll(timeout_ms)

    client.network.poll = noted  # type: ignore[method-assign]
    for name in ("first", "second"):
        client.submit(None, Note(name, order))
    client.network.horizon_ms = client.now + 1
    client.loop.run_once()
    assert order == ["first", "second", "network"]


def test_an_event_that_fails_in_our_own_words_fails_alone() -> None:
    client, order = FakeClient(_cluster()), list[str]()
    refused, fine = Note("refused", order, KafkaError("not like this")), Note("fine", order)
    client.submit(None, refused)
    client.submit(None, fine)
    client.run_until(fine.future.done)
    assert str(refused.future.exception(0)) == "not like this"


def test_an_events_bug_is_not_swallowed() -> None:
    client = FakeClient(_cluster())
    client.submit(None, Note("buggy", [], ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        client.loop.run_once()


def test_network_thread_death_fails_every_caller() -> None:
    """Those who wait for the network, those who wait for records or acknowledgements, and those still queued."""
    cluster = _cluster()
    cluster.control.on(Api.METADATA, Action(silent=True), times=None)
    consumer, producer = FakeConsumer(cluster), FakeProducer(cluster)
    consumer.read((_T0, 0))
    deadline_ms, timeout = consumer.timer()
    asked = ListOffsets({_T0: LATEST}, read_committed=True, deadline_ms=deadline_ms, timeout_ms=timeout)
    polled = PollEvent(*consumer.timer())
    consumer.submit(None, asked)
    consumer.submit(consumer.core, polled)
    sent = producer.send(_T0)
    consumer.run_for(1_000)
    producer.run_for(1_000)
    queued = DescribeCluster(*consumer.timer())
    consumer.submit(None, queued)

    bug = ZeroDivisionError("a bug")
    for client in (consumer, producer):
        died = NetworkThreadDied("the network thread died")
        died.__cause__ = bug
        client.loop.fail(died)
        client.network.close()
    for future in (asked.future, polled.future, sent, queued.future):
        error = future.exception(0)
        assert isinstance(error, NetworkThreadDied)
        assert error.__cause__ is bug


def test_after_its_death_the_loop_holds_nobody() -> None:
    client = FakeClient(_cluster())
    call = DescribeCluster(*client.timer())
    client.submit(None, call)
    client.loop.fail(ClientClosed("closed"))
    assert isinstance(call.future.exception(0), ClientClosed)
    assert not client.loop.events
    client.loop.fail(ClientClosed("closed again"))


def test_a_client_that_leaves_is_gone() -> None:
    cluster = _cluster()
    consumer = FakeConsumer(cluster)
    cluster.log("t").append_values(b"x")
    consumer.read((_T0, 0))
    assert consumer.poll()
    consumer.call(LeaveEvent(consumer.core, *consumer.timer()))
    assert consumer.loop.cores == []
    fetches = len(cluster.calls(Api.FETCH))
    consumer.run_for(5_000)
    assert len(cluster.calls(Api.FETCH)) == fetches


def test_a_producer_that_leaves_reports_what_is_not_acknowledged() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(hold="before"))
    producer = FakeProducer(cluster)
    in_flight, waiting = producer.send(_T0), producer.send(_T0)
    producer.run_for(100)
    producer.call(LeaveEvent(producer.core, *producer.timer()))
    for future in (in_flight, waiting):
        assert isinstance(future.exception(0), ClientClosed)


def test_an_idle_loop_sleeps() -> None:
    """No request is sent again and again while no caller waits for anything."""
    cluster = _cluster()
    client = FakeClient(cluster)
    client.call(DescribeCluster(*client.timer()))
    seen = len(cluster.received)
    turns = 0
    until = client.now + 200_000
    client.network.horizon_ms = until
    while client.now < until:
        client.loop.run_once()
        turns += 1
    assert turns < 10
    assert len(cluster.received) - seen <= 1
