"""Many connections at once: what happens on one is noticed in time, and the idle ones cost nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from mirror.cluster.requests import Lane
from mirror.cluster.settings import ClusterSettings
from mirror.errors import ConnectionFailed, KafkaTimeout
from mirror.runtime.clock import SystemClock
from mirror.runtime.network.selector_network import SelectorNetwork
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataResponse
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse, FinalizedFeature
from tests.cluster.probes import Probe
from tests.cluster.test_scale import calls_made
from tests.fakes.server_codec import encode_response
from tests.runtime.responder import Responder
from tests.stalls import Stalls

NODE = -1
WITHIN_S = 60.0


def greeting(*throttle_ms: int, level: int = 2, epoch: int = 5) -> list[bytes]:
    """The answers to the first requests of a connection; those to Metadata have these throttle times."""
    spoken = tuple(ApiVersion(api.value.key, api.value.low, api.value.high) for api in Api)
    features = (FinalizedFeature("transaction.version", level, level),)
    answers = [encode_response(Api.API_VERSIONS, 3, 1, ApiVersionsResponse(0, spoken, 0, features, epoch))]
    for number, throttled in enumerate(throttle_ms):
        body = MetadataResponse((), "cluster", 1, throttle_time=throttled)
        answers.append(encode_response(Api.METADATA, Api.METADATA.value.high, number + 2, body))
    return answers


@dataclass(slots=True)
class Desk:
    """A network and the listener that it talks to."""

    network: SelectorNetwork
    clock: SystemClock
    listener: Responder

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < end
            self.network.poll(1_000)

    def ready(self, channel: int) -> bool:
        return self.network.ready(NODE, Lane.PRODUCE, self.clock.now(), channel)

    def send(self, channel: int = 1, timeout_ms: int = 60_000) -> Probe:
        probe = Probe(timeout_ms=timeout_ms)
        probe.request.node, probe.request.lane, probe.request.channel = NODE, Lane.PRODUCE, channel
        self.network.send(probe.request, self.clock.now())
        return probe


Opener = Callable[..., Desk]


@pytest.fixture
def open_desk() -> Iterator[Opener]:
    desks: list[Desk] = []

    def opener(said: list[bytes], bootstrap: str = "", **options: object) -> Desk:
        listener, clock = Responder(said), SystemClock()
        servers = f"{listener.address},{bootstrap}".rstrip(",")
        settings = ClusterSettings.parse({"bootstrap.servers": servers, **options})
        desks.append(Desk(SelectorNetwork(settings, clock, random.Random(1)), clock, listener))
        return desks[-1]

    yield opener
    for desk in desks:
        desk.network.close()
        desk.listener.close()


def test_idle_connections_cost_nothing(open_desk: Opener) -> None:
    """Counted in calls: with 50 connections a turn makes as many as with 2."""
    made = []
    for connections in (2, 50):
        desk = open_desk(greeting())
        made.append(_idle_turns(desk, connections))
    assert made[1] <= made[0] + 5


def _idle_turns(desk: Desk, connections: int) -> int:
    """Calls made in 20 of them."""

    def work() -> None:
        for _ in range(20):
            desk.network.poll(0)

    desk.until(lambda: sum(desk.ready(number) for number in range(connections)) == connections)
    desk.network.poll(0)
    return calls_made(work)


ANSWER = encode_response(Api.METADATA, Api.METADATA.value.high, 2, MetadataResponse((), "cluster", 1))


def _with_part_of_an_answer(desk: Desk) -> Probe:
    """A request in flight, and the first bytes of its response."""
    desk.until(lambda: desk.ready(1))
    probe = desk.send()
    desk.network.poll(0)
    (client,) = desk.listener.connections
    client.sendall(ANSWER[:7])
    return probe


def test_part_of_a_response_does_not_end_the_wait(open_desk: Opener) -> None:
    """Each turn polls all cores: a response of 4 MB came in 25 parts."""
    desk = open_desk(greeting())
    probe = _with_part_of_an_answer(desk)
    began = time.monotonic()
    desk.network.poll(200)
    assert time.monotonic() - began >= 0.19
    assert not probe.completions
    desk.listener.connections[0].sendall(ANSWER[7:])
    desk.network.poll(60_000)
    assert probe.responses


def test_wait_for_the_rest_of_a_response_ends_by_a_wake_up_and_by_the_timeout(open_desk: Opener) -> None:
    desk = open_desk(greeting(), **{"request.timeout.ms": 300})
    probe = _with_part_of_an_answer(desk)
    desk.network.wakeup()
    desk.network.poll(1_000_000)
    assert not probe.completions
    desk.until(lambda: probe.completions)
    assert isinstance(probe.failures[0], ConnectionFailed)


def test_changes_report_connections_that_become_ready_and_are_lost(open_desk: Opener) -> None:
    desk = open_desk(greeting())
    assert not desk.ready(1)
    assert desk.network.stands(NODE, Lane.PRODUCE, 1)
    assert not desk.network.stands(NODE, Lane.PRODUCE, 2)
    before = desk.network.changes
    desk.until(lambda: desk.network.changes > before)
    assert desk.ready(1)
    before = desk.network.changes
    desk.listener.hang_up()
    desk.until(lambda: desk.network.changes > before)
    assert not desk.network.stands(NODE, Lane.PRODUCE, 1)
    assert isinstance(desk.network.trouble(NODE), ConnectionFailed)


def test_the_end_of_throttling_is_reported(open_desk: Opener, stalls: Stalls) -> None:
    desk = open_desk(greeting(1_500))
    desk.until(lambda: desk.ready(1))
    with stalls.timing() as took:
        probe = desk.send()
        desk.until(lambda: probe.completions)
        assert desk.network.throttled(NODE, desk.clock.now())
        assert not desk.ready(1)
        before = desk.network.changes
        desk.until(lambda: desk.network.changes > before)
    assert desk.ready(1)
    assert not desk.network.throttled(NODE, desk.clock.now())
    assert took.ms >= 1_499
    assert took.running_ms < 2_000


def test_what_was_held_back_goes_out_when_throttling_ends_and_is_then_awaited(
    open_desk: Opener, stalls: Stalls
) -> None:
    desk = open_desk(greeting(150, 0), **{"request.timeout.ms": 1_500})
    desk.until(lambda: desk.ready(1))
    first, second = desk.send(), desk.send()
    desk.until(lambda: first.completions and second.completions)
    with stalls.timing() as took:
        held = desk.send()
        desk.until(lambda: held.completions)
    assert isinstance(held.failures[0], ConnectionFailed), "the third is not answered"
    assert took.ms >= 1_499
    assert took.running_ms < 2_500


def test_an_unanswered_request_is_given_up_by_its_caller_and_then_by_its_connection(
    open_desk: Opener, stalls: Stalls
) -> None:
    desk = open_desk(greeting(), **{"request.timeout.ms": 2_000})
    desk.until(lambda: desk.ready(1))
    times: list[int] = []
    with stalls.timing() as both:
        with stalls.timing() as took:
            patient, hurried = desk.send(), desk.send(timeout_ms=100)
            hurried.request.on_settled = times.append
            desk.until(lambda: hurried.completions)
        assert took.ms >= 99
        assert took.running_ms < 350
        assert isinstance(hurried.failures[0], KafkaTimeout)
        assert not patient.completions
        desk.until(lambda: patient.completions)
    assert both.ms >= 1_999
    assert both.running_ms < 3_000
    assert len(times) == 1


def test_idle_connections_are_closed_and_busy_ones_are_not(open_desk: Opener, stalls: Stalls) -> None:
    desk = open_desk(greeting(0), **{"connections.max.idle.ms": 1_000})
    desk.until(lambda: desk.ready(1) + desk.ready(2) == 2)
    with stalls.timing() as took:
        answered, unanswered = desk.send(1), [desk.send(2), desk.send(2)]
        desk.until(lambda: answered.completions and unanswered[0].completions)
        desk.until(lambda: not desk.network.stands(NODE, Lane.PRODUCE, 1))
    assert took.ms >= 999
    assert took.running_ms < 2_000
    assert desk.network.stands(NODE, Lane.PRODUCE, 2)
    desk.network.forget(2)
    assert not desk.network.stands(NODE, Lane.PRODUCE, 2)
    assert len(unanswered[1].failures) == 1


def test_the_newest_report_of_the_clusters_features_holds(open_desk: Opener) -> None:
    desk = open_desk(greeting(level=2, epoch=5))
    assert desk.network.finalized_feature("transaction.version") == 0
    desk.until(lambda: desk.ready(1))
    assert desk.network.finalized_feature("transaction.version") == 2
    desk.listener.answers = greeting(level=1, epoch=4)
    desk.until(lambda: desk.ready(2))
    assert desk.network.finalized_feature("transaction.version") == 2
    desk.listener.answers = greeting(level=3, epoch=6)
    desk.until(lambda: desk.ready(3))
    assert desk.network.finalized_feature("transaction.version") == 3
    assert desk.network.finalized_feature("no.such.feature") == 0


def test_the_least_busy_node_is_not_one_that_has_let_a_request_time_out(open_desk: Opener) -> None:
    other = Responder(greeting(0, 0))
    try:
        desk = open_desk(greeting(0), bootstrap=other.address)
        outcomes = []
        for timeout_ms in (60_000, 100, 60_000):
            probe = Probe(timeout_ms=timeout_ms)
            probe.request.node = None
            desk.network.send(probe.request, desk.clock.now())
            desk.until(partial(getattr, probe, "completions"))
            outcomes.append(len(probe.responses))
        # The first listener answers one request and then hangs: connected, and not disconnected.
        assert outcomes == [1, 0, 1]
        assert (len(desk.listener.connections), len(other.connections)) == (1, 1)
    finally:
        other.close()
