"""What both clusters show of a switch at one time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

GRACE_MS: Final = 5_000
"""Requests that brokers had accepted before the fence end within so long after they show it (``acks=all``)."""


class Ends(NamedTuple):
    """The ends of one partition's log."""

    high: int
    """The high watermark."""
    stable: int
    """The last stable offset: smaller, while a transaction is open."""


class FlowLatch(NamedTuple):
    """Whether a flow is held, by whom, and in which generation."""

    is_held: bool
    generation: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Live facts. A mapping that could not be read is None, and nothing is decided that would need it."""

    source_away: str = ""
    """Why the source does not answer."""
    target_away: str = ""
    """Why the target does not answer, which only a rollback does without."""
    topics: Mapping[str, int] | None = None
    """The topics that the flows select now, with their partitions."""
    denied: Collection[str] | None = None
    """The topics on which some broker of the source shows the denial."""
    denied_everywhere: Collection[str] | None = None
    """Those on which each broker shows it."""
    read_denied: Collection[str] = ()
    """The groups on which some broker of the source shows the denial of READ."""
    denied_on_target: Collection[str] | None = None
    read_denied_on_target: Collection[str] = ()
    ends: Mapping[str, tuple[Ends, ...]] | None = None
    progress: Mapping[str, tuple[int, ...]] | None = None
    """Up to where each partition is copied."""
    is_copying: bool = False
    """Whether runs of all flows are alive."""
    open_transactions: Mapping[str, str] = field(default_factory=dict)
    """Transactional ids with an open transaction, and where."""
    busy_groups: Collection[str] | None = None
    """The groups with members on the source."""
    positions: Mapping[str, str] | None = None
    """A hash of the positions of each group on the source."""
    latches: Mapping[str, FlowLatch] | None = None
    """Of the flows, and of those of the way back."""
    target_ends: Mapping[str, tuple[int, ...]] | None = None
    source_id: str = ""
    """Of a failover: the id of the source's cluster, as the flows knew it."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Of a failover: those on the source, as the flows knew them last."""
    unguarded: Collection[str] = ()
    """Of a failover: the topics that no ACL of the source concerns, so that a denial would close them to all."""


class Watch:
    """Watches the ends of fenced topics: since when they are quiet, and who writes nevertheless.

    It begins again with each operator: what was seen by another one is not known.
    """

    def __init__(self) -> None:
        self._last: Mapping[str, tuple[Ends, ...]] = {}
        self._open_ms = 0
        self.quiet_since_ms: int | None = None
        """Since when nothing has moved; None before the first reading."""
        self.bypassed: tuple[str, ...] = ()
        """Partitions that have grown although the brokers show the fence."""

    # Invariant: A partition that grows behind the fence is a producer that bypasses it, unless a transaction was open,
    #   whose marker the coordinator writes, also to partitions without a record of it, or the brokers may still have
    #   had its request.
    # Test: tests/switch/test_facts.py::test_a_partition_that_grows_behind_the_fence_is_bypassed
    def see(self, ends: Mapping[str, tuple[Ends, ...]], now_ms: int, shown_ms: int) -> None:
        """Take in a reading of ``now_ms``; the brokers show the fence since ``shown_ms``."""
        grown = [
            f"{topic}-{partition}"
            for topic, of_topic in ends.items()
            for partition, (before, after) in enumerate(zip(self._last.get(topic, ()), of_topic, strict=False))
            if after.high != before.high
        ]
        if self._is_open(self._last):
            self._open_ms = now_ms
        if now_ms - max(shown_ms, self._open_ms) > GRACE_MS and not self.bypassed:
            self.bypassed = tuple(grown)
        if self.quiet_since_ms is None or grown or self._is_open(ends):
            self.quiet_since_ms = now_ms
        self._last = ends

    @staticmethod
    def _is_open(ends: Mapping[str, tuple[Ends, ...]]) -> bool:
        return any(one.stable < one.high for of_topic in ends.values() for one in of_topic)
