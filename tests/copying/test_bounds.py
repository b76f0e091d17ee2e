"""What a copy may take: bytes per second, and memory."""

from __future__ import annotations

import time

import pytest

from mirror.relay.policy import CopyPolicy
from mirror.relay.ranges import Outcome
from mirror.sandbox.cluster import Cluster
from tests.campaign.memory import Order, measure
from tests.campaign.plain import Pair

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

RATE = 4_000_000
SECONDS = 5
MEGABYTE = 1 << 20


def test_the_limit_of_bytes_per_second_is_kept_and_expires_nothing(target_cluster: Cluster) -> None:
    pair = Pair(target_cluster.bootstrap_servers)
    sources = pair.source(4)
    pair.fill(sources, RATE * SECONDS // 4)
    began = time.monotonic()
    results = pair.copy(
        pair.ranges(sources),
        CopyPolicy(max_bytes_per_second=RATE),
        request_timeout_ms=1_000,
        delivery_timeout_ms=1_100,
        linger_ms=0,
    )
    rate = sum(one.bytes for one in results) / (time.monotonic() - began)
    assert {one.outcome for one in results} == {Outcome.COMPLETE}, results
    assert [one.expiries for one in results] == [[]] * 4
    # What comes at once at the beginning, a second's worth, is paid for afterwards.
    assert 0.75 * RATE < rate <= 1.1 * RATE


def test_memory_is_bounded_whatever_the_backlog(target_cluster: Cluster) -> None:
    pair = Pair(target_cluster.bootstrap_servers)
    sources = pair.source(8, max_message_bytes=24 * MEGABYTE)
    pair.fill(sources[:6], 30 * MEGABYTE, batch_size=64_000)
    pair.fill(sources[6:], 24 * MEGABYTE, 4 * MEGABYTE, message_max_bytes=24 * MEGABYTE)
    order = Order(
        ranges=pair.ranges(sources, max_message_bytes=24 * MEGABYTE),
        source={"bootstrap.servers": pair.side.address, "fetch.max.bytes": 16 * MEGABYTE},
        target={"bootstrap.servers": pair.side.address, "buffer.memory": 24 * MEGABYTE},
        # Where the room that is left is smaller than the next batch, that one is taken all the same.
        largest=4 * MEGABYTE,
    )
    told = measure(order)
    assert told.outcomes == ["complete"] * 8
    assert told.peak - told.before <= told.allowed, told
