"""How often a stream discovers new topics: less often than configured if that costs much. Pure."""

from __future__ import annotations

from typing import Final

_CPU_SHARE: Final = 10
"""Discovery, with what is done about what is found, takes at most a tenth of a core, as other rounds do, unless
it takes more than a third of a second each time: see the longest pause."""
_LONGEST_MS: Final = 3_000
"""A new topic waits for no longer. Rounds that compare all configurations share the network threads with discovery, so
that what they decode counts, too, if they run meanwhile: for 10,000 topics 2.4 s of CPU."""


def pause_ms(interval_ms: int, cpu_ms: int) -> int:
    """Return how long to wait, at least ``interval_ms``, after discovery that took ``cpu_ms`` of CPU time."""
    return max(interval_ms, min(cpu_ms * (_CPU_SHARE - 1), _LONGEST_MS))
