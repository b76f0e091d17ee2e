"""Behaviours 35 to 39 (seed 001) on a real broker, for all eleven timed calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mirror.client import Consumer, TopicPartition
from mirror.errors import KafkaTimeout, UnsupportedVersion
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.conformance.conftest import NewConsumer
from tests.conformance.timed_calls import CALLS, TimedCall, times_out, warm_up, with_telemetry
from tests.conformance.topics import Topics
from tests.faults.proxy import Action, Fault, On, Proxy
from tests.polling import eventually
from tests.stalls import Stalls, Timed

pytestmark = pytest.mark.brokers

ASKED_MS = 1_000
TRIED_AGAIN_MS = 2_500
"""Time enough for three attempts, each with a connection of its own, also where the broker is slow."""
WHENEVER_MS = 60_000
ALL = pytest.mark.parametrize("call", CALLS, ids=str)


@pytest.fixture(scope="module")
def tp(broker: Cluster) -> TopicPartition:
    """Ten records, shared by all; coordinators are there."""
    topics = Topics(broker.bootstrap_servers, lambda name: f"{name}-timeouts")
    (tp,) = topics.create()
    topics.fill(tp, 10)
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "first"}) as consumer:
        consumer.committed([tp])
    return tp


@pytest.fixture
def consumer(proxy: Proxy, new_consumer: NewConsumer, unique: Any) -> Consumer:
    proxy.change(Api.API_VERSIONS, with_telemetry)
    return new_consumer(
        proxy.bootstrap_servers, **{"group.id": unique("readers"), "default.api.timeout.ms": WHENEVER_MS}
    )


def in_time(took: Timed, asked_ms: int, *, early: bool = False) -> bool:
    """Whether a call took what was asked for, and a quarter and 100 ms more at most; ``early``: it may take less."""
    return (early or took.ms >= asked_ms * 0.99) and took.running_ms <= asked_ms * 1.25 + 100


@contextlib.contextmanager
def resumed(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.resume(1)


@ALL
def test_a_stopped_broker_costs_no_more_than_was_asked(
    call: TimedCall,
    broker: Cluster,
    proxy: Proxy,
    consumer: Consumer,
    tp: TopicPartition,
    new_consumer: NewConsumer,
    stalls: Stalls,
) -> None:
    warm_up(call, consumer, tp)
    proxy.before_next(call.api, lambda: broker.pause(1), call.where)
    with resumed(broker):
        took = times_out(call, consumer, tp, ASKED_MS, stalls)
        eventually(lambda: not proxy.hooked, what="the broker was paused in the middle of the call")
    assert in_time(took, ASKED_MS), took
    if call.name == "close":
        consumer = new_consumer(proxy.bootstrap_servers)
        assert consumer.partitions_for(tp.topic)
    else:
        assert call.run(consumer, tp, None) != []


@ALL
def test_one_network_poll_before_reaping(
    call: TimedCall, proxy: Proxy, consumer: Consumer, tp: TopicPartition, stalls: Stalls
) -> None:
    warm_up(call, consumer, tp)
    proxy.fault(Fault(action=Action.SILENCE, api=call.api))
    since = proxy.now()
    assert times_out(call, consumer, tp, 0, stalls).running_ms < 250
    eventually(lambda: [one for one in proxy.requests(call.api, since=since) if call.where(one)], what="its request")


@ALL
def test_retries_until_deadline_then_timeout(
    call: TimedCall, proxy: Proxy, consumer: Consumer, tp: TopicPartition, stalls: Stalls
) -> None:
    warm_up(call, consumer, tp)
    proxy.fault(Fault(action=Action.CUT, api=call.api, after=3))
    since = proxy.now()
    took = times_out(call, consumer, tp, TRIED_AGAIN_MS, stalls)
    attempts = [one for one in proxy.requests(call.api, since=since) if call.where(one)]
    if call.name == "close":
        # Taking leave is no more than a courtesy: one attempt, and no caller waits for another.
        assert len(attempts) == 1
        assert in_time(took, TRIED_AGAIN_MS, early=True), took
    else:
        assert len(attempts) >= 3
        assert in_time(took, TRIED_AGAIN_MS), took


def test_each_request_waits_for_what_remains_or_the_request_timeout(
    proxy: Proxy, new_consumer: NewConsumer, tp: TopicPartition, stalls: Stalls
) -> None:
    consumer = new_consumer(proxy.bootstrap_servers, **{"request.timeout.ms": 2_000})
    consumer.beginning_offsets([tp], timeout_ms=WHENEVER_MS)
    proxy.fault(Fault(action=Action.SILENCE, api=Api.LIST_OFFSETS))
    since = proxy.now()
    # After the first there is a second left, to connect again and to ask.
    with pytest.raises(KafkaTimeout, match="did not succeed within 3000 ms"):
        consumer.beginning_offsets([tp], timeout_ms=3_000)
    first, second = proxy.requests(Api.LIST_OFFSETS, since=since)
    # ListOffsets tells the broker how long its caller waits.
    limits = [one.body().timeout.total_seconds() * 1000 for one in (first, second)]
    remained = 3_000 - (second.at_ms - since)
    assert limits[0] == 2_000
    # It is less by the time when the proxy saw it, and not by more than it was on its way.
    assert remained - 10 <= limits[1] <= remained + 100 + stalls.between(since, second.at_ms)
    assert second.at_ms - since >= 2_000


def test_expired_event_times_out_once(proxy: Proxy, consumer: Consumer, tp: TopicPartition) -> None:
    consumer.beginning_offsets([tp])
    opened = len(proxy.opened)
    proxy.fault(Fault(action=Action.DELAY, api=Api.LIST_OFFSETS, delay_ms=500))
    with pytest.raises(KafkaTimeout):
        consumer.end_offsets([tp], timeout_ms=100)
    # The late answer to the first call is on its way, before the second's.
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 10}
    assert len(proxy.opened) == opened


def test_a_chain_that_keeps_succeeding_is_not_cut(
    proxy: Proxy, new_consumer: NewConsumer, tp: TopicPartition, unique: Any
) -> None:
    """Six slow steps in a row, none of them failing: not one is asked twice, none shortens the next."""
    proxy.fault(Fault(action=Action.DELAY, delay_ms=200))  # before a consumer's network thread takes the first step
    consumer = new_consumer(proxy.bootstrap_servers, **{"group.id": unique("readers")})
    began = time.monotonic()
    assert consumer.committed([tp], timeout_ms=WHENEVER_MS) == {tp: None}
    assert time.monotonic() - began >= 1.0
    assert len(proxy.requests(Api.FIND_COORDINATOR)) == 1
    assert len(proxy.requests(Api.OFFSET_FETCH)) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(action=Action.SILENCE, api=Api.LIST_OFFSETS, times=1),
        Fault(action=Action.SILENCE, api=Api.LIST_OFFSETS, times=1, after=9),
        Fault(action=Action.CUT, api=Api.LIST_OFFSETS, times=1, after=9),
        Fault(action=Action.RESET, api=Api.LIST_OFFSETS, times=1, after=9),
        Fault(action=Action.RESET, api=Api.LIST_OFFSETS, times=1),
        Fault(action=Action.CUT, api=Api.LIST_OFFSETS, times=1, on=On.REQUEST, after=9),
        Fault(action=Action.SILENCE, api=Api.LIST_OFFSETS, times=1, on=On.REQUEST, after=9),
    ],
    ids=lambda fault: f"{fault.action.name.lower()} {fault.on.name.lower()} after {fault.after}",
)
def test_what_a_broken_connection_swallowed_is_asked_again(
    fault: Fault, proxy: Proxy, new_consumer: NewConsumer, tp: TopicPartition
) -> None:
    """Whatever becomes of the first answer, it is noticed within request.timeout.ms, and asked for again."""
    consumer = new_consumer(proxy.bootstrap_servers, **{"request.timeout.ms": 500})
    consumer.beginning_offsets([tp], timeout_ms=WHENEVER_MS)
    proxy.fault(fault)
    assert consumer.end_offsets([tp], timeout_ms=WHENEVER_MS) == {tp: 10}


def test_a_broker_without_a_telemetry_receiver_is_reported_at_once(broker: Cluster, new_consumer: NewConsumer) -> None:
    consumer = new_consumer(broker.bootstrap_servers)
    began = time.monotonic()
    with pytest.raises(UnsupportedVersion, match="GetTelemetrySubscriptions"):
        consumer.client_instance_id(timeout_ms=WHENEVER_MS)
    assert time.monotonic() - began < WHENEVER_MS / 2_000


def test_one_client_has_one_instance_id(consumer: Consumer) -> None:
    first = consumer.client_instance_id()
    assert first.int != 0
    assert consumer.client_instance_id() == first
