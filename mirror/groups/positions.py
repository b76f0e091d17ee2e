"""Where groups are on both sides, and why they are not in step: what a round found and did. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import AuthorizationFailed, BrokerError, Fenced, KafkaError, KafkaTimeout
from mirror.groups.commit_decision import Position, Reason
from mirror.relay.offsets.copy_count import NO_COPIES, CopyCount
from mirror.wire.error_codes import GROUP_IN_USE

_MOVED = frozenset({Reason.ACTIVE, Reason.TAKEN_OVER, Reason.BEHIND, Reason.DELETED})


@dataclass(slots=True, kw_only=True)
class GroupPosition:
    """One partition of a group. It is not frozen, which would make it slower: a round makes thousands."""

    source: TopicPartition
    target: TopicPartition
    source_offset: int | None
    """The committed offset; None if there is none."""
    target_offset: int | None
    reason: Reason | None
    """Why the target's position is not the source's; None if it is."""
    detail: str = ""
    continued_at: int | None = None
    """The source offset at which the group continues there; None if it has committed none, or that is not known."""
    since_ms: int | None = None
    """Since when the target's position has not been the source's (ms since 1970); None if it is."""
    stored_ms: int | None = None
    """When the flow has stored the target's position first (ms since 1970); None if that is not its own, or not known.
    Only reports of rounds that change nothing have it."""
    pending: bool = False
    """Whether a commit is due that was not made, because nothing was to be changed."""
    passed: int = 0
    """So many records that it has not read are not behind the position that the flow gives it: the target has deleted
    them."""
    read_again: CopyCount = NO_COPIES
    """Records that the group has read on the source and reads again from the target's position on: where both sides
    feed a topic, its position is the lowest one that skips nothing. What was compacted since is counted, too."""


class TranslatedPosition(NamedTuple):
    """Where a group is on the source, and which offset of the target that is, whether or not it is committed there."""

    group: str
    target: TopicPartition
    position: Position
    metadata: str
    """What the group has committed with it on the source."""
    lost: bool
    """Whether the target has lost records in front of the offset that is committed there."""


@dataclass(frozen=True)
class GroupState:
    """A group, with its partitions that the flow copies. What is counted of these is counted once: it never changes."""

    group: str
    positions: tuple[GroupPosition, ...] = ()
    reason: Reason | None = None
    """Why nothing of the group can be written; None if that depends on the partition."""
    detail: str = ""
    since_ms: int | None = None
    """Since when nothing of the group could be read (ms since 1970); None if it can be."""

    def held(self, reason: Reason, detail: str, now_ms: int) -> GroupState:
        """Return the state if nothing of the group can be read at ``now_ms``: the positions are the last ones."""
        since_ms = now_ms if self.since_ms is None else self.since_ms
        return GroupState(self.group, self.positions, reason, detail, since_ms)

    @cached_property
    def reasons(self) -> frozenset[Reason]:
        """Why positions are not in step."""
        found = {position.reason for position in self.positions} | {self.reason}
        return frozenset(reason for reason in found if reason is not None)

    @cached_property
    def is_in_step(self) -> bool:
        """Whether all positions on the target are those on the source, also where the group has none."""
        if self.reason is Reason.NO_CONSUMERS:
            return True
        return self.reason is None and all(one.reason is None and not one.pending for one in self.positions)

    @cached_property
    def read_again(self) -> int:
        """How many records the group reads again at most from its positions on the target on."""
        return sum(one.read_again.records for one in self.positions)

    @cached_property
    def passed(self) -> int:
        """How many records that the group has not read are not behind the positions that the flow gives it."""
        return sum(one.passed for one in self.positions)

    @cached_property
    def _oldest_ms(self) -> int | None:
        since = [one.since_ms for one in self.positions if one.since_ms is not None and one.reason not in _MOVED]
        return min([*since, *([] if self.since_ms is None else [self.since_ms])], default=None)

    def age_ms(self, now_ms: int) -> int:
        """Return for how long some position has not been in step, if the group has not moved to the target itself."""
        return 0 if self._oldest_ms is None else max(0, now_ms - self._oldest_ms)


@dataclass(frozen=True, slots=True)
class GroupsReport:
    """The groups of a flow after a round."""

    groups: Mapping[str, GroupState] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What kept the round from being complete, in lines."""
    written: int = 0
    """Offsets that this round has committed."""
    time_ms: int = 0
    """When the round ended (ms since 1970)."""
    translated: tuple[TranslatedPosition, ...] = ()
    """The positions that this round has translated, if the rules ask for them: those that have changed, or are not in
    step."""
    sync: bool = True
    """Whether what is due was committed; if not, it was only read."""
    is_watching: bool = False
    """Whether the next rounds ask only for groups that change, and for a part of the others."""
    failing_since_ms: int | None = None
    """Since when all rounds have failed (ms since 1970); None if the last one has not."""

    def failed(self, problem: str, now_ms: int) -> GroupsReport:
        """Return the report of a round after this one that has failed at ``now_ms``: the groups are as they were."""
        since_ms = now_ms if self.failing_since_ms is None else self.failing_since_ms
        return GroupsReport(self.groups, (problem,), time_ms=now_ms, failing_since_ms=since_ms)

    def by_reason(self) -> Counter[Reason]:
        """Return how many groups are not in step, by reason; a group may have several."""
        return Counter(reason for state in self.groups.values() if not state.is_in_step for reason in state.reasons)

    @property
    def in_step(self) -> int:
        """How many groups are in step."""
        return sum(1 for state in self.groups.values() if state.is_in_step)

    @property
    def read_again(self) -> int:
        """How many records groups read again at most from their positions on the target on."""
        return sum(state.read_again for state in self.groups.values())

    @property
    def passed(self) -> int:
        """How many records that groups have not read are not behind the positions that the flow gives them."""
        return sum(state.passed for state in self.groups.values())

    @property
    def oldest_ms(self) -> int:
        """For how long some group that has not moved has not been in step, or no group could be read."""
        failing_ms = 0 if self.failing_since_ms is None else self.time_ms - self.failing_since_ms
        return max(failing_ms, *(state.age_ms(self.time_ms) for state in self.groups.values()), 0)


def reason_of(error: KafkaError) -> Reason:
    """Return why a group is not in step, from the error of a call about it."""
    if isinstance(error, AuthorizationFailed):
        return Reason.UNAUTHORIZED
    if isinstance(error, Fenced):
        return Reason.OTHER_RUN
    if isinstance(error, KafkaTimeout):
        return Reason.UNAVAILABLE
    if isinstance(error, BrokerError):
        return Reason.ACTIVE if error.code in GROUP_IN_USE else Reason.REFUSED
    return Reason.UNAVAILABLE
