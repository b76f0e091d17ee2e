"""What the tests of backoff lean on: waits that are not KIP-580's are distinguished from late ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.conformance.intervals import in_bounds
from tests.stalls import Stalls


def _waits(lengths: Sequence[float]) -> list[tuple[float, float]]:
    ends = itertools.accumulate(lengths, initial=1_000.0)
    return list(itertools.pairwise(ends))


@pytest.fixture
def quiet() -> Stalls:
    """Nothing stood still but for 100 of the ms from 1,900 to 2,000, in the fourth wait."""
    stalls = Stalls()
    stalls.until += [0, 1_900, 2_000, 10_000]
    stalls.lost += [0, 0, 100, 100]
    stalls.over.set()
    return stalls


@pytest.mark.parametrize(
    "lengths",
    [(80, 160, 320, 400), (120, 240, 400, 400), (265, 385, 545, 540), (120, 240, 400, 645), (100, 200, 320, 320)],
)
def test_waits_of_the_formula_are_in_bounds(lengths: Sequence[float], quiet: Stalls) -> None:
    in_bounds(_waits(lengths), quiet)


@pytest.mark.parametrize(
    "lengths",
    [
        (60, 200, 400, 400),
        (100, 100, 100, 100),
        (100, 200, 400, 800),
        (100, 200, 400, 655),
        (280, 200, 400, 400),
        (100, 200, 555, 400),
        (400, 400, 400, 400),
        (100, 200, 400, 300),
    ],
)
def test_others_are_not(lengths: Sequence[float], quiet: Stalls) -> None:
    with pytest.raises(AssertionError, match="of which stalled"):
        in_bounds(_waits(lengths), quiet)


def test_three_waits_are_the_least(quiet: Stalls) -> None:
    with pytest.raises(AssertionError):
        in_bounds(_waits((100, 200)), quiet)
