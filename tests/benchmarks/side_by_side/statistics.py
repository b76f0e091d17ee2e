"""Medians, and ratios of medians with an interval. Pure, and the same for the same figures."""

from __future__ import annotations

import functools
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

_DRAWN: Final = 4_000
_SEED: Final = 20_261_122


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, with the least and the most of what was measured."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """At least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, number: Callable[[float], str]) -> str:
        """``number`` formats each of the three; the median is alone where they are the same."""
        if self.least == self.most:
            return number(self.median)
        return f"{number(self.median)} [{number(self.least)} to {number(self.most)}]"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One median to another over ``rounds`` interleaved rounds; ``low`` to ``high`` holds 95% of resampled ones."""

    ratio: float
    low: float
    high: float
    rounds: int


def ratio_of_medians(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """Of the rounds (number -> figure) that both have; None where there are none.

    Rounds are resampled whole, so that what slowed both sides of a round down does not count as a difference. With few
    rounds the interval is hardly more than the range of what was seen.
    """
    rounds = sorted(ours.keys() & theirs.keys())
    if not rounds:
        return None
    drawn = sorted(
        ratio for way, times in _ways(len(rounds)) for ratio in [_ratio(ours, theirs, [rounds[n] for n in way])] * times
    )
    low, high = drawn[int(_DRAWN * 0.025)], drawn[int(_DRAWN * 0.975)]
    return Ratio(_ratio(ours, theirs, rounds), low, high, len(rounds))


@functools.cache
def _ways(count: int) -> list[tuple[tuple[int, ...], int]]:
    """Return which of ``count`` rounds are drawn, in whatever order, and how often: few of them in few ways."""
    rng = random.Random(_SEED)
    return [*Counter(tuple(sorted(rng.choices(range(count), k=count))) for _ in range(_DRAWN)).items()]


def _ratio(ours: Mapping[int, float], theirs: Mapping[int, float], rounds: Sequence[int]) -> float:
    return statistics.median(ours[one] for one in rounds) / statistics.median(theirs[one] for one in rounds)
