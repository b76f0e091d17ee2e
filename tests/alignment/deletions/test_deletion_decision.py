"""Which created topics are deleted: single cases, and a model of a source that changes between rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.alignment.deletion_decision import (
    CONFIRM_MS,
    LIMIT_PERIOD_MS,
    SETTLE_MS,
    Act,
    Reason,
    Seen,
    decide,
    deleted_lately,
    within_limit,
)
from mirror.alignment.inventory_records import CreatedTopic, Inventory, Key, Reduction, SourceTopic, Subject

SOURCE = SourceTopic(name="t", topic_id="s1", cluster_id="paris")
RECORD = CreatedTopic(topic_id="x1", source=SOURCE)
GONE = Seen(record=RECORD, source_id=None, target_id="x1")
NOW_MS = 1_800_000_000_000


def test_a_topic_is_deleted_in_the_second_round_that_does_not_find_its_source_topic() -> None:
    first = decide(GONE, NOW_MS)
    assert (first.act, first.reason) == (Act.CONFIRM, None)
    soon = decide(replace(GONE, record=first.record), NOW_MS + CONFIRM_MS - 1)
    assert (soon.act, soon.record) == (Act.CONFIRM, first.record)
    second = decide(replace(GONE, record=soon.record), NOW_MS + CONFIRM_MS)
    assert (second.act, second.record.deleting) == (Act.DELETE, True)


def test_a_doubt_between_two_rounds_makes_the_second_the_first_one() -> None:
    first = decide(GONE, NOW_MS).record
    doubted = decide(replace(GONE, record=first, doubt=Reason.UNCERTAIN), NOW_MS + CONFIRM_MS).record
    assert decide(replace(GONE, record=doubted), NOW_MS + 2 * CONFIRM_MS).act is Act.CONFIRM


def test_a_deletion_that_was_not_done_is_given_up_once_the_source_topic_is_there() -> None:
    deleting = replace(RECORD, gone_ms=1, deleting=True)
    assert not decide(Seen(record=deleting, source_id="s1", target_id="x1"), NOW_MS).record.deleting
    assert decide(Seen(record=deleting, source_id="s1", target_id=None), NOW_MS).record.deleting


def test_a_clock_that_was_set_back_does_not_confirm_and_begins_again() -> None:
    first = decide(GONE, NOW_MS).record
    back = decide(replace(GONE, record=first), NOW_MS - 60_000)
    assert (back.act, back.record.gone_ms) == (Act.CONFIRM, NOW_MS - 60_000)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(GONE, doubt=Reason.SOURCE_EMPTY), Reason.SOURCE_EMPTY),
        (replace(GONE, doubt=Reason.NOT_VISIBLE), Reason.NOT_VISIBLE),
        (replace(GONE, selected=False), Reason.NOT_SELECTED),
        (replace(GONE, target_id="x2"), Reason.NOT_CREATED),
        (replace(GONE, record=replace(RECORD, again="s2")), Reason.SOURCE_RECREATED),
        (replace(GONE, record=replace(RECORD, again="s2"), settled_id="s1"), Reason.SOURCE_RECREATED),
    ],
)
def test_a_topic_is_kept_with_a_reason(seen: Seen, reason: Reason) -> None:
    confirmed = replace(seen, record=replace(seen.record, gone_ms=1))
    decision = decide(confirmed, NOW_MS)
    assert (decision.act, decision.reason) == (Act.NOTHING, reason)
    assert not decision.record.deleting


def test_a_source_topic_that_was_created_again_is_settled_by_the_progress() -> None:
    again = decide(replace(GONE, source_id="s2"), NOW_MS).record
    assert (again.again, again.source.topic_id) == ("s2", "s1")
    settled = decide(replace(GONE, record=again, source_id="s2", settled_id="s2"), NOW_MS).record
    assert (settled.again, settled.source.topic_id) == ("", "s2")
    settled_by_progress = replace(GONE, record=replace(again, gone_ms=1), settled_id="s2")
    assert decide(settled_by_progress, NOW_MS).act is Act.DELETE


def test_what_is_stored_about_a_deleted_topic_is_removed_at_once_and_once_more_later() -> None:
    deleted = replace(RECORD, deleting=True, deleted_ms=NOW_MS)
    gone = Seen(record=deleted, source_id=None, target_id=None)
    assert decide(gone, NOW_MS).act is Act.CLEAN
    cleaned = replace(gone, record=replace(deleted, cleaned_ms=NOW_MS + 1))
    assert decide(cleaned, NOW_MS + SETTLE_MS - 1).act is Act.NOTHING
    assert decide(cleaned, NOW_MS + SETTLE_MS).act is Act.CLEAN
    twice = replace(gone, record=replace(deleted, cleaned_ms=NOW_MS + SETTLE_MS))
    assert decide(twice, NOW_MS + LIMIT_PERIOD_MS - 1).act is Act.NOTHING
    assert decide(twice, NOW_MS + LIMIT_PERIOD_MS).act is Act.FORGET


def test_records_about_a_topic_that_others_have_created_since_are_not_removed() -> None:
    deleted = replace(RECORD, deleting=True, deleted_ms=NOW_MS)
    assert decide(Seen(record=deleted, source_id=None, target_id="x2"), NOW_MS).act is Act.FORGET
    assert decide(Seen(record=deleted, source_id=None, target_id="x1"), NOW_MS).act is Act.NOTHING


def test_all_or_none_are_deleted_and_those_of_the_last_hour_count() -> None:
    known = Inventory()
    for name, at_ms in (("new", NOW_MS - LIMIT_PERIOD_MS + 1), ("old", 1), ("there", 0)):
        known.put(Key(Subject.CREATED, name), replace(RECORD, deleted_ms=at_ms))
        known.put(Key(Subject.REDUCED, name), Reduction(topic_id="x", seen_ms=NOW_MS, done_ms=at_ms))
    assert deleted_lately(known, NOW_MS) == 2, "one deletion, and one reduction"
    assert [within_limit(wanted, 0, 2) for wanted in (1, 2, 3)] == [True, True, False]
    assert not within_limit(1, 1, 1)


_ROUNDS = st.lists(
    st.tuples(
        st.sampled_from([None, None, None, None, "s1", "s2"]),
        st.sampled_from([None, None, None, None, Reason.SOURCE_EMPTY]),
        st.sampled_from(["x1", "x1", "x1", "x1", "x2", None]),
        st.sampled_from([None, "s1", "s2"]),
        st.sampled_from([True, True, True, True, False]),
        st.sampled_from([1, CONFIRM_MS - 1, CONFIRM_MS]),
    ),
    max_size=12,
)


@given(_ROUNDS)
def test_nothing_is_deleted_that_was_not_missing_twice_in_a_row(
    rounds: list[tuple[str | None, Reason | None, str | None, str | None, bool, int]],
) -> None:
    """The model counts for how long the topic was missing beyond doubt, and under which other ids it was there."""
    record, now_ms = RECORD, NOW_MS
    missing_since: int | None = None
    own_id, other_id = "s1", ""
    for source_id, doubt, target_id, settled_id, selected, passed_ms in rounds:
        now_ms += passed_ms
        seen = Seen(
            record=record,
            source_id=source_id,
            doubt=doubt,
            target_id=target_id,
            selected=selected,
            settled_id=settled_id,
        )
        decision = decide(seen, now_ms)
        if source_id is not None:
            own_id = source_id if source_id == settled_id else own_id
            other_id = "" if source_id == own_id else source_id
        if source_id is not None or doubt is not None:
            missing_since = None
        if decision.act in {Act.DELETE, Act.CONFIRM}:
            assert source_id is None
            assert doubt is None
            assert selected
            assert target_id in {None, "x1"}
            assert not other_id or settled_id == other_id
        if decision.act is Act.DELETE:
            assert missing_since is not None
            assert now_ms - missing_since >= CONFIRM_MS
            return
        if decision.act is Act.CONFIRM and missing_since is None:
            missing_since = now_ms
        record = decision.record
