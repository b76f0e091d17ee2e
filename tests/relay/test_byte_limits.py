"""The send window, the rate limiter and the source budget, step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.byte_limits import InFlightBatch, RateLimiter, SendWindow, SourceBudget
from mirror.timing import FOREVER_MS

KB = 1024


def _window(tolerable_ms: int = 2_500, max_bytes: int = 1_000 * KB) -> SendWindow:
    return SendWindow(max_bytes, tolerable_ms, 0)


def _full() -> tuple[SendWindow, list[InFlightBatch]]:
    """Return a window that "a" has filled with the returned batches, and in which "b" is queued."""
    window, batches = _window(), []
    while window.may_send("a", 0, idle=False):
        batches.append(window.on_sent(64 * KB, 0))
    window.dequeue("a")
    assert not window.may_send("b", 0, idle=True)
    return window, batches


def test_queued_sender_is_called_when_there_is_room() -> None:
    window, batches = _full()
    assert window.next_sender(0) is None
    window.on_acknowledged(batches[0], 0, 10)
    assert not window.may_send("a", 10, idle=False), "queued senders are first"
    assert window.next_sender(10) == "b"
    assert window.may_send("b", 10, idle=True)
    window.on_sent(64 * KB, 10)


def test_unused_turn_expires() -> None:
    window, batches = _full()
    for batch in batches:
        window.on_acknowledged(batch, 0, 10)
    assert window.next_sender(10) == "b"
    window.enqueue("c", idle=True)
    assert not window.may_send("b", 11, idle=True)
    assert window.waiting_count == 2


def test_window_grows_with_acknowledgements_only_while_full() -> None:
    window = _window()
    batch = window.on_sent(64 * KB, 0)
    before = window.limit
    window.on_acknowledged(batch, 0, 10)
    assert window.limit == before
    window, batches = _full()
    for batch in batches:
        window.on_acknowledged(batch, 0, 10)
    assert before < window.limit <= 2 * before


def test_late_acknowledgement_halves_the_window_once_a_round_trip() -> None:
    window, batches = _full()
    before = window.limit
    for batch in batches[:2]:
        window.on_acknowledged(batch, 0, 3_000)
    assert window.limit == before / 2


def test_throttling_allows_one_batch_at_a_time_after_the_throttle_time() -> None:
    window, batches = _full()
    for batch in batches:
        window.on_acknowledged(batch, 500, 10)
    assert window.next_sender(509) is None
    assert window.due_ms(10) == 510
    assert window.next_sender(510) == "b"
    assert window.may_send("b", 510, idle=True)
    window.on_sent(64 * KB, 510)
    assert not window.may_send("c", 510, idle=True)


def test_overtaken_batch_does_not_count_and_its_acknowledgement_changes_nothing() -> None:
    window = _window()
    stuck = window.on_sent(64 * KB, 0)
    batch = window.on_sent(1 * KB, 1_000)
    window.on_acknowledged(batch, 0, 1_001)
    assert stuck.overtaken
    assert window.in_flight_bytes == 0
    before = window.limit
    window.on_acknowledged(stuck, 0, 60_000)
    assert (window.limit, window.in_flight_bytes) == (before, 0)


def test_stalled_full_window_lets_idle_senders_try_one_at_a_time() -> None:
    window, _ = _full()
    window.enqueue("c", idle=False)
    window.enqueue("d", idle=True)
    assert window.next_sender(999) is None
    assert window.next_sender(1_000) == "b"
    assert window.next_sender(1_000) is None
    assert window.next_sender(2_000) == "d"


def test_empty_queue_needs_no_wakeup() -> None:
    window, _ = _full()
    assert window.due_ms(0) <= 1_000
    window.dequeue("b")
    assert window.due_ms(0) == FOREVER_MS


def test_batch_larger_than_the_window_is_sent_alone() -> None:
    window = _window(max_bytes=10)
    assert window.may_send("a", 0, idle=True)
    window.on_sent(1_000, 0)
    assert not window.may_send("b", 0, idle=True)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100 * KB), st.integers(0, 2_000), st.booleans())))
def test_in_flight_bytes_exclude_overtaken_batches(steps: list[tuple[str, int, int, bool]]) -> None:
    window, now = _window(), 0
    out: list[InFlightBatch] = []
    for sender, size, passed, acknowledged in steps:
        now += passed
        if acknowledged and out:
            window.on_acknowledged(out.pop(), 0, now)
        elif window.may_send(sender, now, idle=True):
            out.append(window.on_sent(size, now))
        assert window.in_flight_bytes == sum(batch.size for batch in out if not batch.overtaken)
    for batch in out:
        window.release(batch)
    assert window.in_flight_bytes == 0


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_rate_limit_holds_over_time(rate: int, sizes: list[int]) -> None:
    limiter, now = RateLimiter(rate, 0), 0
    for size in sizes:
        now += limiter.wait_ms(now)
        limiter.on_received(size, now)
    assert sum(sizes[:-1]) * 1000 / rate <= now + len(sizes) + 1


def test_zero_rate_never_waits() -> None:
    limiter = RateLimiter(0, 0)
    limiter.on_received(10**12, 0)
    assert limiter.wait_ms(0) == 0


def test_partition_that_holds_nothing_finds_room_beside_stuck_ones() -> None:
    budget, held = SourceBudget(1_000), [0] * 4
    for _ in range(100):
        for partition in range(3):
            if budget.may_fetch(held[partition], 10):
                budget.add(10)
                held[partition] += 10
    assert max(held) - min(held[:3]) <= 10
    assert budget.free >= 200
    assert budget.may_fetch(0, 10)
    budget.release(held[0])
    assert budget.free == 1_000 - sum(held[1:])


@given(st.lists(st.integers(0, 400), max_size=5), st.integers(1, 300))
def test_a_budget_that_may_refuse_nobody_refuses_nobody(held: list[int], fetch_bytes: int) -> None:
    budget = SourceBudget(1_000)
    for size in held:
        budget.add(size)
    if not budget.may_refuse(fetch_bytes):
        assert all(budget.may_fetch(size, fetch_bytes) for size in [0, *held])
    if not held:
        assert budget.may_refuse(fetch_bytes) == (2 * fetch_bytes > 1_000)


def test_exhausted_budget_refuses_every_partition() -> None:
    budget = SourceBudget(100)
    budget.add(100)
    assert not budget.may_fetch(0, 1)


def test_refused_partition_is_retried_once_room_is_released() -> None:
    budget = SourceBudget(100)
    budget.add(90)
    budget.release(10)
    assert not budget.retry_refused, "no partition was refused"
    assert not budget.may_fetch(10, 50)
    assert budget.any_refused
    assert not budget.retry_refused
    budget.release(30)
    assert budget.retry_refused
    budget.clear_refused()
    assert (budget.any_refused, budget.retry_refused) == (False, False)


def test_fetch_larger_than_the_budget_blocks_until_it_is_released() -> None:
    budget = SourceBudget(24)
    budget.add(100)
    assert budget.free <= 0
    budget.release(77)
    assert budget.free == 1
    budget.release(23)
    assert budget.free == 24
