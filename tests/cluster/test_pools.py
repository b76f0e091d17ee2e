"""Which connection a request takes: the least busy, and another one only while that helps."""

from __future__ import annotations

from mirror.cluster.connection.pools import ROOM_BYTES
from mirror.cluster.requests import Lane
from tests.cluster.pool_probes import Bench
from tests.cluster.probes import Probe
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster


def test_an_idle_connection_is_used_again() -> None:
    bench = Bench(size=8)
    for _ in range(20):
        slot = bench.send()
        bench.answer(slot.channel)
    assert bench.network.opened == [1]


def test_another_is_opened_only_while_every_one_has_something_unanswered() -> None:
    bench = Bench(size=3)
    assert [bench.send().channel for _ in range(4)] == [1, 2, 3, 1]
    assert bench.network.opened == [1, 2, 3]


def test_they_are_opened_one_after_the_other_and_nobody_waits_for_it() -> None:
    bench = Bench(size=8, quick=False)
    assert bench.pool.pick(1, bench.now) is None
    bench.network.usable.add(1)
    assert [bench.send().channel for _ in range(5)] == [1] * 5
    assert bench.network.opened == [1, 2]
    bench.network.usable.add(2)
    assert bench.send().channel == 2


def test_the_least_busy_is_preferred_by_requests_and_then_by_bytes() -> None:
    bench = Bench(size=2)
    first, second = bench.send(size=1_000), bench.send(size=10)
    assert bench.send(size=10) is second
    assert bench.send() is first
    assert bench.send() is second


def test_a_connection_that_broke_is_opened_again_but_only_one() -> None:
    bench = Bench(size=3, quick=False)
    bench.network.quick = True
    slots = [bench.send() for _ in range(3)]
    bench.network.quick = False
    for slot in slots:
        bench.lose(slot.channel)
    for _ in range(5):
        assert bench.pool.pick(1, bench.now) is None
    assert bench.network.opened == [1, 2, 3, 4]


def test_bytes_are_bounded_and_a_larger_request_still_goes() -> None:
    bench = Bench(size=1)
    slot = bench.send(size=3 * ROOM_BYTES)
    assert bench.pool.pick(1, bench.now) is None
    assert not bench.pool.accepts_more(slot, bench.now)
    bench.answer(slot.channel)
    assert slot.bytes == 0
    assert bench.send() is slot


def test_who_was_refused_hears_when_there_is_room() -> None:
    bench = Bench(size=1)
    slot = bench.send(size=ROOM_BYTES // 2)
    bench.put(slot, ROOM_BYTES // 4)
    bench.put(slot, ROOM_BYTES // 4)
    assert bench.pool.pick(1, bench.now) is None
    assert (bench.pool.refusals, bench.pool.freed) == (1, 0)
    bench.answer(slot.channel)
    assert bench.pool.freed == 1
    bench.answer(slot.channel)
    assert bench.pool.freed == 1, "no request was refused since"


def test_brokers_that_left_are_forgotten() -> None:
    bench = Bench(size=2)
    idle, busy = bench.send(node=7), bench.send(node=8)
    bench.answer(idle.channel)
    bench.pool.retain({1})
    assert bench.network.forgotten == [idle.channel]
    bench.answer(busy.channel)
    bench.pool.retain({1})
    assert bench.network.forgotten == [idle.channel, busy.channel]
    assert not bench.pool.brokers


def test_a_request_of_the_pool_goes_on_its_lane() -> None:
    client = FakeClient(FakeCluster())
    client.run_until(lambda: client.loop.coordinator_pool.pick(1, client.now) is not None)
    slot = client.loop.coordinator_pool.pick(1, client.now)
    assert slot is not None
    carried = client.loop.coordinator_pool.carry(slot, Probe().request, 10, client.now)
    assert (carried.lane, carried.channel) == (Lane.COORDINATOR, slot.channel)
