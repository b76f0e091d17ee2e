"""What a throttled connection reports to its observers."""

from __future__ import annotations

import random
import time

from mirror.cluster.settings import ClusterSettings
from mirror.runtime.clock import SystemClock
from mirror.runtime.network.selector_network import SelectorNetwork
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataResponse
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse
from tests.cluster.probes import Probe
from tests.fakes.server_codec import encode_response
from tests.runtime.listener import Listener


def test_a_nodes_throttle_times_are_added_up_and_obeyed() -> None:
    spoken = tuple(ApiVersion(api.value.key, api.value.low, api.value.high) for api in Api)
    # The answers to the first three requests of a connection, which count from 1.
    greeting = encode_response(Api.API_VERSIONS, 3, 1, ApiVersionsResponse(0, spoken))
    version = Api.METADATA.value.high
    for correlation_id, throttle_ms in ((2, 150), (3, 60_000)):
        answer = MetadataResponse((), "cluster", 1, throttle_time=throttle_ms)
        greeting += encode_response(Api.METADATA, version, correlation_id, answer)
    listener, clock = Listener(greeting), SystemClock()
    network = SelectorNetwork(ClusterSettings.parse({"bootstrap.servers": listener.address}), clock, random.Random(1))
    try:
        first, second = Probe(), Probe()
        first.request.node = second.request.node = -1
        network.send(first.request, clock.now())
        network.send(second.request, clock.now())
        until = time.monotonic() + 60
        while not second.completions:
            network.poll(1_000)
            assert time.monotonic() < until
        assert len(first.responses) == len(second.responses) == 1
        assert network.throttled_ms == {-1: 60_150}
        third = Probe(timeout_ms=20)
        third.request.node = -1
        network.send(third.request, clock.now())
        while not third.completions:
            network.poll(1_000)
            assert time.monotonic() < until
        assert "the broker throttles this client" in str(third.failures[0])
    finally:
        network.close()
        listener.close()
