"""When a broker may be connected to again (KIP-144, KIP-601)."""

from __future__ import annotations

import itertools
import random

from mirror.cluster.admin.cluster import DescribeCluster
from mirror.cluster.connection.connections import ConnectAttempt, ConnectionStates
from mirror.cluster.requests import Lane
from mirror.errors import ConnectionFailed
from tests.cluster.probes import settings
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster


def _within(value: int, around: int, ceiling: int) -> bool:
    limited = min(ceiling, around)
    return int(limited * 0.8) <= value <= min(ceiling, round(limited * 1.2))


def test_reconnect_and_connection_setup_timeouts_grow_and_reset() -> None:
    states = ConnectionStates(settings(), random.Random(3))
    for failures in range(10):
        assert _within(states.setup_timeout_ms(1), 10_000 * 2**failures, 30_000)
        states.failed(states.begin(1), now=1_000)
        assert _within(states.wait_ms(1, 1_000), 50 * 2**failures, 1_000)
    longest = states.wait_ms(1, 1_000)
    assert states.wait_ms(1, 1_400) == longest - 400
    assert states.wait_ms(1, 1_000 + longest) == 0
    assert states.wait_ms(1, 99_999) == 0
    states.answered(states.begin(1))
    assert states.wait_ms(1, 1_000) == 0
    assert _within(states.setup_timeout_ms(1), 10_000, 30_000)
    states.failed(states.begin(1), now=5_000)
    assert _within(states.wait_ms(1, 5_000), 50, 1_000)


def test_each_broker_has_its_own_count() -> None:
    states = ConnectionStates(settings(), random.Random(3))
    for _ in range(5):
        states.failed(states.begin(1), now=0)
    assert states.wait_ms(2, 0) == 0
    assert _within(states.setup_timeout_ms(2), 10_000, 30_000)


def _standing(states: ConnectionStates, count: int) -> list[ConnectAttempt]:
    attempts = [states.begin(1) for _ in range(count)]
    for attempt in attempts:
        states.answered(attempt)
    return attempts


def test_a_node_that_breaks_all_its_connections_failed_once() -> None:
    """Also where they find out one after the other, while it is tried again."""
    states = ConnectionStates(settings(), random.Random(3))
    standing = _standing(states, 8)
    for number, attempt in enumerate(standing[:4]):
        states.failed(attempt, now=1_000 + number)
    assert states.failures(1) == 1
    assert _within(states.wait_ms(1, 1_000), 50, 1_000)
    assert _within(states.setup_timeout_ms(1), 10_000, 30_000), "none was in vain: they had stood"
    again = states.begin(1)
    states.failed(standing[4], now=1_100)
    assert (states.failures(1), states.wait_ms(1, 1_100)) == (1, 0)
    states.failed(again, now=1_110)
    assert states.failures(1) == 2
    assert _within(states.wait_ms(1, 1_110), 100, 1_000)
    assert _within(states.setup_timeout_ms(1), 20_000, 30_000)
    for attempt in standing[5:]:
        states.failed(attempt, now=1_111)
    assert states.failures(1) == 2


def test_attempts_side_by_side_that_fail_are_one_failure() -> None:
    states = ConnectionStates(settings(), random.Random(3))
    for failures in range(1, 4):
        attempts = [states.begin(1) for _ in range(5)]
        for number, attempt in enumerate(attempts):
            states.failed(attempt, now=1_000 * failures + number)
        assert states.failures(1) == failures
        assert _within(states.setup_timeout_ms(1), 10_000 * 2**failures, 30_000)


def test_connections_that_stand_do_not_end_the_backoff_of_those_that_cannot_be_made() -> None:
    """A broker that takes no more of them (``max.connections.per.ip``) answers on the others."""
    states = ConnectionStates(settings(), random.Random(3))
    standing, now = _standing(states, 5), 0
    for failures in range(1, 6):
        states.failed(states.begin(1), now)
        for attempt in standing:
            states.answered(attempt)
        assert _within(states.wait_ms(1, now), 50 * 2 ** (failures - 1), 1_000)
        assert states.error(1) is None
        assert not states.is_avoided(1, now), "it answers"
        now += states.wait_ms(1, now)


def test_a_connection_that_worked_until_it_broke_is_a_first_failure() -> None:
    """No connection was made after the failure before, hours ago, and the node has answered since."""
    states = ConnectionStates(settings(), random.Random(3))
    first, second, third = _standing(states, 3)
    states.failed(first, now=0)
    states.answered(second)
    states.failed(second, now=3_600_000)
    assert states.failures(1) == 1
    assert _within(states.wait_ms(1, 3_600_000), 50, 1_000)
    states.failed(third, now=3_600_001)
    assert states.failures(1) == 1


def test_brokers_that_failed_take_turns() -> None:
    """Otherwise the first is tried for ever, if each retry waits longer than its backoff."""
    states = ConnectionStates(settings(), random.Random(3))
    tried = []
    for now in range(0, 60_000, 5_000):
        node = states.least_busy([1, 2], [-1], lambda _: None, now)
        states.failed(states.begin(node), now, ConnectionFailed("refused"))
        tried.append(node)
    assert {node: tried[6:].count(node) for node in (1, 2, -1)} == {1: 2, 2: 2, -1: 2}


def test_a_bounce_of_a_broker_with_eight_connections_is_one_failure() -> None:
    cluster = FakeCluster(1)
    client = FakeClient(cluster)
    client.call(DescribeCluster(*client.timer()))
    for channel in range(1, 9):
        client.run_until(lambda channel=channel: client.network.ready(1, Lane.PRODUCE, client.now, channel))  # type: ignore[misc]
    cluster.disconnect(1)
    client.run_until(lambda: not any(client.network.stands(1, Lane.PRODUCE, channel) for channel in range(1, 9)))
    broke_ms = client.now
    client.run_until(lambda: client.network.ready(1, Lane.PRODUCE, client.now, 1))
    assert _within(client.now - broke_ms, 50, 1_000)


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
        assert gap >= min(800, 40 * 2**number) * 0.99, gaps
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
