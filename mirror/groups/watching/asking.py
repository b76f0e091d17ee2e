"""Which groups the next round asks for: all, or those that may have changed. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

_REST_PARTS: Final = 4
"""A round brought forward begins a quarter of the interval after the last one."""
_AGE_PARTS: Final = 4
"""So old a hint is, as a part of the interval, before its group is asked for. By then what the group has read is in the
index: copies commit and write that within this time (``CopyPolicy.index_interval_ms``), and hints arrive a little later
than commits."""
_SWEEP_MS: Final = 60_000
"""Within this time each group is asked for once, whatever the hints say: on both sides, to find takeovers."""


class Asked(NamedTuple):
    """What a round asks for."""

    everything: bool = False
    changed: frozenset[str] = frozenset()
    """Groups that have changed, as far as that is known."""
    part: int | None = None
    """Also the groups that were not in step, and this one of the :attr:`parts` of all groups."""
    parts: int = 1

    def includes(self, group: str, *, in_step: bool) -> bool:
        """Whether a group is asked for, which was ``in_step`` after the last round or not."""
        return (
            self.everything or group in self.changed or (self.part is not None and (not in_step or self.sweeps(group)))
        )

    def sweeps(self, group: str) -> bool:
        """Whether a group is asked for on both sides, whether or not it has changed."""
        return self.everything or (self.part is not None and zlib.crc32(group.encode()) % self.parts == self.part)


ALL: Final = Asked(everything=True)


# Invariant: What changes a group's position is asked for within a minute, though no hint of it has come.
# Test: tests/groups/watching/test_asking.py::test_every_group_is_asked_for_within_a_minute_without_hints
class Asking:
    """When which groups are asked for, by hints that they have changed. Times are monotonic, in ms."""

    def __init__(self, interval_ms: int) -> None:
        """Each ``interval_ms``, a round asks for the groups that are not in step; hints bring it forward."""
        self._interval_ms: Final = interval_ms
        self._rest_ms: Final = interval_ms // _REST_PARTS
        self._age_ms: Final = interval_ms // _AGE_PARTS
        self._parts: Final = max(1, _SWEEP_MS // interval_ms)
        self._hinted: dict[str, tuple[int, int]] = {}
        """When the first and the last hint of a group have come."""
        self._everything = True
        self._again: frozenset[str] = frozenset()
        self._part = 0
        self._began_ms = self._swept_ms = 0

    def hint(self, groups: Iterable[str] | None, now: int) -> None:
        """Groups have changed at ``now``; None: any may have."""
        if groups is None:
            self.ask_all()
            return
        for group in groups:
            first, _ = self._hinted.get(group, (now, now))
            self._hinted[group] = first, now

    def ask_all(self) -> None:
        """The next round is to ask for all groups."""
        self._everything = True
        self._again = frozenset()
        self._hinted.clear()

    def again(self, groups: Iterable[str]) -> None:
        """The next round is to ask for ``groups`` once more: the last one has found that they are not copied yet.

        Those that this was said of before are behind for longer. They are asked for once in an interval.
        """
        self._again = frozenset(groups) - self._again

    def is_due(self, now: int) -> bool:
        """Whether a round is to begin before the interval is over."""
        if now - self._began_ms < self._rest_ms:
            return False
        return bool(self._again) or any(self._is_old(first, now) for first, _ in self._hinted.values())

    def take(self, now: int) -> Asked:
        """Return what the round asks for that begins now. If it fails, call :meth:`ask_all`."""
        self._began_ms = now
        if self._everything:
            # What is hinted now may not be visible yet.
            self._everything, self._swept_ms = False, now
            return ALL
        hinted = [group for group, (first, _) in self._hinted.items() if self._is_old(first, now)]
        for group in hinted:
            _, last = self._hinted.pop(group)
            if not self._is_old(last, now):
                self._hinted[group] = last, last
        changed = self._again.union(hinted)
        if now - self._swept_ms < self._interval_ms:
            return Asked(changed=changed)
        self._swept_ms, self._part = now, (self._part + 1) % self._parts
        return Asked(changed=changed, part=self._part, parts=self._parts)

    def _is_old(self, hinted_ms: int, now: int) -> bool:
        """Whether a hint of this time is old enough."""
        return now - hinted_ms >= self._age_ms
