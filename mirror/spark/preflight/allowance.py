"""What a flow may still create: a source without end must not make it create without end. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.models import FlowConfig

_PERIOD_MS: Final = 60 * 60 * 1000


class Allowance:
    """What one run of a flow has created; what is older than an hour, in a stream, does not count any more."""

    def __init__(self) -> None:
        self._created: Final = deque[tuple[int, int, int]]()
        """When (ms), how many topics, how many partitions."""

    def fitting(self, flow: FlowConfig, new: Mapping[str, int], now_ms: int, *, topics: bool) -> dict[str, int]:
        """Return those of the ``new`` partitions, by topic and in the order of names, that fit into the flow's limits.

        ``topics``: their topics are new, too. ``now_ms`` is of a clock that never goes back.
        """
        while self._created and now_ms - self._created[0][0] >= _PERIOD_MS:
            self._created.popleft()
        left_topics = flow.max_new_topics - sum(one[1] for one in self._created)
        left_partitions = flow.max_partitions - sum(one[2] for one in self._created)
        found: dict[str, int] = {}
        for name, count in sorted(new.items()):
            if (topics and left_topics < 1) or left_partitions < count:
                continue
            found[name] = count
            left_topics -= topics
            left_partitions -= count
        return found

    def spend(self, now_ms: int, *, topics: int, partitions: int) -> None:
        """Count what was created."""
        if topics or partitions:
            self._created.append((now_ms, topics, partitions))
