"""Exponential backoff with jitter (KIP-580)."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.backoff import JITTER, Backoff
from mirror.cluster.request_state import RequestState
from mirror.timing import FOREVER_MS


class _Middle(random.Random):
    """Jitter that changes nothing."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_backoff_doubles_before_jitter() -> None:
    backoff = Backoff(100, 1_000, _Middle())
    assert [backoff.after(n) for n in range(1, 8)] == [100, 200, 400, 800, 1_000, 1_000, 1_000]


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 200), st.integers(0, 2**32))
def test_backoff_with_jitter_never_exceeds_max(initial: int, more: int, failures: int, seed: int) -> None:
    ceiling = initial + more
    wait = Backoff(initial, ceiling, random.Random(seed)).after(failures)
    limited = min(ceiling, initial * 2 ** (failures - 1))
    assert int(limited * (1 - JITTER)) <= wait <= min(ceiling, int(limited * (1 + JITTER)) + 1)


def test_jitter_covers_its_whole_range() -> None:
    backoff = Backoff(10_000, 10**6, random.Random(7))
    waits = [backoff.after(1) for _ in range(2_000)]
    assert min(waits) < 8_100
    assert max(waits) > 11_900
    assert abs(statistics.fmean(waits) - 10_000) < 150


@pytest.mark.parametrize(("failures", "least", "most"), [(4, 640, 960), (5, 800, 1_000), (90, 800, 1_000)])
def test_waits_at_the_maximum_vary_below_it(failures: int, least: int, most: int) -> None:
    backoff = Backoff(100, 1_000, random.Random(3))
    waits = [backoff.after(failures) for _ in range(1_000)]
    assert least <= min(waits) < least + 10
    assert most - 10 < max(waits) <= most


def test_backoff_with_other_bounds_draws_from_the_same_random_numbers() -> None:
    rng = random.Random(3)
    one = Backoff(100, 1_000, rng)
    other = one.with_bounds(15_000, 60_000)
    expected = random.Random(3)
    assert [one.after(1), other.after(1)] == [
        int(first_ms * expected.uniform(1 - JITTER, 1 + JITTER)) for first_ms in (100, 15_000)
    ]
    assert other.after(9) == min(60_000, int(60_000 * expected.uniform(1 - JITTER, 1 + JITTER)))


def test_different_seeds_give_different_waits() -> None:
    one, other = (Backoff(1_000, 10**6, random.Random(seed)) for seed in (1, 2))
    assert [one.after(n) for n in range(1, 6)] != [other.after(n) for n in range(1, 6)]


def test_initial_above_max_gives_constant_max() -> None:
    backoff = Backoff(500, 200, random.Random(1))
    assert {backoff.after(n) for n in range(1, 100)} == {200}
    # By so little that the jitter of the first wait would reach below the maximum.
    near = Backoff(110, 100, random.Random(1))
    assert {near.after(n) for n in range(1, 100)} == {100}


@given(st.integers(1, 5_000))
def test_largest_values_do_not_overflow(failures: int) -> None:
    assert Backoff(FOREVER_MS, FOREVER_MS, random.Random(1)).after(failures) <= FOREVER_MS
    assert Backoff(1, FOREVER_MS, random.Random(1)).after(failures) <= FOREVER_MS


def test_zero_backoff_does_not_wait() -> None:
    assert Backoff(0, 0, random.Random(1)).after(5) == 0


def test_success_resets_attempts() -> None:
    state = RequestState(Backoff(100, 1_000, _Middle()))
    for wait in (100, 200, 400):
        state.sent()
        assert not state.can_send(10_000)
        assert state.wait_ms(10_000) == FOREVER_MS
        state.failed(10_000)
        assert state.wait_ms(10_000) == wait
        assert not state.can_send(10_000 + wait - 1)
        assert state.can_send(10_000 + wait)
    state.succeeded()
    assert state.can_send(10_000)
    state.failed(10_000)
    assert state.wait_ms(10_000) == 100


def test_skipped_backoff_keeps_the_failure_count() -> None:
    state = RequestState(Backoff(100, 1_000, _Middle()))
    state.failed(0)
    state.failed(0)
    state.skip_backoff()
    assert state.can_send(0)
    state.failed(0)
    assert state.wait_ms(0) == 400
