"""Curves with fewer points that look the same."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mirror.telemetry.report.curves import Point, as_differences, points_per_curve, thin

NUMBERS = st.integers(0, 10**12)
CURVES = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=200).map(sorted)


@given(CURVES, st.integers(3, 60))
def test_thinned_curve_keeps_ends_and_order(curve: list[Point], most: int) -> None:
    kept = thin(curve, most)
    assert len(kept) == min(most, len(curve))
    assert kept == sorted(kept)
    assert set(kept) <= set(curve)
    assert (kept[:1], kept[-1:]) == (curve[:1], curve[-1:])


def test_thinned_curve_keeps_prominent_points() -> None:
    """A standstill in the middle of a long way down: its two corners are what the picture is about."""
    down = [(number, 1_000 - number, 0, 0) for number in range(400)]
    still = [(number, 601, 0, 0) for number in range(400, 700)]
    again = [(number, 601 - (number - 699), 0, 0) for number in range(700, 1_000)]
    kept = thin([*down, *still, *again], 30)
    for corner in (400, 699):
        assert min(abs(time - corner) for time, *_ in kept) <= 36
    # The spike of one point, too.
    spiky = [(number, 5_000 if number == 333 else 10, 0, 0) for number in range(1_000)]
    assert (333, 5_000, 0, 0) in thin(spiky, 10)


@given(CURVES, NUMBERS)
def test_differences_decode_to_the_curve(curve: list[Point], origin_ms: int) -> None:
    flat = as_differences(curve, origin_ms)
    rows = zip(*(itertools.accumulate(flat[column::4]) for column in range(4)), strict=True)
    assert [(time + origin_ms, *rest) for time, *rest in rows] == [(each[0], *each[1:]) for each in curve]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=300))
def test_points_per_curve_follow_the_weights(weights: list[int]) -> None:
    shares = points_per_curve(weights, 1_000, 4, 240)
    assert all(4 <= share <= 240 for share in shares)
    assert sum(shares) <= max(1_000, 4 * len(weights)) + 4 * len(weights)
    assert all(one <= other for (a, one), (b, other) in itertools.pairwise(sorted(zip(weights, shares, strict=True))))
