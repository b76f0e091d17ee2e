"""Which groups share a request for their offsets, and which are not asked for now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mirror.cluster.types import OffsetAndMetadata, Outcomes, TopicPartition
from mirror.errors import KafkaError, KafkaTimeout, ProtocolError

Committed = Outcomes[TopicPartition, OffsetAndMetadata]
"""What a group has committed; ``failed`` are the partitions of which that could not be read."""

_MOST_GROUPS: Final = 200
_MOST_BYTES: Final = 1024 * 1024
"""Of a response: a group may have thousands of offsets, with up to 4 KB of metadata each."""
_GROUP_BYTES: Final = 4096
"""What a group is taken for that has not been read yet."""
_OFFSET_BYTES: Final = 40
"""One partition of a response, without its metadata."""
_GROWTH: Final = 4
_REST_MS: Final = 20_000
"""For so long a group is not asked for whose coordinator has not answered: each such question delays a round. It does
not grow: once the coordinator is back, the group's consumers could not switch for as long."""
_MOST_KNOWN: Final = 100_000


class _Late(NamedTuple):
    until_ms: int
    error: KafkaTimeout


class Bundles:
    """Divides groups into requests, by what is known from earlier ones."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        """Bytes of a group's offsets in a response, as they were, or more if it did not come in time."""
        self._late: dict[str, _Late] = {}

    def resting(self, groups: Iterable[str], now: int) -> dict[str, KafkaError]:
        """Return those of ``groups`` that are not to be asked for now, with the errors of their last requests."""
        late = {group: self._late[group] for group in groups if group in self._late}
        return {group: one.error for group, one in late.items() if now < one.until_ms}

    def of(self, groups: Iterable[str], partitions: Mapping[str, int]) -> list[tuple[str, ...]]:
        """Return ``groups`` of one coordinator by request. ``partitions``: how many are asked for, of some of them.

        Those that were late come last, in requests of their own, since these may be late again.
        """
        bundles: list[list[str]] = []
        room, late_before = 0, False
        for group in sorted(groups, key=lambda name: (name in self._late, name)):
            size = max(self._sizes.get(group, _GROUP_BYTES), partitions.get(group, 0) * _OFFSET_BYTES)
            late = group in self._late
            if not bundles or size > room or late is not late_before or len(bundles[-1]) == _MOST_GROUPS:
                bundles.append([])
                room = _MOST_BYTES
            bundles[-1].append(group)
            room, late_before = room - size, late
        return [tuple(bundle) for bundle in bundles]

    def take(self, found: Mapping[str, Committed | KafkaError], now: int) -> None:
        """Take the outcome of requests."""
        if len(self._sizes) > _MOST_KNOWN:
            self._sizes.clear()
        for group, outcome in found.items():
            self._late.pop(group, None)
            if _is_unreadable(outcome) and self._sizes.get(group, 0) < _MOST_BYTES:
                self._sizes[group] = _MOST_BYTES  # it is asked for alone: only then it is known which group it is
            elif isinstance(outcome, KafkaTimeout):
                self._late[group] = _Late(now + _REST_MS, outcome)
                self._sizes[group] = min(self._sizes.get(group, _GROUP_BYTES) * _GROWTH, _MOST_BYTES)
            elif not isinstance(outcome, KafkaError):
                self._sizes[group] = sum(_OFFSET_BYTES + len(one.metadata) for one in outcome.values())


def _is_unreadable(outcome: Committed | KafkaError) -> bool:
    """Whether the broker has answered with what is no response, such as metadata that are not UTF-8."""
    return isinstance(outcome, KafkaTimeout) and isinstance(outcome.__cause__, ProtocolError)
