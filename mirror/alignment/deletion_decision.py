"""Decides what becomes of a topic that a flow has created, by what the source says about its source topic. Pure.

A topic is deleted only if it is the one that the flow has created (by its id), and its source topic was missing in two
rounds in a row, of the same cluster, at each of its brokers; and only if no more topics are than the limit allows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mirror.alignment.inventory_records import CreatedTopic, Inventory
from mirror.alignment.reconciler import Failure

CONFIRM_MS: Final = 10_000
"""The shortest time between the two rounds that see that a source topic does not exist."""
LIMIT_PERIOD_MS: Final = 60 * 60 * 1000
"""So long deletions count for the limit: topics that vanish one after the other are as suspicious as all at once."""
SETTLE_MS: Final = 5 * 60 * 1000
"""After this time no copy of the deleted topic writes records about it any more, and they are removed once more."""


class Act(enum.Enum):
    """What is done with a target topic."""

    NOTHING = enum.auto()
    CONFIRM = enum.auto()
    """It is to be deleted, if another round sees that its source topic does not exist."""
    DELETE = enum.auto()
    CLEAN = enum.auto()
    """It was deleted: the flow's records about it are removed."""
    FORGET = enum.auto()
    """It was deleted, and nothing about it is left but that."""


class Reason(enum.StrEnum):
    """Why a topic whose source topic does not exist, or may not exist, is kept; the values are for users."""

    OVER_LIMIT = "over-limit"
    """More topics are to be deleted than max-deletions."""
    SOURCE_RECREATED = "source-recreated"
    """The source topic was created again under another id, and the copy has not gone on with that one."""
    NOT_CREATED = "not-created-by-flow"
    """The flow has not created this topic."""
    CREATION_UNKNOWN = "creation-interrupted"
    """The flow began to create a topic of this name; it is not known whether it has created this one."""
    NOT_SELECTED = "not-selected"
    """The flow does not copy the source topic any more."""
    SOURCE_EMPTY = "source-shows-no-topics"
    OTHER_CLUSTER = "other-source-cluster"
    """The source is another cluster than when the topic was created."""
    NOT_VISIBLE = "not-visible"
    """The permission Describe on the source topic is missing."""
    UNCERTAIN = "uncertain"
    """Not each broker of the source says that the topic does not exist."""


NO_DRIFT: Final = frozenset({Reason.NOT_CREATED, Reason.CREATION_UNKNOWN, Reason.NOT_SELECTED})
"""Such topics are not the flow's to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a round sees of a topic that the flow has created."""

    record: CreatedTopic
    source_id: str | None
    """The id of the source topic; None if the source does not show it."""
    doubt: Reason | None = None
    """Why it may exist although the source does not show it."""
    target_id: str | None
    """The id of the target topic of this name; None if there is none."""
    target_doubt: Failure | None = None
    """Why that is not known."""
    selected: bool = True
    """Whether the flow copies the source topic into this one."""
    settled_id: str | None = None
    """The id of the source topic that the whole progress of the copy is about; None if it differs, or is not known."""


class Decision(NamedTuple):
    """What is done; with a reason, nothing is, although the source topic is not there."""

    act: Act
    record: CreatedTopic
    """What the inventory is to have from now on, before the topic is deleted."""
    reason: Reason | Failure | None = None


def decide(seen: Seen, now_ms: int) -> Decision:
    """Decide about one topic; the limit is :func:`within_limit`."""
    record = seen.record
    if record.deleted_ms:
        return Decision(Act.NOTHING if seen.target_doubt is not None else _after_deletion(seen, now_ms), record)
    if seen.source_id is not None:
        return Decision(Act.NOTHING, _present(seen, seen.source_id))
    if doubt := seen.doubt or seen.target_doubt:
        return Decision(Act.NOTHING, replace(record, gone_ms=0), doubt)
    if reason := _kept(seen):
        return Decision(Act.NOTHING, record, reason)
    if is_confirmed(record.gone_ms, now_ms):
        return Decision(Act.DELETE, replace(record, deleting=True))
    return Decision(Act.CONFIRM, replace(record, gone_ms=first_seen_ms(record.gone_ms, now_ms)))


# Invariant: Absence is proved, not concluded: two rounds in a row see it, each by every live broker, and a topic that
#   may not be described or a source that shows no topics proves nothing.
# Test: tests/alignment/deletions/test_deletion_decision.py::test_nothing_is_deleted_that_was_not_missing_twice_in_a_row
# Test: tests/alignment/deletions/test_half_started_on_brokers.py::test_of_three_brokers_one_alone_deletes_nothing
# Test: tests/alignment/deletions/
#   test_deletions_on_fakes.py::test_a_broker_that_does_not_know_of_a_deletion_keeps_the_topic
# Test: tests/alignment/deletions/test_deletions_on_fakes.py::test_a_topic_that_may_not_be_described_any_more_is_kept
# Test: tests/alignment/deletions/test_deletions_on_fakes.py::test_a_source_that_shows_no_topics_deletes_nothing
def is_confirmed(first_ms: int, now_ms: int) -> bool:
    """Return whether a round at ``now_ms`` is the second one that sees the same; ``first_ms`` is 0 for the first."""
    return bool(first_ms) and now_ms - first_ms >= CONFIRM_MS


def first_seen_ms(first_ms: int, now_ms: int) -> int:
    """Return when a round first saw it. A clock that was set back must not make the second round the first one."""
    return min(first_ms or now_ms, now_ms)


def _present(seen: Seen, source_id: str) -> CreatedTopic:
    """Return the record of a topic whose source topic exists, under the id that it had or another one."""
    record = seen.record
    # A deletion may have been done: then the flow's records about the topic go before it is created again.
    here = replace(record, gone_ms=0, deleting=record.deleting and seen.target_id != record.topic_id)
    if source_id == record.source.topic_id:
        return replace(here, again="")
    if seen.settled_id == source_id:
        return replace(here, again="", source=replace(record.source, topic_id=source_id))
    return replace(here, again=source_id)


def _kept(seen: Seen) -> Reason | None:
    """Return why a topic is kept although its source topic does not exist."""
    record = seen.record
    if not seen.selected:
        return Reason.NOT_SELECTED
    if seen.target_id is not None and seen.target_id != record.topic_id:
        return Reason.NOT_CREATED
    return Reason.SOURCE_RECREATED if record.again and seen.settled_id != record.again else None


def _after_deletion(seen: Seen, now_ms: int) -> Act:
    record = seen.record
    if seen.target_id is not None:
        # Brokers still show it, or others have created a topic of this name: what is stored may be about that one.
        return Act.NOTHING if seen.target_id == record.topic_id else Act.FORGET
    settled_ms = record.deleted_ms + SETTLE_MS
    if not record.cleaned_ms or record.cleaned_ms < settled_ms <= now_ms:
        return Act.CLEAN
    return Act.FORGET if now_ms - record.deleted_ms >= LIMIT_PERIOD_MS else Act.NOTHING


def deleted_lately(known: Inventory, now_ms: int) -> int:
    """Return how many topics were deleted, or lost records by a change of configurations, and still count."""
    times = [
        *(one.deleted_ms for one in known.created.values()),
        *(one.done_ms for one in known.reductions.values()),
    ]
    return sum(bool(time_ms) and now_ms - time_ms < LIMIT_PERIOD_MS for time_ms in times)


# Invariant: More deletions than the limit are none, also if topics vanish one after the other within an hour.
# Test: tests/alignment/deletions/
#   test_deletions_on_fakes.py::test_topics_that_vanish_one_after_the_other_are_over_the_limit_too
# Test: tests/e2e/test_stream_in_step.py::test_a_stream_deletes_nothing_over_the_limit_until_a_command_does
# Test: tests/e2e/test_stream_in_step.py::test_a_stream_deletes_what_its_source_deletes_and_keeps_topics_of_others
def within_limit(wanted: int, lately: int, limit: int) -> bool:
    """Return whether ``wanted`` topics may be deleted, or one of them after the other: all, or none.

    Those that another round has to confirm count, too.
    """
    return wanted + lately <= limit


def over_limit(flow: str, wanted: int, lately: int, limit: int, does: str) -> str:
    """Return what to say of more topics than the limit allows; ``does`` is what the command does."""
    earlier = f", {lately} deleted within the last hour" if lately else ""
    return (
        f"{wanted} to delete{earlier}, and the limit is {limit}: mirror apply --flow {flow} --max-deletions {wanted}"
        f" {does}"
    )
