"""Decides whether a target topic is a flow's own. Pure.

A flow has strong rights on its target, and a name says nothing about whose topic it is: with ``naming = "identity"``
the target's own topic may have the name of a source topic. What extends, configures, grants, deletes, or copies a first
record asks here, by the topic's id.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from mirror.relay.progress.committed import Progress


class Standing(enum.Enum):
    """What a target topic is to a flow."""

    OWNED = enum.auto()
    """The flow has created it or copies into it, or a person has adopted it: it may be extended and configured."""
    EMPTY = enum.auto()
    """It has never had a record: the flow may copy into it as it is, and owns it from its first progress on."""
    FOREIGN = enum.auto()
    """It holds records that the flow has not copied, or did."""
    OF_OTHER = enum.auto()
    """It is the flow's copy of another source topic than the one that has its name now."""
    UNREAD = enum.auto()
    """Nothing shows that the flow owns it, and whether it holds records could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What shows whose a target topic is, and of which source topic it is the copy."""

    topic_id: str
    """Its id; empty on brokers without topic ids."""
    claimed_ids: Collection[str] = ()
    """The ids under which the inventory says that the flow has created a topic of this name, or a person adopted it."""
    progress: Collection[Progress] = ()
    """The flow's progress in its partitions, committed or from the progress topic."""
    source: str = ""
    """The source topic that the flow is to copy into it; empty if that does not matter."""
    created_of: str = ""
    """The source topic of which the flow has created it, under its present id; empty if that is not known."""
    has_records: bool | None = True
    """Whether a partition holds records, or did; None if that could not be read."""


def is_owned(evidence: Evidence) -> bool:
    """Return whether the flow owns the topic: under its present id, as far as the brokers have ids."""
    return _is_known(evidence) and not other_source(evidence)


def needs_no_progress(evidence: Evidence) -> bool:
    """Return whether the inventory alone shows that the flow owns the topic, as the copy of its source topic."""
    return evidence.topic_id in evidence.claimed_ids and evidence.source in {"", evidence.created_of}


def other_source(evidence: Evidence) -> str:
    """Return the source topic of which the topic is the copy, if it is another one; else nothing.

    Progress knows it better than the inventory: a copy that has started over has another source than the topic had when
    it was created. Where partitions differ, one that is of the source topic shows that this is wanted.
    """
    copied = {one.source_topic for one in evidence.progress if _is_of(one, evidence.topic_id)} - {""}
    found = copied or {evidence.created_of} - {""}
    return "" if not evidence.source or not found or evidence.source in found else min(found)


def _is_known(evidence: Evidence) -> bool:
    return evidence.topic_id in evidence.claimed_ids or any(_is_of(one, evidence.topic_id) for one in evidence.progress)


# Invariant: A flow changes nothing about a topic that is not its own, by evidence about the topic's present id.
# Test: tests/alignment/test_ownership.py::test_only_evidence_of_the_present_id_counts
# Test: tests/alignment/test_authority_on_fakes.py::test_a_topic_of_the_target_s_own_gets_no_partitions_and_no_records
# Test: tests/alignment/test_authority_on_brokers.py::test_topics_of_brokers_and_of_the_target_s_own_stay_as_they_are
def standing(evidence: Evidence) -> Standing:
    """Return what the topic is to the flow."""
    if _is_known(evidence) and other_source(evidence):
        return Standing.OF_OTHER
    if is_owned(evidence):
        return Standing.OWNED
    if evidence.has_records is None:
        return Standing.UNREAD
    return Standing.FOREIGN if evidence.has_records else Standing.EMPTY


def _is_of(progress: Progress, topic_id: str) -> bool:
    """Return whether the progress is of the topic with this id. Of a target without ids, marks have none."""
    marked = "" if progress.target is None else progress.target.topic_id
    return not marked or not topic_id or marked == topic_id
