"""Decides about changes of configurations that make brokers delete records, as about deletions of topics. Pure.

What such a change deletes is as lost as with its topic. So two rounds in a row have to see the same values, the records
have to be those of the source topic that there is now, and topics count for the limit of deletions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from mirror.alignment.config_decision import Reason
from mirror.alignment.deletion_decision import (
    deleted_lately,
    first_seen_ms,
    is_confirmed,
    over_limit,
    within_limit,
)
from mirror.alignment.inventory_records import CreatedTopic, Inventory, Reduction
from mirror.relay.progress.committed import Progress


class ReductionRules(NamedTuple):
    """How many topics lose records by changes of their configurations."""

    limit: int = 0
    """At a time, and within an hour, together with deletions of topics."""
    by_hand: bool = False
    """Whether a user has given the limit for this round: earlier deletions do not count."""


NO_REDUCTIONS: Final = ReductionRules()
_FOREIGN: Final = {
    Reason.SOURCE_RECREATED: "the copied records are of another topic",
    Reason.NOT_COPIED: "the flow has copied none of its records",
}


class Reducing(NamedTuple):
    """A target topic whose brokers are to delete records by changes of its configuration."""

    topic_id: str
    foreign: Reason | None
    """:func:`why_foreign` its records are."""
    now: Mapping[str, str | None]
    """The values that can be set now, by key; None for the brokers' default."""
    waiting: Mapping[str, str | None]
    """Those that a running copy depends on."""


class Verdict(NamedTuple):
    """What is done about a topic; with a reason, nothing is."""

    record: Reduction
    """What the inventory is to have from now on, before the change is made."""
    reason: Reason | None = None
    detail: str = ""


# Invariant: What makes brokers delete records has the rules and the limit of deletions: two rounds see the same values.
# Test: tests/alignment/test_authority_on_fakes.py::test_the_source_does_not_empty_the_copy
# Test: tests/alignment/test_authority_on_fakes.py::test_both_rounds_see_the_same_values
# Test: tests/alignment/test_authority_on_fakes.py::test_a_stream_that_starts_again_compacts
# Test: tests/alignment/test_authority_on_fakes.py::test_a_limit_of_the_file_is_one_for_each_hour_after_two_rounds
def decide_reductions(
    topics: Mapping[str, Reducing], known: Inventory, rules: ReductionRules, flow: str, now_ms: int
) -> dict[str, Verdict]:
    """Decide about target ``topics``. What waits for a restart counts, so that the next start is a later round."""
    wanted = [name for name, one in topics.items() if one.foreign is None]
    lately = 0 if rules.by_hand else deleted_lately(known, now_ms)
    fits = within_limit(len(wanted), lately, rules.limit)
    detail = over_limit(flow, len(wanted), lately, rules.limit, "makes the changes")
    found = {}
    for name, one in topics.items():
        record = _record_of(known, name, one)
        seen = replace(record, seen_ms=first_seen_ms(record.seen_ms, now_ms))
        if one.foreign is not None:
            found[name] = Verdict(replace(record, seen_ms=0, wanted={}), one.foreign, _FOREIGN[one.foreign])
        elif not fits:
            found[name] = Verdict(seen, Reason.OVER_LIMIT, detail)
        elif not is_confirmed(record.seen_ms, now_ms):
            found[name] = Verdict(seen, Reason.CONFIRMING)
        elif one.waiting:
            found[name] = Verdict(replace(seen, done_ms=now_ms) if one.now else seen)
        else:
            found[name] = Verdict(Reduction(topic_id=record.topic_id, done_ms=now_ms))
    return found


def why_foreign(progress: Collection[Progress], created: CreatedTopic | None, source_id: str) -> Reason | None:
    """Return why a target topic's records may not be those of the source topic with this id; None if they are.

    ``progress`` is that of its partitions, ``created`` its record if the flow has created it. One without both was
    adopted.
    """
    if progress:
        ids = {one.topic_id for one in progress} - {""}
    elif created is not None:
        ids = {created.source.topic_id}
    else:
        return Reason.NOT_COPIED
    return None if ids <= {source_id} else Reason.SOURCE_RECREATED


def _record_of(known: Inventory, name: str, one: Reducing) -> Reduction:
    """Return the record with what is wanted now. If that was not wanted before, no round has seen it."""
    wanted = {**one.now, **one.waiting}
    found = known.reductions.get(name)
    if found is None or found.topic_id != one.topic_id:
        return Reduction(topic_id=one.topic_id, wanted=wanted)
    seen_ms = found.seen_ms if wanted.items() <= found.wanted.items() else 0
    return replace(found, seen_ms=seen_ms, wanted=wanted)
