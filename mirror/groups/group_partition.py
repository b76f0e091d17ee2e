"""One partition of a group in a round: what is there, what is decided, and its place in the report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaError
from mirror.groups.bundles import Committed
from mirror.groups.commit_decision import NEVER, Act, CommitDecision, Intent, Observed, Reason, wanted_position
from mirror.groups.positions import GroupPosition, TranslatedPosition, reason_of
from mirror.relay.offsets.copy_count import NO_COPIES, CopyCount
from mirror.relay.offsets.index import Translation

_NOTHING: Final = CommitDecision(Act.NOTHING)
_COUNTED: Final = (None, Reason.NOT_COPIED, Reason.NOT_COPIED_BACK)
"""For these reasons the flow knows what a group reads again."""


@dataclass(slots=True)
class GroupPartition:
    """One partition of a group in a round."""

    group: str
    source: TopicPartition
    target: TopicPartition
    committed: OffsetAndMetadata | None
    """What the group has committed on the source; None if it has not."""
    intent: Intent | None
    """The last one that is stored, or the one to store before what is decided is done."""
    continued_at: int | None = None
    """The source offset at which the group continues there; None if it has committed none, or that is not known."""
    translation: Translation | None = None
    """Of ``continued_at``; None if it could not be asked for."""
    copied_to: int = 0
    """The source offset up to which records are known."""
    passed: int = 0
    """Records from ``continued_at`` on that the target has deleted in front of the translation."""
    read_again: CopyCount = NO_COPIES
    """Records in front of ``continued_at`` that are read again from the translation on."""
    at_target: int | None = None
    """The committed offset on the target, also after it was written."""
    moved: bool = False
    """Whether the target has offsets of the group in other partitions that this flow has not written."""
    seen: Observed | None = None
    decision: CommitDecision = _NOTHING
    detail: str = ""
    unread: bool = False
    """Whether it is not known what the group has committed, on either side."""

    @property
    def has_position(self) -> bool:
        """Whether the group has committed something on the source, also if that could not be read."""
        return self.committed is not None or self.unread

    @property
    def is_truncated(self) -> bool:
        """Whether the source has lost records in front of what the group has committed."""
        at = self.continued_at
        return at is not None and self.committed is not None and at != self.committed.offset

    def hold(self, reason: Reason, detail: str) -> None:
        """Do nothing, or record that nothing was done."""
        self.decision, self.detail = CommitDecision(Act.NOTHING, reason=reason), detail

    def fail(self, side: str, error: KafkaError) -> None:
        """Do nothing, because what the group has committed on one side could not be read."""
        self.unread = True
        self.hold(reason_of(error), f"{side}: {error}")


def has_other_metadata(at_source: OffsetAndMetadata | None, at_target: OffsetAndMetadata | None) -> bool:
    """Return whether both sides have committed something, with different metadata."""
    return at_source is not None and at_target is not None and at_source.metadata != at_target.metadata


def moved_groups(rows: Iterable[GroupPartition], at_target: Mapping[str, Committed | KafkaError]) -> set[str]:
    """Return the groups that have offsets on the target that this flow has not written, or that cannot be read now."""
    return {row.group for row in rows if _is_of_others(row, at_target[row.group])}


def _is_of_others(row: GroupPartition, at_target: Committed | KafkaError) -> bool:
    if isinstance(at_target, KafkaError) or row.target in at_target.failed:
        return True
    there = at_target.get(row.target)
    return there is not None and (row.intent is None or not row.intent.is_own(there.offset))


def offset_of(row: GroupPartition) -> OffsetAndMetadata:
    """Return what is committed, with a leader epoch of the target in which its log has reached the offset, if known.

    If the target loses what is in front of the offset, consumers notice that by the epoch (KIP-320).
    """
    position, metadata = row.decision.position, "" if row.committed is None else row.committed.metadata
    assert position is not None  # noqa: S101 - of decide()
    epoch = NEVER if row.intent is None else row.intent.epoch
    return OffsetAndMetadata(position.target, None if epoch == NEVER else epoch, metadata)


def translated_position(row: GroupPartition) -> TranslatedPosition | None:
    """Return the position of ``row``, whatever is decided; None if there is none, or it cannot be translated."""
    if row.seen is None or row.seen.source is None or row.committed is None:
        return None
    position, _ = wanted_position(row.seen, row.seen.source)
    if position is None:
        return None
    if row.seen.translation.offset is None:  # withdrawn: of the target's offset no source offset is known
        position = position._replace(source=row.seen.source)
    lost = row.seen.standing is not None
    return TranslatedPosition(row.group, row.target, position, row.committed.metadata, lost)


def position_of(
    row: GroupPartition, since_ms: int | None, now_ms: int, *, write: bool, stored_ms: int | None = None
) -> GroupPosition:
    """Return ``row`` as a report has it; ``since_ms`` is that of the last report."""
    pending = not write and row.decision.act in {Act.WRITE, Act.DELETE}
    held = row.decision.reason is not None or pending
    return GroupPosition(
        source=row.source,
        target=row.target,
        source_offset=None if row.committed is None else row.committed.offset,
        target_offset=row.at_target,
        reason=row.decision.reason,
        detail=row.detail,
        continued_at=row.continued_at,
        since_ms=(since_ms or now_ms) if held else None,
        stored_ms=stored_ms,
        pending=pending,
        passed=row.passed,
        read_again=row.read_again if row.decision.reason in _COUNTED else NO_COPIES,
    )
