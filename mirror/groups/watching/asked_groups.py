"""Which groups of the source a round asks for: the list of all, and what was seen of their changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from mirror.groups.reader import GroupReader, Listed
from mirror.groups.rules import GroupRules
from mirror.groups.watching.asking import ALL, Asked, Asking
from mirror.timing import Clock

_LISTED_MS: Final = 1_000
"""So often new groups are listed, where what the coordinators write cannot be read."""


class Watch(Protocol):
    """What sees that groups have changed."""

    @property
    def is_open(self) -> bool:
        """Whether changes are seen."""
        ...

    def changed(self) -> frozenset[str] | None:
        """Return the groups that have changed since the last call; None: any may have."""
        ...


class AskedGroups:
    """Decides for one round after the other. Its calls wait for the source; use it in one thread."""

    def __init__(
        self, source: GroupReader, rules: GroupRules, clock: Clock, watch: Watch | None, interval_ms: int
    ) -> None:
        """Without ``watch``, each round asks for all groups."""
        self._source: Final = source
        self._rules: Final = rules
        self._clock: Final = clock
        self._watch: Final = watch
        self._asking: Final = Asking(max(1, interval_ms))
        self._names: frozenset[str] = frozenset()
        self._listed_ms = 0
        self.listed: dict[str, Listed] = {}
        """The groups of the source as a round has listed them last."""

    @property
    def names(self) -> frozenset[str]:
        """The groups for rounds, as they were last listed."""
        return frozenset(name for name in self._names if self._rules.includes(name))

    @property
    def is_watching(self) -> bool:
        """Whether rounds ask only for the groups that have changed."""
        return self._watch is not None and self._watch.is_open

    def begin(self, changed: Collection[str], *, everything: bool) -> Asked:
        """Return what the round asks for that begins now; of the groups ``changed``, this is known. Raises KafkaError.

        If it asks for groups that were not listed, they are listed again.
        """
        asked = ALL
        if self._watch is not None and not everything:
            now = self._clock.now()
            self._asking.hint(self._changed(self._watch), now)
            if not self._watch.is_open:
                self._asking.ask_all()
            asked = self._asking.take(now)
            asked = asked._replace(changed=asked.changed.union(changed))
        if asked.everything or asked.part is not None or not asked.changed <= self.listed.keys():
            self.listed = self._source.list_groups()
            self._names = frozenset(self.listed)
        return asked

    def forget(self) -> None:
        """The next round asks for all groups: it is not known what the last one has done."""
        self._asking.ask_all()

    def conclude(self, not_copied: Iterable[str]) -> None:
        """A round has ended, for which these groups were in front of the copy."""
        self._asking.again(not_copied)

    def has_news(self) -> bool:
        """Whether groups have changed, and a round can bring them over now. Raises KafkaError.

        If that cannot be seen: whether the source has groups that it had not in the last round, once a second.
        """
        now = self._clock.now()
        if self._watch is not None:
            self._asking.hint(self._changed(self._watch), now)
            if self._watch.is_open:
                return self._asking.is_due(now)
        if now - self._listed_ms < _LISTED_MS:
            return False
        self._listed_ms = now
        return self.has_new_groups()

    def _changed(self, watch: Watch) -> list[str] | None:
        """Return the groups for rounds that have changed: others would bring rounds forward in vain."""
        changed = watch.changed()
        return None if changed is None else [name for name in changed if self._rules.includes(name)]

    def has_new_groups(self) -> bool:
        """Whether the source has groups for the next round that it had not in the last one. Raises KafkaError."""
        before, self._names = self._names, frozenset(self._source.list_groups())
        return any(self._rules.includes(name) for name in self._names - before)
