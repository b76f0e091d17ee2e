"""What is known of all groups after a round: where they are, which are in step, and which are too many. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from mirror.errors import KafkaError, named
from mirror.groups.bundles import Committed
from mirror.groups.commit_decision import Reason
from mirror.groups.group_partition import GroupPartition, position_of
from mirror.groups.positions import GroupPosition, GroupState, reason_of
from mirror.groups.watching.asking import Asked

_FULL_ROUNDS: Final = 6
"""Each of so many rounds of all groups reads what they have on the target, to find those that were taken over."""
_NOT_COPIED: Final = frozenset({Reason.NOT_COPIED, Reason.NOT_COPIED_BACK})


class GroupStates:
    """The groups of one flow. Times are in ms since 1970."""

    def __init__(self, most: int) -> None:
        """At most ``most`` groups are brought over."""
        self._most: Final = most
        self._settled: Final[dict[str, Committed]] = {}
        """What groups had committed on the source when they were last in step."""
        self._rounds = 0
        self.each: dict[str, GroupState] = {}
        """The groups, by name."""
        self.over: set[str] = set()
        """Those that are left out, because there are too many."""

    def forget_settled(self) -> None:
        """All groups are compared with the target again: another run may have committed."""
        self._settled.clear()

    def is_settled(self, group: str) -> bool:
        """Whether a group was in step after the last round about it."""
        return group in self._settled

    def is_not_copied(self, group: str) -> bool:
        """Whether a group is in front of a copy."""
        state = self.each.get(group)
        return state is not None and not state.is_in_step and not state.reasons.isdisjoint(_NOT_COPIED)

    def leave_out(
        self,
        committed: Mapping[str, Committed | KafkaError],
        others: AbstractSet[str],
        known: Callable[[], Collection[str]],
        is_copied: Callable[[str], bool],
    ) -> None:
        """Set which groups are left out: those of ``others``, and of those that were asked for.

        ``known`` returns the groups that were brought over before, which come first. ``is_copied`` says whether a topic
        is copied.
        """
        if len(self.each.keys() | committed.keys() | others) <= self._most:
            self.over = set()
            return
        before = known()
        topics = {
            name: {tp.topic for tp in found.keys() | found.failed.keys()}
            for name, found in committed.items()
            if name not in before and not isinstance(found, KafkaError)
        }
        copied = {topic for topic in set().union(*topics.values()) if is_copied(topic)}
        new = sorted(name for name, of_group in topics.items() if of_group & copied)
        self.over = {*others, *new[max(0, self._most - len(before)) :]}

    def left_out(self) -> list[str]:
        """Return a line about the groups that are left out, if there are any."""
        if not self.over:
            return []
        left_out = f"{named('group', sorted(self.over))} left out; name fewer in include, or raise it"
        return [f"max-groups is {self._most}: {left_out}"]

    def changed(self, committed: Mapping[str, Committed | KafkaError], asked: Asked, now_ms: int) -> list[str]:
        """Return the groups to compare with the target, in order: those that changed, or were not in step."""
        full = asked.everything and self._rounds % _FULL_ROUNDS == 0
        self._rounds += asked.everything
        changed = []
        for group, found in committed.items():
            if isinstance(found, KafkaError):
                self._settled.pop(group, None)
                self.each[group] = self.held(group, reason_of(found), f"on the source: {found}", now_ms)
            elif full or self._settled.get(group) != found or (asked.part is not None and asked.sweeps(group)):
                changed.append(group)
        return sorted(changed)

    def held(self, group: str, reason: Reason, detail: str, now_ms: int) -> GroupState:
        """Return the state of a group of which nothing can be read now."""
        return self.each.get(group, GroupState(group)).held(reason, detail, now_ms)

    def conclude(
        self,
        rows: Iterable[GroupPartition],
        committed: Mapping[str, Committed | KafkaError],
        at_target: Mapping[str, Committed | KafkaError],
        now_ms: int,
        stored_ms: Callable[[GroupPartition], int | None] | None,
    ) -> None:
        """Keep what a round has found and done about the groups of ``at_target``.

        ``stored_ms`` returns when a row's position on the target was stored, for a round that has changed nothing.
        """
        of_group: dict[str, list[GroupPosition]] = {group: [] for group in at_target}
        since = {
            (group, one.target): one.since_ms
            for group in of_group.keys() & self.each.keys()
            for one in self.each[group].positions
            if one.since_ms is not None
        }
        for row in rows:
            if row.unread or row.committed is not None or row.at_target is not None:
                since_ms = since.get((row.group, row.target)) if since else None
                stored = None if stored_ms is None else stored_ms(row)
                position = position_of(row, since_ms, now_ms, write=stored_ms is None, stored_ms=stored)
                of_group[row.group].append(position)
        for group, positions in of_group.items():
            self._conclude(group, tuple(positions), committed[group], at_target[group], now_ms)

    def _conclude(
        self,
        group: str,
        positions: tuple[GroupPosition, ...],
        found: Committed | KafkaError,
        there: Committed | KafkaError,
        now_ms: int,
    ) -> None:
        if isinstance(there, KafkaError):
            self._settled.pop(group, None)
            self.each[group] = self.held(group, reason_of(there), f"on the target: {there}", now_ms)
            return
        self.each[group] = state = GroupState(group, positions)
        if state.is_in_step and not isinstance(found, KafkaError):
            self._settled[group] = found
        else:
            self._settled.pop(group, None)
        if not positions:
            del self.each[group]

    def keep(self, is_kept: Callable[[str], bool]) -> None:
        """Forget the groups for which ``is_kept`` returns False."""
        self.each = {name: state for name, state in self.each.items() if is_kept(name)}
