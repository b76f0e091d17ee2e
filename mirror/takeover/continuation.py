"""Decides where a flow continues in one partition that MirrorMaker 2 has copied into. Pure.

::

    stored offset, both logs, progress ──examine──► what is to be read ──match_tail──► settle ──► the position
                                          │                                              │
                                          └──► nothing to take over, copied already      └──► unsettled: why
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import Progress
from mirror.takeover.matching import STORE_FIRST, Match, Pair, Unsettled, anchors_of
from mirror.wire.integers import INT64_MAX

ANCHORS: Final = 16
"""So many offset syncs are tried: compaction may have removed their records from either log."""
RECORDS_IN_FRONT: Final = 500
"""Where no offset sync helps, so many source offsets in front of the stored one are read, too, to find their copies."""


class TakeoverOutcome(enum.StrEnum):
    """What became of a partition. The values are published (``mirror takeover --json``)."""

    SETTLED = "settled"
    """The flow continues at the position."""
    NOTHING_COPIED = "nothing-copied"
    """MirrorMaker 2 has copied nothing: the flow begins as it is configured."""
    COPIED_BY_FLOW = "copied-by-flow"
    """The flow has copied records behind its progress: it was taken over before."""
    UNSETTLED = "unsettled"
    """No position is right for certain: the flow has none."""


class SourceLog(NamedTuple):
    """The log of a source partition now."""

    first: int
    stable_end: int
    """The last stable offset."""
    end: int
    """The high watermark."""
    leader_epoch: int | None
    topic_id: str


class TargetLog(NamedTuple):
    """The log of a target partition now."""

    first: int
    end: int
    """Open transactions included."""
    leader_epoch: int | None
    topic_id: str
    stable_end: int = INT64_MAX
    """The last stable offset, if transactions matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about a partition before anything of its logs is read."""

    source: TopicPartition
    target: TopicPartition
    stored: int | None
    """The offset of the last record that MirrorMaker 2 has stored as copied; None: it has stored none."""
    source_log: SourceLog
    target_log: TargetLog | None
    """None: the target has no such partition."""
    progress: Progress | None = None
    """The flow's own."""
    pairs: tuple[Pair, ...] = ()
    """The offset syncs, in the order of their log."""
    append_time: bool = False
    """Whether the target's brokers replace timestamps."""
    compacted: bool = False
    """Whether the target may have removed records that later ones with the same key follow."""
    others_write: bool = False
    """Whether it is known that records without any copy are those of others, and MirrorMaker 2 has copied nothing."""


class Reading(NamedTuple):
    """What is to be read of both logs."""

    source_start: int
    target_start: int | None
    """None: to be found by the time of the source's record at ``source_start``."""
    anchors: tuple[Pair, ...] = ()
    """Both logs are read from the first of these pairs on whose two records are there and equal: behind it, they
    correspond."""
    anchored: bool = False
    """Whether no copy of what is read of the source is in front of what is read of the target, although there is no
    pair that can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What becomes of a partition: where the flow continues, or why it does not."""

    source: TopicPartition
    target: TopicPartition
    outcome: TakeoverOutcome
    stored: int | None
    next_offset: int | None = None
    """The source offset at which the flow continues; None unless it is settled, or the flow's own."""
    target_log: TargetLog | None = None
    source_log: SourceLog | None = None
    match: Match | None = None
    """What was found in the target's log."""
    anchor: Pair | None = None
    """The offset sync behind which the logs were compared."""
    reason: str = ""
    """Why it is unsettled."""
    notes: tuple[str, ...] = field(default=())
    """What else the user should know."""


def examine(facts: Facts) -> Continuation | Reading:
    """Return the decision if nothing needs to be read, else what to read."""
    stored, source, target = facts.stored, facts.source_log, facts.target_log
    progress = facts.progress
    if progress is not None and _has_copied(progress) and (stored is None or stored < progress.offset):
        return decided(facts, TakeoverOutcome.COPIED_BY_FLOW, next_offset=progress.offset)
    if stored is None and (target is None or target.end == 0):
        return decided(facts, TakeoverOutcome.NOTHING_COPIED)
    if target is None:
        return unsettled(
            facts,
            f"MirrorMaker 2 has copied up to offset {stored}, and the target has no {facts.target}: compare the flow's"
            " naming with MirrorMaker 2's; if the copy was deleted, the flow begins as it is configured",
        )
    if is_open(facts):
        return unsettled(
            facts,
            f"a transaction is open in the target from offset {target.stable_end} on: take the partition over once it"
            " has ended",
        )
    if stored is not None and stored >= source.end:
        return unsettled(
            facts,
            f"the source's log ends at offset {source.end}, and MirrorMaker 2 has copied up to {stored}: the source was"
            " made again, or has lost records; exclude the topic from the flow, or delete it on the target, where the"
            " flow then begins as it is configured",
        )
    return _reading(facts, target)


def _reading(facts: Facts, target: TargetLog) -> Reading | Continuation:
    source = facts.source_log
    if facts.stored is None:
        if target.first > 0:
            return unsettled(
                facts,
                f"MirrorMaker 2 has stored no position, and the target's log begins at {target.first}: what it had"
                f" copied in front of that cannot be known; {STORE_FIRST}",
            )
        return Reading(source.first, target.first, anchored=True)
    anchors = anchors_of(facts.pairs, facts.stored)
    if not anchors or not target.first <= anchors[0].target < target.end:
        return without_anchor(facts)
    if anchors[0].source < source.first:
        # What follows it in the source is deleted, but what was copied of the rest is behind it in the target.
        return Reading(source.first, anchors[0].target + 1, anchored=True)
    usable = (one for one in anchors if one.source >= source.first and one.target >= target.first)
    return Reading(anchors[0].source, anchors[0].target, tuple(islice(usable, ANCHORS)))


def without_anchor(facts: Facts) -> Reading:
    """Return what to read if no offset sync can be used."""
    stored = -1 if facts.stored is None else facts.stored
    return Reading(max(facts.source_log.first, stored - RECORDS_IN_FRONT), None)


def is_open(facts: Facts) -> bool:
    """Return whether a transaction is open in the target: what is behind its first record is not decided."""
    return facts.target_log is not None and facts.target_log.stable_end < facts.target_log.end


def _has_copied(progress: Progress) -> bool:
    """Whether the flow itself has appended: the progress of a takeover has an exact mark without an append."""
    return progress.way is Way.SEQUENCES or progress.target is None or progress.target.producer_id >= 0


# Invariant: Without a stored position and a copy, records in the target are not taken for those of others: they may be
#   copies of what the source has deleted.
# Test: tests/takeover/test_unmatched_on_fakes.py::test_without_a_position_records_of_others_are_not_taken_for_nothing
# Test: tests/takeover/
#   test_unmatched_on_fakes.py::test_copies_that_the_source_has_compacted_away_are_named_and_the_rest_is_copied
def settle(facts: Facts, found: Match | Unsettled, anchor: Pair | None) -> Continuation:
    """Return the decision after the logs were compared, behind ``anchor`` if it was right."""
    if isinstance(found, Unsettled):
        return unsettled(facts, found.reason)
    source = facts.source_log
    if facts.stored is None:
        if not found.copies and not found.unmatched:
            # Markers only: a fence has ended a transaction in which nothing was written, or nothing is committed.
            return decided(facts, TakeoverOutcome.NOTHING_COPIED)
        if found.unmatched and not found.copies and not facts.others_write and source.first < source.end:
            return unsettled(
                facts,
                f"MirrorMaker 2 has stored no position, and none of the target's {found.unmatched} records is a copy of"
                " a record that the source has now: either others have written them, or the source has deleted what"
                " MirrorMaker 2 had copied, by retention or compaction; if it is right to copy the source from its"
                " beginning, use --unmatched-from-start, otherwise exclude the topic from the flow",
            )
        found = found._replace(next_offset=max(found.next_offset, source.first))
    if found.next_offset > source.stable_end:
        return unsettled(
            facts,
            f"MirrorMaker 2 has copied up to offset {found.next_offset}, and a transaction is open in the source from"
            f" {source.stable_end} on: take the partition over once it has ended",
        )
    notes: list[str] = []
    if found.next_offset < source.first:
        notes.append(
            f"the source has deleted offsets {found.next_offset} to {source.first - 1}, which were not copied: on-gap"
            " decides whether the flow continues"
        )
    if found.may_double:
        notes.append(
            f"{found.may_double} records of the target may be copies of records that the flow copies again: they equal"
            " others, or are not in the source's order"
        )
    return decided(
        facts, TakeoverOutcome.SETTLED, next_offset=found.next_offset, match=found, anchor=anchor, notes=tuple(notes)
    )


def decided(
    facts: Facts,
    outcome: TakeoverOutcome,
    *,
    next_offset: int | None = None,
    match: Match | None = None,
    anchor: Pair | None = None,
    notes: tuple[str, ...] = (),
) -> Continuation:
    """Return a decision about the partition of ``facts``."""
    return Continuation(
        source=facts.source,
        target=facts.target,
        outcome=outcome,
        stored=facts.stored,
        next_offset=next_offset,
        source_log=facts.source_log,
        target_log=facts.target_log,
        match=match,
        anchor=anchor,
        notes=notes,
    )


def unsettled(facts: Facts, reason: str) -> Continuation:
    """Return the decision that the partition is left out."""
    return unreadable(facts.source, facts.target, facts.stored, reason)


def unreadable(source: TopicPartition, target: TopicPartition, stored: int | None, reason: str) -> Continuation:
    """Return the decision that a partition is left out of which nothing more is known."""
    return Continuation(source=source, target=target, outcome=TakeoverOutcome.UNSETTLED, stored=stored, reason=reason)
