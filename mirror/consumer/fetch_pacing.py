"""Lets the records of a broker gather for a moment between two fetches. No I/O."""

from __future__ import annotations

from typing import Final

from mirror.timing import remaining

_LEAST_MS: Final = 5
_PARTITIONS_PER_MS: Final = 200
_MOST_MS: Final = 20


def gathering_ms(partitions: int) -> int:
    """Return how long the records of a fetch session with so many partitions gather from one fetch to the next.

    Each fetch costs the broker, and this process, work for all partitions of the session.
    """
    return min(_MOST_MS, _LEAST_MS + partitions // _PARTITIONS_PER_MS)


class FetchPacing:
    """Keeps a time between two fetches from the same broker of which the first one had records.

    Otherwise each record of many partitions that get some now and then has a response of its own, and all that follows
    from one: work for each request costs a busy process more than the record, so that it has no reserve when many come
    at once. A record that arrives when nothing has for this time is not delayed, nor is the next fetch.
    """

    def __init__(self) -> None:
        self._sent_ms: Final[dict[int, int]] = {}
        self._begins_ms: Final[dict[int, int]] = {}

    def on_sent(self, node: int, now: int) -> None:
        """A fetch is sent to ``node``."""
        self._sent_ms[node] = now

    def on_response(self, node: int, now: int, *, records: bool) -> None:
        """``node`` has answered, with ``records`` or without."""
        if records:
            self._begins_ms[node] = self._sent_ms.get(node, now)
        else:
            self._begins_ms.pop(node, None)

    def wait_ms(self, node: int, partitions: int, now: int) -> int:
        """Return ms until the next fetch of so many ``partitions`` from ``node``."""
        begins_ms = self._begins_ms.get(node)
        return 0 if begins_ms is None else remaining(begins_ms + gathering_ms(partitions), now)
