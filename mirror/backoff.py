"""Exponential backoff with jitter, for every retry of every client (KIP-580)."""

from __future__ import annotations

import random
from typing import Final, Self

JITTER: Final = 0.2
"""KIP-580's randomization factor: 20% below to 20% above the computed value."""


class Backoff:
    """Computes ``min(max, min(max, initial * 2**(failures - 1)) * uniform(0.8, 1.2))`` milliseconds.

    The inner limit is that of Kafka 4 (``ExponentialBackoff``); KIP-580's formula has only the outer one. So the
    longest waits vary, too, from 80% to 100% of the maximum: without that, clients that have failed for long would
    retry in step.

    If ``initial_ms > max_ms``, every wait is ``max_ms``, without growth or jitter; the configuration's reader warns
    about it once. The caller passes ``rng``, which is seeded per process, also after a fork: clients with the same seed
    would retry in step.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_rng")

    def __init__(self, initial_ms: int, max_ms: int, rng: random.Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._rng = rng

    def with_bounds(self, initial_ms: int, max_ms: int) -> Self:
        """Return a backoff with other bounds and the same random numbers."""
        return type(self)(initial_ms, max_ms, self._rng)

    def after(self, failures: int) -> int:
        """Return the milliseconds to wait after ``failures`` (>= 1) consecutive failed attempts."""
        if self._initial_ms > self._max_ms:
            return self._max_ms
        # After 62 doublings every initial value exceeds every legal maximum, so larger powers are not needed.
        doubled = self._initial_ms * 2 ** min(failures - 1, 62)
        return int(min(self._max_ms, min(self._max_ms, doubled) * self._rng.uniform(1 - JITTER, 1 + JITTER)))
