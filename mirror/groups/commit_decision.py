"""Decides what is committed on the target for one partition of a group. Pure.

The offset on the target is replaced only if this flow has written it: a consumer with assigned partitions makes its
group look empty, so that any other offset there may be a consumer's own. For the way back, source and target change
places.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.relay.offsets.index import Place, Translation
from mirror.wire.integers import INT64_MAX

NEVER: Final = -1
"""No offset, in an :class:`Intent`."""
ANY_SOURCE: Final = INT64_MAX
"""Stands for an unknown source offset, in front of which every other one is."""
_MAX_OTHERS: Final = 4
"""So many offsets are remembered that an earlier writer may still commit: one for each run that ended in between."""
_LATE_MS: Final = 15 * 60_000
"""For so long they are remembered: what an operator sets later is not taken for a commit that has arrived late."""


class Reason(enum.StrEnum):
    """Why a group's position on the target is not that on the source. The values are published."""

    NOT_COPIED = "not-copied-yet"
    """The records in front of the position are not all copied: the target's position is where the copy ends."""
    NOT_COPIED_BACK = "not-copied-back"
    """The target has records that the flow in the other direction has not copied: its position is in front of them."""
    ACTIVE = "active-on-target"
    """The group has members on the target."""
    TAKEN_OVER = "taken-over"
    """The offset on the target is not one that this flow has written."""
    BEHIND = "behind-target"
    """The position on the target is further."""
    UNKNOWN = "unknown-offset"
    """The offset cannot be translated."""
    TRUNCATED = "truncated-on-source"
    """The source has lost records in front of the position: the target's is where they were, as the source's is."""
    PASSED = "passes-over-records"
    """The target has deleted records that the group has not read: its position is behind them."""
    DELETED = "deleted-on-source"
    """The source's group has no offset for the partition any more."""
    NOT_SUPPORTED = "not-supported"
    """It is a share group, a streams group, or of another kind that has no committed offsets of this form."""
    NO_CONSUMERS = "no-consumer-group"
    """It is a group of other programs than consumers, which has no positions: Connect's workers, a schema registry."""
    UNAUTHORIZED = "unauthorized"
    """A permission is missing."""
    UNAVAILABLE = "coordinator-unavailable"
    """The group's coordinator did not answer."""
    NO_PARTITION = "no-partition"
    """One of the clusters does not have the partition: the flow has not made it yet, or its topic was deleted."""
    REFUSED = "refused"
    """The target has refused the commit for another reason."""
    OTHER_RUN = "other-run"
    """Another run of the flow writes the groups."""


class Intent(NamedTuple):
    """What this flow was about to commit last for a partition of a group, and what it replaces.

    It is stored before the commit. Until that is known to have succeeded, both offsets are this flow's own.
    """

    source: int
    """The source offset that ``target`` is a translation of."""
    target: int
    previous_source: int = NEVER
    previous: int = NEVER
    """The target's offset before, with its source offset; :data:`NEVER` if there was none."""
    epoch: int = NEVER
    """A leader epoch of the target partition that has records, in which its log was seen to reach ``target``."""
    others_until_ms: int = 0
    """Until when ``others`` are remembered (ms since 1970)."""
    others: tuple[int, ...] = ()
    """Earlier intents whose commits may still arrive, because their outcome is not known."""

    def at(self, now_ms: int) -> Intent:
        """Return what of the intent counts at this time (ms since 1970)."""
        if now_ms < self.others_until_ms or not (self.others or self.others_until_ms):
            return self
        return self._replace(others_until_ms=0, others=())

    # Invariant: What a consumer commits on the target is kept, also during a long translation, and also a reset to an
    #   earlier position of this flow: a commit that has succeeded is stored again without what it replaced.
    # Test: tests/groups/test_sync_on_fakes.py::test_a_reset_on_the_target_to_what_this_flow_wrote_before_is_kept
    # Test: tests/groups/
    #   test_sync_after_crashes.py::test_a_round_stores_with_its_intents_that_the_commits_before_have_succeeded
    # Test: tests/groups/test_sync_on_fakes.py::test_an_offset_that_a_consumer_commits_during_a_long_translation_is_kept
    def settled(self) -> Intent:
        """Return the intent once its commit has succeeded.

        If what it has replaced is there again, this flow has not put it there.
        """
        if self.is_settled:
            return self
        source, target, _, _, epoch, until_ms, others = self
        return Intent(source, target, NEVER, NEVER, epoch, until_ms, others)  # _replace() takes longer

    @property
    def is_settled(self) -> bool:
        """Whether it is stored that the commit has succeeded."""
        return self.previous == self.previous_source == NEVER

    def is_own(self, offset: int) -> bool:
        """Whether ``offset`` is on the target because of this flow."""
        return offset in (self.target, self.previous) or offset in self.others

    def source_of(self, offset: int) -> int:
        """Return the source offset of which ``offset`` was a translation.

        An offset that has arrived late was replaced by a later intent already: it never holds that up.
        """
        if offset == self.target:
            return self.source
        return self.previous_source if offset == self.previous else ANY_SOURCE


class Position(NamedTuple):
    """An offset to commit on the target, and the source offset that it stands for."""

    source: int
    target: int


class Act(enum.Enum):
    """What is to be done."""

    NOTHING = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()
    """Delete the target's offset, and forget the intent."""
    FORGET = enum.auto()
    """Neither side has an offset: forget the intent."""


class CommitDecision(NamedTuple):
    """What is done now, and why the target's position is not the source's; None if it is, or is about to be."""

    act: Act
    position: Position | None = None
    reason: Reason | None = None


@dataclass(slots=True, kw_only=True)
class Observed:
    """One partition of a group, on both sides. It is not frozen, which takes longer: a round makes thousands."""

    source: int | None
    """The offset at which the group continues on the source; None if it has committed none."""
    target: int | None
    """The committed offset on the target."""
    translation: Translation
    """Of ``source``."""
    copied_to: int = 0
    """The source offset that an offset of ``Place.NOT_COPIED`` stands for."""
    repeats: bool = False
    """Whether the copy may repeat records (at least once): an earlier translation may have been that of a late copy."""
    truncated: bool = False
    """Whether ``source`` is in front of the committed offset, because the source has lost records since."""
    passed: int = 0
    """How many records from ``source`` on the target has deleted in front of the translation."""
    intent: Intent | None = None
    resumed: int | None = None
    """The target's offset at which the user has resumed the group, if no intent has been stored since."""
    waits_for_back: bool = False
    """Whether the flow in the other direction has to copy before the translation goes ahead."""
    left: bool = False
    """Whether the group has left the target from its offset there, for the source."""
    left_from: int | None = None
    """The target's offset from which the other flow has brought the group to the source last."""
    both_directions: bool = False
    """Whether ``translation`` is the lowest position that skips nothing, of several that the group may have had."""
    other_metadata: bool = False
    """Whether what is committed on the target has other metadata than on the source."""
    active: bool = False
    """Whether the group has members on the target."""
    moved: bool = False
    """Whether the group has offsets on the target in other partitions that this flow has not written: it is used there,
    and what it has not committed again, because nothing came, is still its position."""
    standing: int | None = None
    """If the target has lost records in front of its offset: the target offset up to which it has not, 0 if that is
    not known."""

    @property
    def own_source(self) -> int | None:
        """The source offset of the target's offset; None if this flow has not written that. Without one: NEVER."""
        if self.target is None:
            return NEVER
        if self.intent is not None and self.intent.is_own(self.target):
            return self.intent.source_of(self.target)
        return NEVER if self.left or self.target == self.resumed else None


# Invariant: An offset on the target is replaced only if this flow has written it, or if the user resumes the group; no
#   order of events skips a record or overwrites a consumer.
# Test: tests/groups/test_decision_model.py::test_no_order_of_events_skips_a_record_or_overwrites_a_consumer
# Test: tests/copying/test_groups.py::test_a_consumer_continues_on_the_target_with_no_record_skipped
def decide(seen: Observed, *, delete: bool) -> CommitDecision:
    """Return what is to be done. ``delete``: offsets are deleted that the source's group does not have any more."""
    own_source = seen.own_source
    if own_source is None:
        in_step = seen.target == seen.translation.offset and seen.translation.place is not Place.NOT_COPIED
        held = Reason.ACTIVE if seen.active else Reason.TAKEN_OVER
        return CommitDecision(Act.NOTHING, reason=_of_loss(seen) if in_step else held)
    if seen.source is None:
        return _of_deleted(seen, delete=delete)
    wanted, reason = wanted_position(seen, seen.source)
    if seen.both_directions and wanted is not None and _is_further(seen, wanted, own_source):
        return _further(seen, wanted, own_source, reason)
    if seen.active and (wanted is None or wanted.target != seen.target):
        return CommitDecision(Act.NOTHING, reason=Reason.ACTIVE)
    if wanted is None or (wanted.target == seen.target and (seen.active or not seen.other_metadata)):
        return CommitDecision(Act.NOTHING, reason=reason)
    goes_back = seen.target is not None and wanted.target < seen.target
    may_go_back = seen.standing is not None or seen.source < own_source or _would_skip(seen, own_source)
    if goes_back and not may_go_back:
        wanted, reason = None, Reason.BEHIND  # also where less is known as copied now
    return CommitDecision(Act.NOTHING if wanted is None else Act.WRITE, wanted, reason)


def _is_further(seen: Observed, wanted: Position, own_source: int) -> bool:
    """Whether the group has been as far as the target's offset: it has read there what is in front of that."""
    is_behind = seen.target is not None and wanted.target <= seen.target
    is_known = wanted.source >= own_source != NEVER or (seen.left and seen.left_from == seen.target)
    return is_behind and seen.standing is None and is_known


def _further(seen: Observed, wanted: Position, own_source: int, reason: Reason | None) -> CommitDecision:
    """Keep the target's offset. If the group has left from there, it becomes this flow's own."""
    if own_source != NEVER or seen.active or seen.target is None:
        return CommitDecision(Act.NOTHING, reason=reason)
    return CommitDecision(Act.WRITE, Position(wanted.source, seen.target), reason)


def _would_skip(seen: Observed, own_source: int) -> bool:
    """Whether records may be skipped at the target's offset, which this flow has written.

    If the copy repeats records, that was the position of a copy behind those of later records, which does not count.
    """
    return seen.repeats and own_source != NEVER and seen.translation.place in {Place.RECORD, Place.NEXT}


# Invariant: A position goes back only with the source's, or if the target lost records, or if it was at a late copy of
#   a record.
# Test: tests/groups/test_commit_decision.py::test_what_points_behind_a_loss_is_withdrawn
# Test: tests/groups/test_epochs_on_fakes.py::test_an_election_without_a_loss_moves_no_resumed_group_back
# Test: tests/groups/test_repeated_records_on_fakes.py::test_a_position_at_a_late_copy_is_taken_back
def _of_loss(seen: Observed) -> Reason | None:
    if seen.truncated:
        return Reason.TRUNCATED
    return Reason.PASSED if seen.passed else None


def passed_text(count: int, side: str) -> str:
    """Return what a position passes over, for people; ``side`` is that of the log that lacks it."""
    records = "1 record that the group has not read is" if count == 1 else f"{count:,} records not read yet are"
    return f"{records} deleted on the {side}"


def _of_deleted(seen: Observed, *, delete: bool) -> CommitDecision:
    if seen.target is None:
        return CommitDecision(Act.FORGET)
    if delete and seen.active:
        return CommitDecision(Act.NOTHING, reason=Reason.ACTIVE)
    if delete and seen.moved:
        return CommitDecision(Act.NOTHING, reason=Reason.TAKEN_OVER)
    return CommitDecision(Act.DELETE if delete else Act.NOTHING, reason=Reason.DELETED)


def wanted_position(seen: Observed, source: int) -> tuple[Position | None, Reason | None]:
    """Return the position that a group at ``source`` would have on the target now, and why it is not the source's."""
    place, offset = seen.translation
    if place is Place.NOT_COPIED:
        reason: Reason | None = Reason.NOT_COPIED_BACK if seen.waits_for_back else Reason.NOT_COPIED
    else:
        reason = Reason.UNKNOWN if place is Place.UNKNOWN else _of_loss(seen)
    if offset is not None:
        return Position(seen.copied_to if place is Place.NOT_COPIED else source, offset), reason
    if seen.standing is not None and seen.target is not None and 0 < seen.standing < seen.target:
        # What is behind the loss is withdrawn, also while it cannot be translated: it may point behind other records.
        return Position(source if seen.own_source is None else seen.own_source, seen.standing), reason
    return None, reason


def next_intent(seen: Observed, wanted: Position, *, epoch: int, now_ms: int) -> Intent:
    """Return the intent to store before ``wanted`` is committed, at ``now_ms`` since 1970."""
    last = None if seen.intent is None else seen.intent.at(now_ms)
    previous = NEVER if seen.target is None else seen.target
    others, until_ms = ((), 0) if last is None else (last.others, last.others_until_ms)
    if last is not None and seen.target != last.target:
        others, until_ms = tuple(dict.fromkeys((*others, last.target)))[-_MAX_OTHERS:], now_ms + _LATE_MS
    # What points behind a loss may be replaced by any position, also if this commit does not arrive.
    before = ANY_SOURCE if seen.standing is not None else seen.own_source
    return Intent(wanted.source, wanted.target, NEVER if before is None else before, previous, epoch, until_ms, others)
