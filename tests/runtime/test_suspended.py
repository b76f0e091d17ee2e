"""A process that is suspended between the decision to send a request and its write: it is not written any more."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError
from mirror.runtime.clock import SystemClock
from mirror.runtime.network.selector_network import SelectorNetwork
from mirror.wire.api import Api
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse
from tests.cluster.probes import Probe
from tests.fakes.server_codec import encode_response
from tests.runtime.listener import Listener

TIMEOUT_MS = 5_000


class SuspendedClock(SystemClock):
    """A clock that goes on while the process does not."""

    def __init__(self) -> None:
        self.suspended_ms = 0

    def now(self) -> int:
        return super().now() + self.suspended_ms


@pytest.fixture
def listener() -> Iterator[Listener]:
    """It answers ApiVersions only."""
    spoken = tuple(ApiVersion(api.value.key, api.value.low, api.value.high) for api in Api)
    listener = Listener(encode_response(Api.API_VERSIONS, 3, 1, ApiVersionsResponse(0, spoken)))
    yield listener
    listener.close()


def received(listener: Listener) -> bytes:
    (client,) = listener.clients
    client.setblocking(False)
    try:
        return client.recv(1 << 16)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("suspended_ms", [0, TIMEOUT_MS + 1])
def test_request_is_not_written_after_its_timeout(listener: Listener, suspended_ms: int) -> None:
    settings = ClusterSettings.parse({"bootstrap.servers": listener.address, "request.timeout.ms": TIMEOUT_MS})
    clock = SuspendedClock()
    network = SelectorNetwork(settings, clock, random.Random(1))
    try:
        probe = Probe(timeout_ms=TIMEOUT_MS)
        probe.request.node = -1
        while not network.ready(-1, probe.request.lane, clock.now()):
            network.poll(1_000)
        received(listener)  # ApiVersions
        network.send(probe.request, clock.now())
        clock.suspended_ms = suspended_ms
        network.poll(0)
        if suspended_ms:
            (error,) = probe.failures
            assert isinstance(error, KafkaError)
            assert received(listener) == b""
        else:
            assert probe.responses == []
            assert probe.failures == []
            assert received(listener) != b""
    finally:
        network.close()
