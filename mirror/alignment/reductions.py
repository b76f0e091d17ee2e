"""Decides about changes of configurations that make brokers delete records, as about deletions of topics. Pure.

What such a change deletes is as lost as with its topic. So two rounds in a row have to see the same, the records have
to be those of the source topic that there is now, and topics count for the limit of deletions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from mirror.alignment.decision import Reason
from mirror.alignment.deletions.decision import (
    deleted_lately,
    first_seen_ms,
    is_confirmed,
    over_limit,
    within_limit,
)
from mirror.alignment.deletions.records import CreatedTopic, Creations, Reduction
from mirror.relay.progress.committed import Progress


class ReductionRules(NamedTuple):
    """How many topics lose records by changes of their configurations."""

    limit: int = 0
    """At a time, and within an hour, together with deletions of topics."""
    by_hand: bool = False
    """Whether a user has given the limit for this round: earlier deletions do not count."""


NO_REDUCTIONS: Final = ReductionRules()


class Verdict(NamedTuple):
    """What is done about a topic; with a reason, nothing is."""

    record: Reduction
    """What the inventory is to have from now on, before the change is made."""
    reason: Reason | None = None
    detail: str = ""


def decide_reductions(
    topics: Mapping[str, tuple[str, bool]], known: Creations, rules: ReductionRules, flow: str, now_ms: int
) -> dict[str, Verdict]:
    """Decide about target ``topics``: for each its id, and whether its records are :func:`of_same_source`."""
    records = {name: _record_of(known, name, topic_id) for name, (topic_id, _) in topics.items()}
    wanted = [name for name, (_, same) in topics.items() if same]
    lately = 0 if rules.by_hand else deleted_lately(known, now_ms)
    fits = within_limit(len(wanted), lately, rules.limit)
    detail = over_limit(flow, len(wanted), lately, rules.limit, "makes the changes")
    found = {}
    for name, record in records.items():
        seen = replace(record, seen_ms=first_seen_ms(record.seen_ms, now_ms))
        if name not in wanted:
            found[name] = Verdict(
                replace(record, seen_ms=0), Reason.SOURCE_RECREATED, "the copied records are of another topic"
            )
        elif not fits:
            found[name] = Verdict(seen, Reason.OVER_LIMIT, detail)
        elif is_confirmed(record.seen_ms, now_ms):
            found[name] = Verdict(Reduction(topic_id=record.topic_id, done_ms=now_ms))
        else:
            found[name] = Verdict(seen, Reason.CONFIRMING)
    return found


def of_same_source(progress: Collection[Progress], created: CreatedTopic | None, source_id: str) -> bool:
    """Return whether a target topic's records are those of the source topic with this id, or it has none.

    ``progress`` is that of its partitions, ``created`` its record if the flow has created it.
    """
    if progress:
        return all(one.topic_id in {"", source_id} for one in progress)
    return created is not None and created.source.topic_id == source_id


def _record_of(known: Creations, name: str, topic_id: str) -> Reduction:
    found = known.reductions.get(name)
    return found if found is not None and found.topic_id == topic_id else Reduction(topic_id=topic_id)
