"""Deadlines: absolute, saturating, never negative."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.timing import FOREVER_MS, Timer, deadline, remaining
from tests.fakes.clock import FakeClock

_MS = st.integers(0, FOREVER_MS)


@given(_MS, _MS)
def test_deadline_saturates(now: int, timeout: int) -> None:
    at = deadline(now, timeout)
    assert now <= at <= FOREVER_MS
    assert at == min(now + timeout, FOREVER_MS)


@given(_MS, _MS)
def test_remaining_time_is_never_negative(at: int, now: int) -> None:
    assert remaining(at, now) == max(at - now, 0)


def test_timer_counts_down_to_zero() -> None:
    clock = FakeClock()
    timer = Timer(clock, 100)
    assert (timer.remaining_ms(), timer.expired()) == (100, False)
    clock.advance(99)
    assert (timer.remaining_ms(), timer.expired()) == (1, False)
    clock.advance(1)
    assert (timer.remaining_ms(), timer.expired()) == (0, True)
    clock.advance(1_000)
    assert timer.remaining_ms() == 0


def test_timer_with_zero_timeout_has_expired() -> None:
    assert Timer(FakeClock(), 0).expired()


def test_longest_timeout_never_expires() -> None:
    clock = FakeClock()
    timer = Timer(clock, FOREVER_MS)
    assert timer.deadline_ms == FOREVER_MS
    clock.advance(10**15)
    assert not timer.expired()
