"""Connections that do not answer, or much later than lately: set apart, and no request is queued behind them."""

from __future__ import annotations

from mirror.cluster.connection.pools import ROOM_BYTES, SLOW_AFTER_MS
from mirror.cluster.loop import ClusterLoop
from mirror.errors import InvalidArgument
from mirror.wire.api import Api
from mirror.wire.messages.metadata import FindCoordinatorRequest
from tests.cluster.pool_probes import Bench
from tests.cluster.probes import Probe
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action


def test_a_slow_one_is_replaced_and_nothing_new_is_put_behind_it() -> None:
    bench = Bench(size=1)
    stuck = bench.send()
    bench.now += SLOW_AFTER_MS - 1
    assert bench.pool.accepts_more(stuck, bench.now)
    assert bench.pool.pick(1, bench.now) is stuck
    bench.now += 1
    assert not bench.pool.accepts_more(stuck, bench.now)
    other = bench.send()
    assert other is not stuck
    assert bench.send() is other


def test_a_deep_queue_that_moves_is_not_slow() -> None:
    bench = Bench(size=1)
    slot = bench.send()
    for _ in range(10):
        bench.put(slot)
    for _ in range(10):
        bench.now += SLOW_AFTER_MS // 2
        bench.answer(slot.channel)
        assert bench.pool.pick(1, bench.now) is slot


def test_what_is_put_behind_it_makes_it_no_younger() -> None:
    bench = Bench(size=1)
    stuck = bench.send()
    bench.now += SLOW_AFTER_MS - 1
    assert bench.send() is stuck
    bench.now += 1
    assert bench.send() is not stuck


def test_a_failure_of_another_request_makes_it_no_younger() -> None:
    bench = Bench(size=1)
    stuck = bench.send()
    failed = bench.put(stuck)
    bench.now += SLOW_AFTER_MS - 1
    failed.probe.request.on_failure(InvalidArgument("cannot be encoded"), bench.now)
    assert len(stuck.outstanding) == 1
    bench.now += 1
    assert bench.send() is not stuck


def test_nothing_is_put_behind_a_slow_one_that_cannot_be_replaced() -> None:
    bench = Bench(size=1)
    bench.send(slow=True)
    stuck = bench.send()
    bench.now += SLOW_AFTER_MS
    assert bench.pool.pick(1, bench.now) is None
    assert len(bench.network.open) == 2
    bench.answer(stuck.channel)
    assert bench.pool.freed == 1
    assert bench.send() is stuck


def test_an_idle_one_set_apart_makes_room_for_a_slow_one() -> None:
    bench = Bench(size=1)
    idle = bench.send(slow=True)
    bench.answer(idle.channel)
    bench.send()
    bench.now += SLOW_AFTER_MS
    bench.send()
    assert bench.network.forgotten == [idle.channel]


def test_slow_ones_are_never_more_than_twice_the_size_in_all() -> None:
    bench = Bench(size=2)
    for _ in range(10):
        while (slot := bench.pool.pick(1, bench.now)) is not None:
            bench.put(slot, ROOM_BYTES)
        bench.now += SLOW_AFTER_MS
    assert len(bench.network.open) == 4


def test_once_its_answers_have_come_it_counts_again_and_the_surplus_is_closed() -> None:
    bench = Bench(size=1)
    stuck = bench.send()
    bench.now += SLOW_AFTER_MS
    other = bench.send()
    bench.answer(stuck.channel)
    assert bench.pool.pick(1, bench.now) is other
    assert bench.network.forgotten == [stuck.channel]
    assert list(bench.network.open) == [other.channel]


def test_without_surplus_it_is_taken_back() -> None:
    bench = Bench(size=2)
    stuck = bench.send()
    bench.now += SLOW_AFTER_MS
    other = bench.send()
    bench.answer(stuck.channel)
    assert bench.send() is stuck
    assert bench.network.opened == [stuck.channel, other.channel]


def test_slow_partitions_keep_to_connections_of_their_own() -> None:
    bench = Bench(size=2)
    common = bench.send()
    apart = [bench.send(slow=True) for _ in range(4)]
    assert common not in apart
    assert len(set(apart)) == 2
    bench.now += 10 * SLOW_AFTER_MS
    assert bench.send(slow=True) in apart, "there it may wait behind one that is slow"
    assert bench.pool.accepts_more(apart[0], bench.now)
    assert bench.send() not in apart


def test_an_answer_that_its_caller_does_not_wait_for_any_more_is_still_owed() -> None:
    bench = Bench(size=1)
    slot = bench.send()
    bench.time_out(slot.channel)
    assert len(slot.outstanding) == 1
    bench.now += SLOW_AFTER_MS
    assert bench.send() is not slot
    bench.answer(slot.channel)
    assert not slot.outstanding
    assert slot.bytes == 0


def test_a_throttled_connection_is_neither_slow_nor_evaded() -> None:
    """KIP-219: it waits for our own sake."""
    bench = Bench(size=4)
    slot = bench.send()
    bench.put(slot)
    bench.network.throttling.add(1)
    bench.network.usable.discard(slot.channel)
    bench.answer(slot.channel, throttle_ms=2_000)
    bench.now += 1_999
    assert bench.pool.pick(1, bench.now) is None
    assert bench.network.opened == [slot.channel]
    bench.now += 1
    bench.network.throttling.clear()
    bench.network.usable.add(slot.channel)
    assert bench.pool.accepts_more(slot, bench.now)


def test_while_a_broker_throttles_us_what_it_owes_is_not_slow() -> None:
    bench = Bench(size=1)
    slot = bench.send()
    bench.network.throttling.add(1)
    bench.now += 2 * SLOW_AFTER_MS
    assert bench.pool.accepts_more(slot, bench.now)
    assert bench.pool.pick(1, bench.now) is slot


def test_who_waits_for_room_behind_a_slow_one_is_reported_when_that_may_be_replaced() -> None:
    bench = Bench(size=1)
    stuck = bench.send(size=ROOM_BYTES)
    bench.now += 100
    assert bench.pool.pick(1, bench.now) is None
    assert bench.pool.update_slow(bench.now) == SLOW_AFTER_MS - 100
    bench.now += SLOW_AFTER_MS - 100
    bench.pool.update_slow(bench.now)
    assert bench.pool.freed == 1
    assert bench.send() is not stuck


def _send(loop: ClusterLoop, probe: Probe, now: int) -> None:
    slot = loop.produce_pool.pick(1, now)
    assert slot is not None
    loop.network.send(loop.produce_pool.carry(slot, probe.request, 100, now), now)


def _lately(bench: Bench, took_ms: int) -> None:
    for _ in range(30):
        slot = bench.send()
        bench.now += took_ms
        bench.answer(slot.channel)


def test_who_answers_much_later_than_lately_is_slow_before_the_longest_wait_is_over() -> None:
    """Seen on real brokers: in half a second a stopped follower had others stand behind it for whole ack time-outs."""
    bench = Bench(size=1)
    _lately(bench, 2)
    stuck = bench.send()
    bench.now += 49
    assert bench.send() is stuck, "for less than that no connection is slow"
    bench.now += 1
    assert bench.send() is not stuck


def test_a_broker_far_away_is_not_slow_for_that() -> None:
    bench = Bench(size=1)
    _lately(bench, 40)
    far = bench.send()
    bench.now += 390
    assert bench.send() is far
    bench.now += 10
    assert bench.send() is not far


def test_what_was_lost_with_its_connection_says_nothing_of_how_long_answers_take() -> None:
    """Sixteen that were lost counted as answers in no time: a broker 40 ms away was then slow after 52."""
    bench = Bench(size=1)
    _lately(bench, 40)
    lost = bench.send()
    for _ in range(15):
        bench.put(lost)
    bench.lose(lost.channel)
    far = bench.send()
    bench.now += 399
    assert bench.send() is far
    bench.now += 1
    assert bench.send() is not far


def test_nobody_is_put_behind_an_overdue_answer_while_a_connection_is_on_its_way() -> None:
    bench = Bench(size=2)
    bench.network.quick = False
    assert bench.pool.pick(1, bench.now) is None
    bench.network.usable.add(1)
    for _ in range(10):
        bench.send()
        bench.now += 2
        bench.answer(1)
    stuck = bench.send()
    bench.now += 10
    assert bench.send() is stuck, "for less than that no request waits"
    bench.now += 1
    assert bench.pool.pick(1, bench.now) is None
    bench.network.usable.add(2)
    assert bench.send() is not stuck


def test_slow_replica_delays_only_its_own_connection() -> None:
    """A request that waits for its replicas for 20 s; those that come after it are answered at once."""
    cluster = FakeCluster()
    cluster.control.on(Api.FIND_COORDINATOR, Action(delay_ms=20_000))
    client = FakeClient(cluster)
    pool = client.loop.produce_pool

    def idle() -> bool:
        slot = pool.pick(1, client.now)
        return slot is not None and not slot.outstanding

    client.run_until(idle)
    stalled = Probe(api=Api.FIND_COORDINATOR, body=FindCoordinatorRequest(1, ("t",)))
    began = client.now
    _send(client.loop, stalled, began)
    client.run_until(idle)
    for _ in range(100):
        probe = Probe()
        sent = client.now
        _send(client.loop, probe, sent)
        client.run_until(lambda probe=probe: probe.completions)  # type: ignore[misc]
        assert client.now - sent < 10
        client.run_for(100)
    assert not stalled.completions
    assert cluster.calls(Api.METADATA)[-1].connection != cluster.calls(Api.FIND_COORDINATOR)[0].connection
    client.run_until(lambda: stalled.completions)
    assert len(stalled.responses) == 1
    assert client.now - began >= 20_000
