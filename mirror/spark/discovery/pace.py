"""How often a stream discovers new topics: less often than configured if that would cost too much. Pure."""

from __future__ import annotations

from typing import Final

_CPU_SHARE: Final = 10
"""Discovery, with what is done about what is found, takes at most a tenth of a core, as other rounds do."""
_LONGEST_MS: Final = 30_000


def pause_ms(interval_ms: int, cpu_ms: int) -> int:
    """Return how long to wait, at least ``interval_ms``, after discovery that took ``cpu_ms`` of CPU time."""
    return max(interval_ms, min(cpu_ms * (_CPU_SHARE - 1), _LONGEST_MS))
