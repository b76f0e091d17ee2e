"""When a broker may be connected to again (KIP-144, KIP-601)."""

from __future__ import annotations

import itertools
import random

from mirror.cluster.admin_cluster import DescribeCluster
from mirror.cluster.connections import ConnectionStates
from tests.cluster.probes import settings
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster


def _within(value: int, around: int, ceiling: int) -> bool:
    return min(ceiling, int(around * 0.8)) <= value <= min(ceiling, round(around * 1.2))


def test_reconnect_and_connection_setup_timeouts_grow_and_reset() -> None:
    states = ConnectionStates(settings(), random.Random(3))
    for failures in range(10):
        assert _within(states.setup_timeout_ms(1), 10_000 * 2**failures, 30_000)
        states.failed(1, now=1_000)
        assert _within(states.wait_ms(1, 1_000), 50 * 2**failures, 1_000)
    assert states.wait_ms(1, 1_000) == 1_000
    assert states.wait_ms(1, 1_400) == 600
    assert states.wait_ms(1, 2_000) == 0
    assert states.wait_ms(1, 99_999) == 0
    states.succeeded(1)
    assert states.wait_ms(1, 1_000) == 0
    assert _within(states.setup_timeout_ms(1), 10_000, 30_000)
    states.failed(1, now=5_000)
    assert _within(states.wait_ms(1, 5_000), 50, 1_000)


def test_each_broker_has_its_own_count() -> None:
    states = ConnectionStates(settings(), random.Random(3))
    for _ in range(5):
        states.failed(1, now=0)
    assert states.wait_ms(2, 0) == 0
    assert _within(states.setup_timeout_ms(2), 10_000, 30_000)


def test_reconnect_attempts_at_a_dead_broker_keep_their_distance() -> None:
    """Seen from outside: 50, 100, 200, 400, 800, 1000 ms apart, give or take a fifth."""
    cluster = FakeCluster(1)
    cluster.kill(1)
    client = FakeClient(cluster)
    client.submit(None, DescribeCluster(*client.timer(30_000)))
    client.run_for(10_000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(client.network.attempts)]
    assert len(gaps) >= 8
    for number, gap in enumerate(gaps):
        assert gap >= min(1_000, 0.8 * 50 * 2**number) * 0.99, gaps
        assert gap <= 2 * 1_200, gaps


def test_the_setup_timeout_grows_while_nobody_answers() -> None:
    cluster = FakeCluster(1)
    cluster.brokers[1].connect_ms = None
    client = FakeClient(cluster)
    client.submit(None, DescribeCluster(*client.timer(300_000)))
    client.run_for(120_000)
    first, second, *rest = [later - earlier for earlier, later in itertools.pairwise(client.network.attempts)]
    assert 8_000 <= first <= 13_300
    assert 16_000 <= second <= 25_300
    assert all(24_000 <= gap <= 31_300 for gap in rest)
