"""Reconnect backoff on real sockets: kept, grown, and counted once for all connections that one bounce breaks."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from mirror.client import Admin
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaTimeout
from mirror.runtime.clock import SystemClock
from mirror.runtime.network.selector_network import SelectorNetwork
from tests.runtime.listener import Listener
from tests.runtime.responder import Responder
from tests.runtime.test_many_connections import Desk, greeting
from tests.stalls import Stalls

CONNECTIONS = 8


@pytest.fixture
def network() -> Iterator[Callable[..., SelectorNetwork]]:
    made: list[SelectorNetwork] = []

    def make(address: str, **options: object) -> SelectorNetwork:
        settings = ClusterSettings.parse({"bootstrap.servers": address, **options})
        made.append(SelectorNetwork(settings, SystemClock(), random.Random(1)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def responder() -> Iterator[Responder]:
    one = Responder(greeting())
    yield one
    one.close()


@pytest.fixture
def refusing() -> Iterator[Listener]:
    one = Listener(hang_up=True)
    yield one
    one.close()


def test_one_bounce_is_one_failure(
    network: Callable[..., SelectorNetwork], responder: Responder, stalls: Stalls
) -> None:
    """With eight connections. Eight failures in a row would have it wait for the maximum."""
    net = network(responder.address, **{"reconnect.backoff.ms": 300, "reconnect.backoff.max.ms": 20_000})
    desk = Desk(net, SystemClock(), responder)
    desk.until(lambda: sum(desk.ready(number) for number in range(CONNECTIONS)) == CONNECTIONS)
    with stalls.timing() as took:
        responder.hang_up()
        desk.until(lambda: not net._connections)
        desk.ready(1)
        desk.until(lambda: len(responder.connections) > CONNECTIONS)
    assert took.ms >= 240
    assert took.running_ms < 1_000


def test_reconnect_and_connection_setup_timeouts_grow_and_reset_on_real_sockets(
    network: Callable[..., SelectorNetwork], refusing: Listener, responder: Responder
) -> None:
    """A listener that hangs up at once is connected to after 100, 200 and 400 ms, each give or take a fifth."""
    net = network(refusing.address, **{"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 10_000})
    desk = Desk(net, SystemClock(), responder)
    begun = time.monotonic()
    seen: list[float] = []

    def attempted() -> bool:
        desk.ready(1)
        if refusing.accepted > len(seen):
            seen.append((time.monotonic() - begun) * 1000)
        return len(seen) >= 4

    desk.until(attempted)
    for number, at_ms in enumerate(seen):
        assert at_ms >= 80 * (2**number - 1), seen


@pytest.mark.parametrize("hang_up", [True, False])
def test_the_next_attempt_begins_at_the_next_address(
    network: Callable[..., SelectorNetwork], responder: Responder, monkeypatch: pytest.MonkeyPatch, *, hang_up: bool
) -> None:
    """A name has the address of a host that is another service's now, which accepts and hangs up, or is silent."""
    other = Listener(hang_up=hang_up)
    ports = [int(one.address.rpartition(":")[2]) for one in (other, responder)]

    def look_up(host: str, *_: object, flags: int = 0, **__: object) -> list[tuple[object, ...]]:
        if flags:
            raise OSError(f"{host} is a name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    net = network("several.example:9092", **{"request.timeout.ms": 300, "reconnect.backoff.ms": 10})
    desk = Desk(net, SystemClock(), responder)
    try:
        desk.until(lambda: desk.ready(-1))
        assert other.accepted == 1
    finally:
        other.close()


def test_a_listener_that_has_answered_is_not_asked_for_sasl_when_it_closes_a_connection(
    network: Callable[..., SelectorNetwork],
) -> None:
    """It closes the connection at a request that it cannot decode, as implementations of the protocol do."""
    listener = Responder(greeting(0))
    try:
        net = network(listener.address, **{"reconnect.backoff.ms": 10})
        desk = Desk(net, SystemClock(), listener)
        answered = desk.send()
        desk.until(lambda: answered.responses)
        listener.answers = greeting()
        second = desk.send(channel=2)
        desk.until(lambda: len(listener.connections) > 1 and desk.ready(2))
        listener.hang_up()
        desk.until(lambda: second.failures)
        assert not net._suspicions
    finally:
        listener.close()


def test_an_address_to_which_there_is_no_route_is_tried_again() -> None:
    """It fails at once, before the selector knows the socket; the network thread survives that."""
    options: dict[str, object] = {"bootstrap.servers": "255.255.255.255:9092", "reconnect.backoff.ms": 20}
    # A request waits as long as the call: one that expires earlier, on a busy machine, says that it was not sent.
    with Admin({**options, "request.timeout.ms": 30_000, "default.api.timeout.ms": 600}) as admin:
        for _ in range(2):
            with pytest.raises(KafkaTimeout, match="network is unreachable"):
                admin.list_topics()
