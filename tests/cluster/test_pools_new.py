"""Partitions of which nothing is known yet: their first requests stand before no connection that answers."""

from __future__ import annotations

from mirror.cluster.connection.pools import SLOW_AFTER_MS
from mirror.errors import ConnectionFailed
from tests.cluster.pool_probes import Bench


def test_nobody_is_put_behind_a_new_one_until_it_is_answered() -> None:
    bench = Bench(size=2)
    alone = bench.send(sole=True)
    other = bench.send()
    assert [bench.send() for _ in range(3)] == [other] * 3
    bench.answer(alone.channel)
    assert bench.send() is alone, "and it is everybody's again"


def test_new_ones_have_half_of_the_connections_for_themselves_and_share_these() -> None:
    bench = Bench(size=4)
    first, second = bench.send(sole=True), bench.send(sole=True)
    assert first is not second
    assert [bench.send(sole=True) for _ in range(2)] == [first, second]
    others = {bench.send().channel for _ in range(6)}
    assert len(others) == 2
    assert not others & {first.channel, second.channel}


def test_new_ones_go_apart_where_all_are_busy_and_share_with_the_others_at_last() -> None:
    bench = Bench(size=2)
    busy = [bench.send(), bench.send()]
    apart = bench.send(sole=True)
    assert apart not in busy
    assert bench.send(sole=True) in busy, "half of those apart are for the slow ones"
    assert bench.network.opened == [1, 2, 3]
    assert bench.send(slow=True) is not apart


def test_one_apart_that_the_broker_does_not_take_is_not_waited_for() -> None:
    bench = Bench(size=2)
    busy = [bench.send(), bench.send()]
    bench.network.quick = False
    assert bench.pool.pick(1, bench.now, dedicated=True) is None, "on its way"
    bench.network.troubles[1] = ConnectionFailed("no more of you")
    assert bench.send(sole=True) in busy


def test_one_that_is_new_and_slow_is_set_apart_like_any_other() -> None:
    bench = Bench(size=1)
    slow = bench.send(sole=True)
    assert bench.send(sole=True) is slow
    bench.now += SLOW_AFTER_MS
    assert bench.send(sole=True) is not slow


def test_many_new_ones_that_do_not_answer_leave_the_others_room() -> None:
    """Forty partitions begin on a leader whose replicas are gone: who does answer always finds a connection."""
    bench = Bench(size=8)
    well = bench.send()
    bench.now += 5
    bench.answer(well.channel)
    waiting, begun = 40, bench.now
    for ms in range(0, 5_000, 10):
        bench.now = begun + ms
        assert bench.pool.pick(1, bench.now) is not None
        while waiting and (slot := bench.pool.pick(1, bench.now, dedicated=True)) is not None:
            bench.put(slot)
            waiting -= 1
    assert waiting == 0


def test_slow_ones_stand_behind_new_ones_where_these_have_every_connection_apart() -> None:
    """A slow partition had none, for as long as new ones that became slow were not answered."""
    bench = Bench(size=2)
    stuck = []
    for _ in range(2):
        stuck.append(bench.send(sole=True))
        bench.now += SLOW_AFTER_MS
    bench.send()
    assert bench.send(slow=True) in stuck
    assert bench.send(slow=True, sole=True) in stuck
    assert bench.send() not in stuck, "who does answer is spared"


def test_slow_ones_do_not_go_behind_new_ones_while_a_connection_of_their_own_may_come() -> None:
    bench = Bench(size=2)
    stuck = bench.send(sole=True)
    bench.now += SLOW_AFTER_MS
    bench.network.quick = False
    assert bench.pool.pick(1, bench.now, slow=True) is None, "on its way"
    bench.network.troubles[1] = ConnectionFailed("no more of you")
    assert bench.send(slow=True) is stuck
    bench.network.usable.update(bench.network.open)
    other = bench.send(slow=True)
    assert other is not stuck
    assert [bench.send(slow=True) for _ in range(3)] == [other] * 3, "though it has more to do by now"
