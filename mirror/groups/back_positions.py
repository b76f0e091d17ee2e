"""Where a group of the target would continue on the source, and whether that is committed there. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mirror.cluster.types import TopicPartition
from mirror.groups.commit_decision import Reason, passed_text
from mirror.relay.offsets.copy_count import NO_COPIES, CopyCount
from mirror.relay.offsets.index import Translation


class BackReason(enum.StrEnum):
    """Why a group's position is not committed on the source. The values are published."""

    ACTIVE = "active-on-source"
    """The group has members on the source."""
    BEHIND = "behind-source"
    """The position on the source is further: the group has read those records there."""
    UNKNOWN = "unknown-offset"
    """The offset cannot be translated."""
    UNAUTHORIZED = "unauthorized"
    """A permission is missing."""
    UNAVAILABLE = "coordinator-unavailable"
    """The group's coordinator did not answer."""
    REFUSED = "refused"
    """The source has refused the commit for another reason."""

    @classmethod
    def of(cls, reason: Reason) -> BackReason:
        """Return what a reason of the target is on the source."""
        return _OF.get(reason, cls.REFUSED)


_OF = {
    Reason.ACTIVE: BackReason.ACTIVE,
    Reason.UNAUTHORIZED: BackReason.UNAUTHORIZED,
    Reason.UNAVAILABLE: BackReason.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackPosition:
    """One partition of a group of the target."""

    group: str
    target: TopicPartition
    source: TopicPartition
    target_offset: int
    """The committed offset."""
    source_offset: int | None
    """What the group has committed on the source; None: nothing, or it could not be read."""
    translation: Translation
    """The source offset of ``target_offset``."""
    reason: BackReason | None = None
    """Why it is not committed, or would not be; None if it is, or would be."""
    detail: str = ""
    metadata: str = ""
    written: bool = False
    """Whether it was committed just now."""
    active_on_target: bool = False
    """Whether the group still has members on the target: what they read from here on is read again on the source."""
    in_front: int = 0
    """Records of the target in front of the position, behind the last known copy: the source does not have them."""
    behind: int = 0
    """The same from the position to the next copy: the group does not read them on the source."""
    passed: int = 0
    """Records from the position on that the source has deleted in front of the translation: the group skips them."""
    may_be_pending: bool = False
    """Whether the source's brokers do not say if the group has an offset there in an open transaction."""
    read_again: CopyCount = NO_COPIES
    """Records of the source from the position on that the group has read on the target."""

    @property
    def is_in_step(self) -> bool:
        """Whether the group would continue on the source at the same record."""
        offset = self.translation.offset
        return offset is not None and offset == self.source_offset and not self.passed

    @property
    def is_due(self) -> bool:
        """Whether it is to be committed."""
        return self.reason is None and self.translation.offset != self.source_offset

    @property
    def remarks(self) -> list[str]:
        """What does not continue as it was: text for people."""
        counted = [
            (self.in_front, "in front of it that are not known as copies: what of them is on the source is read again"),
            (self.behind, "behind it that are not known as copies: the source may not have them"),
        ]
        lines = [f"{count} records of the target {text}" for count, text in counted if count]
        lines += [passed_text(self.passed, "source")] if self.passed else []
        at_most = "" if self.read_again.is_exact else "at most "
        lines += [f"{at_most}{self.read_again.records} records are read again"] if self.read_again.records else []
        if self.may_be_pending and (self.is_due or self.written):
            lines.append(
                "brokers of the source (Apache Kafka before 2.5) do not show offsets in open transactions: commit it"
                " only after the group's programs there have ended"
            )
        lines += ["the group still has members on the target"] if self.active_on_target else []
        return lines


def back_reason(translated: int | None, at_source: int | None, *, active: bool, may_write: bool) -> BackReason | None:
    """Return why a translated position is not committed on the source; None if it is, or can be.

    A position on the source never goes back: the group has read there what is in front of it.
    """
    if translated is None:
        return BackReason.UNKNOWN
    if translated == at_source:
        return None
    if at_source is not None and translated < at_source:
        return BackReason.BEHIND
    if active:
        return BackReason.ACTIVE
    return None if may_write else BackReason.UNAUTHORIZED
