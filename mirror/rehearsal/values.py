"""What a rehearsal says: of each group and partition, of what has not arrived, and of what is not ready."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mirror.cluster.types import TopicPartition


class Why(enum.StrEnum):
    """Why a group is not ready, beside the reasons of its positions. The values are published."""

    SKIPS = "skips-records"
    """Its position on the new cluster is behind records that it has not read."""
    MOVED = "has-moved"
    """It has members on the new cluster, and has committed further there than it has read on the old one."""
    NO_POSITION = "no-position"
    """It has no position on the new cluster: auto.offset.reset decides where it begins."""
    OUT_OF_RANGE = "out-of-range"
    """The log of the new cluster does not have its position: auto.offset.reset decides where it begins."""
    NOT_KNOWN = "not-known"
    """It cannot be known what it would read again and skip."""
    READ_AGAIN = "reads-too-much-again"
    """It would read more records again than the limit."""


class Kind(enum.StrEnum):
    """What a blocker is about. The values are published."""

    TOPIC = "topic"
    PARTITION = "partition"
    CONFIGURATION = "configuration"
    ACL = "acl"
    GROUP = "group"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Something that is not ready, why, and what to do."""

    kind: Kind
    name: str
    reason: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """One partition of a group that would move from the old cluster to the new one."""

    old: TopicPartition
    """The partition of the cluster that consumers would leave."""
    new: TopicPartition
    """The partition of the cluster to which they would go."""
    old_offset: int | None
    """Where the group would continue on the old cluster; None if it has no position there, or that is not known."""
    new_offset: int | None
    """What it has committed on the new cluster; None: nothing."""
    begins_at: int | None = None
    """Where it would begin on the new cluster: with ``auto.offset.reset = earliest`` if that decides."""
    read_again: int | None = None
    """How many records it would read again; None if that is not known."""
    read_again_is_exact: bool = True
    skipped: int | None = None
    """How many records it has not read, and would not; None if that is not known."""
    skipped_is_exact: bool = True
    passed: int = 0
    """How many records that it has not read the new log has deleted in front of its translated position."""
    not_arrived: int | None = None
    """How many offsets from its position on have not arrived on the new cluster: at most so many records."""
    at_stake: int = 0
    """If auto.offset.reset decides: how many unread records ``latest`` would skip."""
    reason: str = ""
    """Why it is not ready; empty if it is."""
    note: str = ""
    """Why the position is not the same record's, though the group is ready."""
    detail: str = ""
    action: str = ""
    """What to do if it is not ready."""

    @property
    def is_ready(self) -> bool:
        """Whether the group could move."""
        return not self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRehearsal:
    """A group with its partitions."""

    group: str
    moves: tuple[GroupMove, ...] = ()
    reason: str = ""
    """Why nothing of the group is ready; empty if that depends on the partition."""
    detail: str = ""
    action: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the whole group could move."""
        return not self.reason and all(one.is_ready for one in self.moves)

    @property
    def skipped(self) -> int:
        """How many records it would skip, or may; none where it has moved already."""
        return sum(one.skipped or 0 for one in self.moves if one.reason != Why.MOVED)

    @property
    def read_again(self) -> int:
        """How many records it would read again, as far as that is known."""
        return sum(one.read_again or 0 for one in self.moves)

    @property
    def is_known(self) -> bool:
        """Whether it is known of all partitions what would be read again and skipped."""
        return not self.reason and all(
            one.old_offset is None or (one.read_again is not None and one.skipped is not None) for one in self.moves
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What has not arrived of one partition."""

    old: TopicPartition
    new: TopicPartition
    records: int | None
    """Offsets that are not copied: at most so many records. None if that is not known."""
    bytes: int | None = None
    """Their size, estimated from the size of the log; None if that is not known."""
    oldest_ms: int | None = None
    """The timestamp of the first of these records (ms since 1970); None if it was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTime:
    """How long the copy of the rest would take, from the rate that was measured; None is unknown."""

    seconds: float | None = None
    bytes_per_second: float | None = None
    """Of earlier runs, limited by the flow."""
    start_seconds: float | None = None
    """The part of ``seconds`` that a run needs to start; None if the rate is not known, or the flow is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From when on a flow is not ready; None: no limit."""

    max_records: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What would happen if consumers switched at ``time_ms`` (ms since 1970)."""

    flow: str
    old: str
    """The cluster that they would leave."""
    new: str
    reverse: bool = False
    time_ms: int = 0
    groups: tuple[GroupRehearsal, ...] = ()
    backlogs: tuple[Backlog, ...] = ()
    """Partitions of which something has not arrived, or is not known."""
    partitions: int = 0
    """How many partitions were looked at."""
    ages_are_complete: bool = True
    """Whether the timestamp of the oldest record was read in all partitions of which something has not arrived."""
    recovery: RecoveryTime = field(default_factory=RecoveryTime)
    blockers: tuple[Blocker, ...] = ()
    """What is not ready, other than groups."""
    notes: tuple[str, ...] = ()
    """What the numbers do not contain."""
    limits: Limits = field(default_factory=Limits)

    @property
    def records(self) -> int:
        """How many records have not arrived, at most, of the partitions of which that is known."""
        return sum(one.records or 0 for one in self.backlogs)

    @property
    def bytes(self) -> int | None:
        """Their estimated size; None if it is not known of all."""
        sizes = [one.bytes for one in self.backlogs if one.records]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that has not arrived; 0 if all have, None if it is not known."""
        if not self.records:
            return 0.0
        times = [one.oldest_ms for one in self.backlogs if one.records and one.oldest_ms is not None]
        return max(0, self.time_ms - min(times)) / 1000 if times else None

    @property
    def not_ready(self) -> tuple[GroupRehearsal, ...]:
        """The groups that are not ready."""
        return tuple(one for one in self.groups if not one.is_ready)

    @property
    def is_ready(self) -> bool:
        """Whether consumers could switch now."""
        return not self.not_ready and not self.blockers
