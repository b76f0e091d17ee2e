"""Exponential backoff with jitter, for every retry of every client (KIP-580, seed 004)."""

from __future__ import annotations

import random
from typing import Final

JITTER: Final = 0.2
"""KIP-580's randomization factor: 20% below to 20% above the computed value."""


class Backoff:
    """``MIN(max, initial * 2**(failures - 1) * uniform(0.8, 1.2))`` milliseconds.

    With ``initial_ms > max_ms`` the wait is ``max_ms`` from the beginning, without growth or jitter; who reads the
    configuration warns of it once. ``rng`` is handed in: seeded per process, also after a fork, so that clients do
    not retry in step.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_rng")

    def __init__(self, initial_ms: int, max_ms: int, rng: random.Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._rng = rng

    def after(self, failures: int) -> int:
        """Milliseconds to wait after ``failures`` (>= 1) failed attempts in a row."""
        if self._initial_ms > self._max_ms:
            return self._max_ms
        # Beyond 62 doublings every initial value is above every legal maximum: no need for huge powers.
        doubled = self._initial_ms * 2 ** min(failures - 1, 62)
        return int(min(self._max_ms, doubled * self._rng.uniform(1 - JITTER, 1 + JITTER)))
