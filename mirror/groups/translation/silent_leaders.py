"""Which brokers have not answered about the logs that they lead, and are not asked now. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_FIRST_REST_MS: Final = 20_000
_LONGEST_REST_MS: Final = 80_000


class _Rest(NamedTuple):
    until_ms: int
    length_ms: int


class SilentLeaders:
    """Brokers of one cluster. One that is silent again after its rest rests for twice as long.

    Without jitter: each broker rests since its own silence, and one process for each flow asks.
    """

    def __init__(self) -> None:
        self._rests: dict[int, _Rest] = {}

    def rest_ms(self, node: int, now: int) -> int:
        """Return for how long (ms) a broker is not asked; 0 if it is. ``now``: ms of any clock."""
        rest = self._rests.get(node)
        return 0 if rest is None else max(0, rest.until_ms - now)

    def take(self, asked: Iterable[tuple[int, bool]], now: int) -> None:
        """Take which brokers were asked about partitions, and whether they were silent.

        A broker that has answered for one partition is not silent.
        """
        silent: dict[int, bool] = {}
        for node, is_silent in asked:
            silent[node] = silent.get(node, True) and is_silent
        for node, is_silent in silent.items():
            last = self._rests.pop(node, None)
            if is_silent:
                length_ms = _FIRST_REST_MS if last is None else min(2 * last.length_ms, _LONGEST_REST_MS)
                self._rests[node] = _Rest(now + length_ms, length_ms)
