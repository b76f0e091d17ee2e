"""Window, meter and holdings, step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.flow_control import InFlightBatch, RateLimiter, SendWindow, SourceBudget
from mirror.timing import FOREVER_MS

KB = 1024


def _window(tolerable_ms: int = 2_500, most: int = 1_000 * KB) -> SendWindow:
    return SendWindow(most, tolerable_ms, 0)


def _full() -> SendWindow:
    """With "a" having filled it, and "b" in line."""
    window = _window()
    while window.may_send("a", 0, idle=False):
        window.on_sent(64 * KB, 0)
    window.dequeue("a")
    assert not window.may_send("b", 0, idle=True)
    return window


def test_who_finds_no_room_is_called_when_there_is_some() -> None:
    window = _full()
    assert window.next_sender(0) is None
    window.on_acknowledged(next(iter(window._in_flight)), 0, 10)
    assert not window.may_send("a", 10, idle=False), "not before those who wait"
    assert window.next_sender(10) == "b"
    assert window.may_send("b", 10, idle=True)
    window.on_sent(64 * KB, 10)


def test_a_turn_that_was_not_taken_is_over() -> None:
    window = _full()
    for ticket in list(window._in_flight):
        window.on_acknowledged(ticket, 0, 10)
    assert window.next_sender(10) == "b"
    window.enqueue("c", idle=True)
    assert not window.may_send("b", 11, idle=True)
    assert window.waiting_count == 2


def test_it_grows_with_answers_only_while_it_is_full() -> None:
    window = _window()
    ticket = window.on_sent(64 * KB, 0)
    before = window._limit
    window.on_acknowledged(ticket, 0, 10)
    assert window._limit == before
    window = _full()
    for ticket in list(window._in_flight):
        window.on_acknowledged(ticket, 0, 10)
    assert before < window._limit <= 2 * before


def test_a_late_answer_halves_it_once_a_round() -> None:
    window = _full()
    before = window._limit
    for ticket in list(window._in_flight)[:2]:
        window.on_acknowledged(ticket, 0, 3_000)
    assert window._limit == before / 2


def test_a_throttled_answer_leaves_one_at_a_time_and_none_before_the_broker_listens() -> None:
    window = _full()
    for ticket in list(window._in_flight):
        window.on_acknowledged(ticket, 500, 10)
    assert window.next_sender(509) is None
    assert window.due_ms(10) == 510
    assert window.next_sender(510) == "b"
    assert window.may_send("b", 510, idle=True)
    window.on_sent(64 * KB, 510)
    assert not window.may_send("c", 510, idle=True)


def test_what_was_overtaken_is_set_aside_and_its_late_answer_changes_nothing() -> None:
    window = _window()
    sick = window.on_sent(64 * KB, 0)
    ticket = window.on_sent(1 * KB, 1_000)
    window.on_acknowledged(ticket, 0, 1_001)
    assert sick.overtaken
    assert window.in_flight_bytes == 0
    before = window._limit
    window.on_acknowledged(sick, 0, 60_000)
    assert (window._limit, window.in_flight_bytes) == (before, 0)


def test_where_nothing_moves_those_without_anything_under_way_try_one_at_a_time() -> None:
    window = _full()
    window.enqueue("c", idle=False)
    window.enqueue("d", idle=True)
    assert window.next_sender(999) is None
    assert window.next_sender(1_000) == "b"
    assert window.next_sender(1_000) is None
    assert window.next_sender(2_000) == "d"


def test_nobody_in_line_is_nobody_to_wake_up_for() -> None:
    window = _full()
    assert window.due_ms(0) <= 1_000
    window.dequeue("b")
    assert window.due_ms(0) == FOREVER_MS


def test_a_batch_larger_than_the_window_goes_alone() -> None:
    window = _window(most=10)
    assert window.may_send("a", 0, idle=True)
    window.on_sent(1_000, 0)
    assert not window.may_send("b", 0, idle=True)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100 * KB), st.integers(0, 2_000), st.booleans())))
def test_what_counts_is_what_is_under_way(steps: list[tuple[str, int, int, bool]]) -> None:
    window, now = _window(), 0
    out: list[InFlightBatch] = []
    for who, size, passed, answered in steps:
        now += passed
        if answered and out:
            window.on_acknowledged(out.pop(), 0, now)
        elif window.may_send(who, now, idle=True):
            out.append(window.on_sent(size, now))
        assert window.in_flight_bytes == sum(ticket.size for ticket in out if not ticket.overtaken)
    for ticket in out:
        window.release(ticket)
    assert window.in_flight_bytes == 0


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_a_limited_rate_is_kept_over_time(rate: int, sizes: list[int]) -> None:
    meter, now = RateLimiter(rate, 0), 0
    for size in sizes:
        now += meter.wait_ms(now)
        meter.on_received(size, now)
    assert sum(sizes[:-1]) * 1000 / rate <= now + len(sizes) + 1


def test_no_limit_never_waits() -> None:
    meter = RateLimiter(0, 0)
    meter.on_received(10**12, 0)
    assert meter.wait_ms(0) == 0


def test_a_partition_with_nothing_finds_room_beside_stuck_ones() -> None:
    holdings, held = SourceBudget(1_000), [0] * 4
    for _ in range(100):
        for partition in range(3):
            if holdings.may_fetch(held[partition], 10):
                holdings.add(10)
                held[partition] += 10
    assert max(held) - min(held[:3]) <= 10
    assert holdings.free >= 200
    assert holdings.may_fetch(0, 10)
    holdings.release(held[0])
    assert holdings.free == 1_000 - sum(held[1:])


def test_without_any_room_nobody_takes() -> None:
    holdings = SourceBudget(100)
    holdings.add(100)
    assert not holdings.may_fetch(0, 1)


def test_who_was_refused_room_is_asked_again_once_there_is_more() -> None:
    holdings = SourceBudget(100)
    holdings.add(90)
    holdings.release(10)
    assert not holdings.retry_refused, "nobody was refused"
    assert not holdings.may_fetch(10, 50)
    assert holdings.any_refused
    assert not holdings.retry_refused
    holdings.release(30)
    assert holdings.retry_refused
    holdings.clear_refused()
    assert (holdings.any_refused, holdings.retry_refused) == (False, False)


def test_one_larger_than_all_there_is_goes_alone() -> None:
    holdings = SourceBudget(24)
    holdings.add(100)
    assert holdings.free <= 0
    holdings.release(77)
    assert holdings.free == 1
    holdings.release(23)
    assert holdings.free == 24
