"""KIP-580's intervals on the wire: from an answer that is a failure to the next attempt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tests.faults.frames import Seen
from tests.polling import eventually
from tests.stalls import Stalls

INITIAL_MS, MAX_MS = 100, 400
ATTEMPTS = 6
"""What is looked at: from the fourth wait on it is the longest."""
LATE_MS = 150
"""What client and proxy may add to each interval, with the machine to themselves."""
EARLY_MS = 10
"""The client's clock counts whole ms, and may have been read just before the answer came that it then found."""
OPTIONS = {
    "retry.backoff.ms": INITIAL_MS,
    "retry.backoff.max.ms": MAX_MS,
    "reconnect.backoff.ms": INITIAL_MS,
    "reconnect.backoff.max.ms": MAX_MS,
    "default.api.timeout.ms": 60_000,
}


def waits_between(asked: Sequence[Seen]) -> list[tuple[float, float]]:
    """When each answer was handed on, and when the next attempt came; the broker's own time is in neither."""
    return [(earlier.answered_ms, later.at_ms) for earlier, later in itertools.pairwise(asked)]


def in_bounds(waits: Sequence[tuple[float, float]], stalls: Stalls, first_failures: int = 1) -> None:
    """Each wait is KIP-580's, with the limit of Kafka 4 before jitter, too, and not much more.

    This is ``MIN(max, MIN(max, initial * 2**(failures - 1)) * uniform(0.8, 1.2))``.
    """
    assert len(waits) >= 3
    result = [(round(later - earlier), round(stalls.between(earlier, later))) for earlier, later in waits]
    for failures, (earlier, later) in enumerate(waits, start=first_failures):
        doubled = INITIAL_MS * 2 ** (failures - 1)
        least, most = min(MAX_MS, doubled) * 0.8 - EARLY_MS, min(MAX_MS, doubled * 1.2) + LATE_MS
        assert earlier > 0, "an attempt came before the last one was answered"
        assert least <= later - earlier <= most + stalls.between(earlier, later), f"(ms, of which stalled): {result}"


def attempts_in_bounds(
    asked: Callable[[], Sequence[Seen]], begin: Callable[[], Future[Any]], heal: Callable[[], object], stalls: Stalls
) -> Future[Any]:
    """What ``begin`` asks for (``asked``) is refused some times, each later than the last by KIP-580; then healed."""
    outcome = begin()
    try:
        eventually(lambda: len(asked()) >= ATTEMPTS or outcome.done(), what=f"{ATTEMPTS} attempts")
    finally:
        heal()
    in_bounds(waits_between(asked()[:ATTEMPTS]), stalls)
    return outcome
