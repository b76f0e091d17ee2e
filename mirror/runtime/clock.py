"""The real clock, and the one source of randomness."""

from __future__ import annotations

import os
import random
import time


class SystemClock:
    """Monotonic and wall time in whole milliseconds."""

    def now(self) -> int:
        """Return monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def unix_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


# Invariant: Jitter is seeded in each process after its fork, so that two workers do not retry in step.
# Test: tests/runtime/test_processes.py::test_a_forked_child_gets_its_own_thread_and_jitter
def process_rng() -> random.Random:
    """Return a generator seeded in each process, also after a fork.

    Clients with the same seed would retry in step (KIP-580).
    """
    return random.Random(os.urandom(16))  # noqa: S311 - jitter, not a secret
