"""The real clock, and the one source of randomness."""

from __future__ import annotations

import os
import random
import time


class SystemClock:
    """Monotonic and wall time in whole milliseconds."""

    def now(self) -> int:
        """Monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def unix_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


def process_rng() -> random.Random:
    """Seeded anew in each process, also after a fork: clients that share a seed would retry in step (KIP-580)."""
    return random.Random(os.urandom(16))  # noqa: S311 - jitter, not a secret
