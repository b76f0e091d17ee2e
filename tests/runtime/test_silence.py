"""Listeners that say nothing, or half of it, and names that do not resolve: all found in time, and said."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mirror.cluster.settings import ClusterSettings
from mirror.errors import ConnectionFailed
from mirror.runtime.clock import SystemClock
from mirror.runtime.network.selector_network import SelectorNetwork
from tests.cluster.probes import Probe
from tests.runtime.listener import Listener

FAST: dict[str, object] = {
    "request.timeout.ms": 200,
    "socket.connection.setup.timeout.ms": 200,
    "socket.connection.setup.timeout.max.ms": 200,
}
LATEST_S = 40.0
"""Far below all the time in the world, and well above what a busy machine needs for what takes 200 ms."""


@pytest.fixture
def listeners() -> Iterator[list[Listener]]:
    opened: list[Listener] = []
    yield opened
    for listener in opened:
        listener.close()


def failure(address: str, protocol: str = "PLAINTEXT", attempts: int = 1) -> str:
    """How a request ends that has all the time in the world, at the last of so many attempts."""
    settings = ClusterSettings.parse({"bootstrap.servers": address, "security.protocol": protocol} | FAST)
    clock, text = SystemClock(), ""
    network = SelectorNetwork(settings, clock, random.Random(1))
    try:
        for _ in range(attempts):
            probe = Probe(timeout_ms=600_000)
            probe.request.node = -1
            until = time.monotonic() + LATEST_S
            network.send(probe.request, clock.now())
            while not probe.completions:
                network.poll(1_000)
                assert time.monotonic() < until
            (error,) = probe.failures
            assert isinstance(error, ConnectionFailed)
            text = str(error)
    finally:
        network.close()
    assert text.startswith(f"bootstrap server at {address}: ")
    return text


def test_a_listener_silent_in_the_tls_handshake(listeners: list[Listener]) -> None:
    listeners.append(Listener())
    text = failure(listeners[0].address, "SSL")
    assert "no connection within the setup timeout (still in the TLS handshake)" in text


def test_a_tls_record_that_never_ends(listeners: list[Listener]) -> None:
    listeners.append(Listener(b"\x16\x03\x03\x40\x00\x02"))
    text = failure(listeners[0].address, "SSL")
    assert "no connection within the setup timeout (still in the TLS handshake)" in text


def test_a_listener_silent_from_the_start(listeners: list[Listener]) -> None:
    listeners.append(Listener())
    error = failure(listeners[0].address)
    assert "silent while negotiating versions for 200 ms" in error
    assert "is the broker frozen or overloaded, or is this a Kafka listener" in error


@pytest.mark.parametrize("sent", [b"\0", struct.pack(">ii", 100, 1), struct.pack(">iih", 100, 1, 0)])
def test_an_answer_that_is_half_sent(listeners: list[Listener], sent: bytes) -> None:
    listeners.append(Listener(sent))
    assert "silent while negotiating versions for 200 ms" in failure(listeners[0].address)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_listener_that_hangs_up(listeners: list[Listener], protocol: str) -> None:
    """As a proxy does whose broker is away: retried until the call's own timeout."""
    listeners.append(Listener(hang_up=True))
    text = failure(listeners[0].address, protocol, attempts=3)
    assert any(word in text for word in ("closed the connection", "reset by peer", "broken pipe"))


def test_a_name_that_does_not_exist() -> None:
    assert "the name was not found" in failure("no-such-host.invalid:9092")


def test_a_name_that_cannot_be_one() -> None:
    assert "the name was not found: not a host name" in failure(f"{'x' * 70}.example:9092")


def test_a_look_up_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's look-up cannot be given a timeout: it has a thread of its own, one however often we reconnect."""
    release, look_up = threading.Event(), socket.getaddrinfo
    hanging: list[str] = []

    def hang(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.example" and not options["flags"]:
            hanging.append(host)
            release.wait(100)
            raise socket.gaierror(socket.EAI_AGAIN, "too late")
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        text = failure("slow.example:9092", attempts=2)
        assert "no connection within the setup timeout (still looking the name up)" in text
        assert hanging == ["slow.example"]
    finally:
        release.set()


def test_every_address_of_a_name_is_tried(listeners: list[Listener], monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-302: the first refuses, the second answers (if only to hang up), all in one attempt."""
    listeners.append(Listener(hang_up=True))
    port = int(listeners[0].address.rpartition(":")[2])
    look_up = socket.getaddrinfo

    def two(host: str, *args: Any, **options: Any) -> Any:
        if host != "two.example" or options["flags"]:
            return look_up(host, *args, **options)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.77", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    assert "refused" not in failure(f"two.example:{port}")
