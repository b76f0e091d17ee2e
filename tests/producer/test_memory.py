"""Who gets how much of the buffer, and in what order (KIP-91: one sick partition must not take it all)."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.producer.batch.memory import BufferPool, Grant


def _tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def _fill(pool: BufferPool, tp: TopicPartition, count: int) -> int:
    """Ask until one has to wait, and withdraw that; the bytes that ``tp`` holds then."""
    while (grant := pool.ask(tp, count)).granted:
        pass
    pool.cancel(grant)
    return pool.held(tp)


def test_what_is_free_is_granted_at_once() -> None:
    pool = BufferPool(100)
    assert pool.ask(_tp(0), 60).granted, "a partition that holds nothing may take whatever is free"
    assert pool.ask(_tp(1), 40).granted
    assert (pool.free, pool.held(_tp(0)), pool.held(_tp(1)), pool.waiting) == (0, 60, 40, False)


@pytest.mark.parametrize("stuck", [1, 2, 3, 7])
def test_partitions_that_get_stuck_together_hold_an_equal_share_each(stuck: int) -> None:
    pool = BufferPool(840)
    for _ in range(840):
        for number in range(stuck):
            if not (grant := pool.ask(_tp(number), 1)).granted:
                pool.cancel(grant)
    assert {pool.held(_tp(number)) for number in range(stuck)} == {840 // (stuck + 1)}
    assert pool.ask(_tp(100), 840 // (stuck + 1)).granted, "there is room for one that comes later"


def test_partitions_that_get_stuck_one_after_another_leave_half_of_what_was_left() -> None:
    pool = BufferPool(1_024)
    assert [_fill(pool, _tp(number), 1) for number in range(5)] == [512, 256, 128, 64, 32]
    assert pool.ask(_tp(100), 32).granted


def test_a_lone_partition_may_hold_half() -> None:
    pool = BufferPool(1_000)
    assert _fill(pool, _tp(0), 10) == 500


def test_waiters_are_served_in_the_order_of_asking() -> None:
    pool = BufferPool(100)
    pool.ask(_tp(0), 100)
    waiting = [pool.ask(_tp(number), 20) for number in (3, 1, 2)]
    assert [grant.granted for grant in waiting] == [False] * 3
    assert pool.give_back(_tp(0), 40) == waiting[:2]
    assert pool.give_back(_tp(0), 60) == waiting[2:]


def test_one_partitions_waiters_are_served_in_order_whatever_their_size() -> None:
    pool = BufferPool(100)
    pool.ask(_tp(0), 100)
    large, small = pool.ask(_tp(1), 30), pool.ask(_tp(1), 1)
    assert pool.give_back(_tp(0), 20) == []
    assert pool.give_back(_tp(0), 10) == [large], "it holds 30 and nothing is left free"
    assert pool.give_back(_tp(0), 70) == [small]


def test_a_partition_over_its_share_blocks_nobody() -> None:
    pool = BufferPool(100)
    sick = pool.ask(_tp(0), 50)
    greedy = pool.ask(_tp(0), 1)
    assert sick.granted
    assert not greedy.granted, "51 held would leave 49"
    assert pool.waiting
    for number in range(1, 4):
        assert pool.ask(_tp(number), 10).granted, "it asked later, and is within its share"
    assert pool.give_back(_tp(0), 50) == [greedy]


def test_small_requests_do_not_starve_a_big_one() -> None:
    """A big request waits for room among greedy partitions: it is served before anybody who asked later."""
    pool = BufferPool(100)
    held = [tp for number in range(20) for tp in [_tp(number)] * _fill(pool, _tp(number), 1)]
    big = pool.ask(_tp(100), 90)
    later = [pool.ask(_tp(number), 1) for number in range(200, 220)]
    assert not big.granted
    for tp in held:
        served = pool.give_back(tp, 1)
        if served:
            assert served[0] is big, "those who asked later were served first"
            break
        pool.ask(tp, 1)
    assert big.granted
    assert not later[-1].granted
    pool.give_back(_tp(100), 90)
    assert later[-1].granted


def test_a_partition_that_waits_over_its_share_is_served_once_it_holds_nothing() -> None:
    """Others keep the free memory below what it would need to grow; its own deliveries bring it to the front."""
    pool = BufferPool(100)
    assert pool.ask(_tp(0), 40).granted
    big = pool.ask(_tp(0), 40)
    others = [pool.ask(_tp(1), 5), pool.ask(_tp(2), 25)]
    assert not big.granted
    assert all(grant.granted for grant in others)
    later = pool.ask(_tp(3), 60)
    assert not later.granted
    assert pool.give_back(_tp(0), 40) == [big], "it asked before the one that has been waiting for room"
    assert not later.granted


def test_withdrawing_the_one_that_waits_for_room_lets_the_others_pass() -> None:
    pool = BufferPool(100)
    pool.ask(_tp(0), 50)
    big = pool.ask(_tp(1), 60)
    small = [pool.ask(_tp(number), 10) for number in (2, 3)]
    assert not any(grant.granted for grant in small)
    assert pool.cancel(big) == small
    assert not pool.waiting


def test_a_grant_is_withdrawn_once() -> None:
    pool = BufferPool(100)
    granted, waiting = pool.ask(_tp(0), 100), pool.ask(_tp(1), 10)
    for _ in range(2):
        assert pool.cancel(waiting) == []
        assert not pool.waiting
    for _ in range(2):
        assert pool.cancel(granted) == []
        assert pool.free == 100


@pytest.mark.parametrize("count", [0, -1, 101])
def test_what_can_never_be_granted_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"t-0: {count} bytes"):
        BufferPool(100).ask(_tp(0), count)


def test_memory_given_back_twice_is_noticed() -> None:
    pool = BufferPool(100)
    pool.ask(_tp(0), 10)
    pool.give_back(_tp(0), 10)
    with pytest.raises(ValueError, match="t-0: 10 bytes given back, and only 0 held"):
        pool.give_back(_tp(0), 10)
    assert pool.free == 100


def test_parts_may_be_given_back() -> None:
    pool = BufferPool(100)
    pool.ask(_tp(0), 30)
    pool.give_back(_tp(0), 10)
    assert (pool.held(_tp(0)), pool.free) == (20, 80)


def test_who_holds_most_is_known() -> None:
    pool = BufferPool(100)
    assert pool.largest_holder() is None
    for number, count in enumerate((10, 30, 20)):
        pool.ask(_tp(number), count)
    assert pool.largest_holder() == (_tp(1), 30)


def test_thousands_wait_in_line() -> None:
    """The line is renumbered as it goes on; the order stays."""
    pool = BufferPool(2**63 - 1)
    pool.ask(_tp(0), pool.size)
    line: list[Grant] = [pool.ask(_tp(number), 7) for number in range(1, 3_001)]
    for grant in line[::3]:
        pool.cancel(grant)
    left = [grant for index, grant in enumerate(line) if index % 3]
    left += [pool.ask(_tp(number), 7) for number in range(3_001, 6_001)]
    served: list[Grant] = []
    while pool.waiting:
        served += pool.give_back(_tp(0), 700)
    assert served == left
