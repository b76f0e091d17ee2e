"""What is committed on the target for one partition of a group: each case by itself."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.groups.commit_decision import (
    ANY_SOURCE,
    NEVER,
    Act,
    CommitDecision,
    Intent,
    Observed,
    Position,
    Reason,
    decide,
    next_intent,
)
from mirror.relay.offsets.index import UNKNOWN, Place, Translation

NOTHING = CommitDecision(Act.NOTHING)
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 1_000


def record(offset: int) -> Translation:
    return Translation(Place.RECORD, offset)


def seen(**values: Any) -> Observed:
    return Observed(**{"source": 137, "target": None, "translation": record(37), **values})


def held(reason: Reason) -> CommitDecision:
    return CommitDecision(Act.NOTHING, reason=reason)


def test_a_group_without_an_offset_on_the_target_gets_the_translated_one() -> None:
    assert decide(seen(), delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


@pytest.mark.parametrize("place", [Place.RECORD, Place.NEXT, Place.END])
def test_an_own_offset_is_replaced_by_a_later_one(place: Place) -> None:
    observed = seen(target=30, intent=Intent(130, 30), translation=Translation(place, 37))
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


def test_nothing_is_written_if_the_offset_is_there_already() -> None:
    assert decide(seen(target=37, intent=Intent(137, 37)), delete=False) == NOTHING


def test_other_metadata_are_written_at_the_same_offset_unless_the_group_has_members_or_was_taken_over() -> None:
    observed = {"target": 37, "intent": Intent(137, 37), "other_metadata": True}
    assert decide(seen(**observed), delete=False) == CommitDecision(Act.WRITE, Position(137, 37))
    assert decide(seen(**observed, active=True), delete=False) == NOTHING
    assert decide(seen(target=37, other_metadata=True), delete=False) == NOTHING


def test_a_position_does_not_go_back_because_less_is_known_as_copied() -> None:
    observed = seen(
        source=206, target=206, intent=Intent(206, 206), translation=Translation(Place.NOT_COPIED, 195), copied_to=195
    )
    assert decide(observed, delete=False) == held(Reason.BEHIND)


@pytest.mark.parametrize("offset", [20, 30, 50])
def test_an_offset_that_this_flow_has_not_written_is_left_alone(offset: int) -> None:
    observed = seen(target=offset, intent=Intent(130, 31, 110, 21))
    assert decide(observed, delete=False) == held(Reason.TAKEN_OVER)
    assert decide(seen(target=offset), delete=True) == held(Reason.TAKEN_OVER)


def test_a_foreign_offset_that_is_the_translated_one_is_in_step() -> None:
    assert decide(seen(target=37), delete=False) == NOTHING


@pytest.mark.parametrize("offset", [21, 31, 25])
def test_after_a_crash_both_offsets_of_the_intent_and_late_ones_are_own(offset: int) -> None:
    observed = seen(target=offset, intent=Intent(130, 31, 110, 21, others=(25,)))
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


def test_what_was_replaced_is_a_takeover_once_the_commit_has_arrived() -> None:
    intent = Intent(130, 31, 110, 21, others=(25,)).settled()
    assert decide(seen(target=21, intent=intent), delete=False) == held(Reason.TAKEN_OVER)
    for offset in (25, 31):
        assert decide(seen(target=offset, intent=intent), delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


def test_a_late_commit_of_an_earlier_intent_is_corrected_also_backwards() -> None:
    observed = seen(target=90, intent=Intent(137, 37, 110, 21, others=(90,)))
    assert observed.own_source == ANY_SOURCE
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


def test_an_active_group_is_left_alone() -> None:
    assert decide(seen(active=True), delete=False) == held(Reason.ACTIVE)
    assert decide(seen(active=True, target=50), delete=False) == held(Reason.ACTIVE)
    assert decide(seen(active=True, target=37, intent=Intent(137, 37)), delete=False) == NOTHING


def test_the_target_goes_back_with_the_source_only() -> None:
    assert decide(seen(target=50, intent=Intent(150, 50)), delete=False) == CommitDecision(Act.WRITE, Position(137, 37))
    assert decide(seen(target=50, intent=Intent(137, 50)), delete=False) == held(Reason.BEHIND)
    assert decide(seen(target=50, intent=Intent(120, 50)), delete=False) == held(Reason.BEHIND)


@pytest.mark.parametrize("place", Place)
def test_if_records_are_repeated_an_exact_position_goes_back_rather_than_to_skip_records(place: Place) -> None:
    """At 50 was a copy of the record at 137 that counts no more: copies of later records are in front of it."""
    observed = {"target": 50, "intent": Intent(137, 50), "translation": Translation(place, 37), "repeats": True}
    found = decide(seen(**observed), delete=False)
    if place in {Place.RECORD, Place.NEXT}:
        assert found == CommitDecision(Act.WRITE, Position(137, 37))
    else:
        assert found == held(Reason.BEHIND)
    assert decide(seen(**{**observed, "intent": None}), delete=False).act is Act.NOTHING
    assert decide(seen(**{**observed, "intent": None, "resumed": 50}), delete=False) == held(Reason.BEHIND)


def test_after_a_crash_the_offset_that_was_to_be_replaced_may_go_back() -> None:
    """The source's group was reset from 200 to 100, and the commit of that was not done; now it is at 137."""
    observed = seen(target=99, intent=Intent(100, 10, 200, 99))
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


def test_a_resumed_group_is_written_once_the_source_has_passed_it() -> None:
    assert decide(seen(target=50, resumed=50), delete=False) == held(Reason.BEHIND)
    observed = seen(target=50, resumed=50, source=160, translation=record(60))
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(160, 60))
    assert decide(seen(target=51, resumed=50), delete=False) == held(Reason.TAKEN_OVER)


def test_an_unknown_offset_is_not_guessed() -> None:
    assert decide(seen(translation=UNKNOWN), delete=False) == held(Reason.UNKNOWN)
    assert decide(seen(translation=UNKNOWN, target=30, intent=Intent(130, 30)), delete=False) == held(Reason.UNKNOWN)


def test_a_position_that_is_not_copied_yet_follows_the_end_of_the_copy() -> None:
    ahead = Translation(Place.NOT_COPIED, 40)
    observed = seen(translation=ahead, copied_to=120, target=30, intent=Intent(110, 30))
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(120, 40), Reason.NOT_COPIED)
    observed = seen(translation=ahead, copied_to=120, target=40, intent=Intent(120, 40))
    assert decide(observed, delete=False) == held(Reason.NOT_COPIED)
    assert decide(seen(translation=Translation(Place.NOT_COPIED, None)), delete=False) == held(Reason.NOT_COPIED)


def test_what_points_behind_a_loss_is_withdrawn() -> None:
    lost = {"target": 50, "intent": Intent(137, 50), "standing": 20}
    assert decide(seen(translation=UNKNOWN, **lost), delete=False) == CommitDecision(
        Act.WRITE, Position(137, 20), Reason.UNKNOWN
    )
    assert decide(seen(**lost), delete=False) == CommitDecision(Act.WRITE, Position(137, 37))
    assert decide(seen(translation=UNKNOWN, **{**lost, "active": True}), delete=False) == held(Reason.ACTIVE)


def test_in_front_of_a_loss_of_the_source_a_group_goes_back_and_is_reported() -> None:
    """It has read up to 150, and the source has lost its records from 137 on."""
    lost = {"truncated": True, "target": 50, "intent": Intent(150, 50)}
    assert decide(seen(**lost), delete=False) == CommitDecision(Act.WRITE, Position(137, 37), Reason.TRUNCATED)
    assert decide(seen(**{**lost, "target": 37}), delete=False) == held(Reason.TRUNCATED)
    there = {"truncated": True, "target": 37, "intent": Intent(137, 37)}
    assert decide(seen(**there), delete=False) == held(Reason.TRUNCATED)
    ahead = Translation(Place.NOT_COPIED, 37)
    assert decide(seen(**there, translation=ahead), delete=False) == held(Reason.NOT_COPIED)


def test_after_a_withdrawal_the_same_position_is_written_again() -> None:
    observed = seen(target=20, intent=Intent(137, 20, 137, 50))
    assert decide(observed, delete=False) == CommitDecision(Act.WRITE, Position(137, 37))


def test_a_deleted_offset_is_reported_and_deleted_if_that_is_wanted() -> None:
    gone: dict[str, Any] = {"source": None, "translation": UNKNOWN, "intent": Intent(137, 37)}
    assert decide(seen(**gone, target=37), delete=False) == held(Reason.DELETED)
    assert decide(seen(**gone, target=37), delete=True) == CommitDecision(Act.DELETE, reason=Reason.DELETED)
    assert decide(seen(**gone, target=37, active=True), delete=True) == held(Reason.ACTIVE)
    assert decide(seen(**gone, target=37, moved=True), delete=True) == held(Reason.TAKEN_OVER)
    assert decide(seen(**gone, target=38), delete=True) == held(Reason.TAKEN_OVER)
    assert decide(seen(**gone), delete=False) == CommitDecision(Act.FORGET)


def test_an_intent_keeps_what_it_replaces_and_what_may_still_arrive() -> None:
    intent, wanted = Intent(130, 30, 110, 21, 3, LATER_MS, (25,)), Position(137, 37)

    def following(**values: Any) -> Intent:
        return next_intent(seen(**values), wanted, epoch=4, now_ms=NOW_MS)

    assert following(target=30, intent=intent) == Intent(137, 37, 130, 30, 4, LATER_MS, (25,))
    not_there = following(target=21, intent=intent)
    assert not_there[:5] == (137, 37, 110, 21, 4)
    assert not_there.others == (25, 30)
    assert not_there.others_until_ms > LATER_MS
    assert following(intent=None) == Intent(137, 37, epoch=4)
    assert following(target=9, resumed=9) == Intent(137, 37, NEVER, 9, 4)


def test_what_may_still_arrive_is_remembered_for_a_time() -> None:
    intent = Intent(130, 30, 110, 21, 3, LATER_MS, (25,))
    assert intent.at(LATER_MS - 1) == intent
    assert intent.at(LATER_MS) == Intent(130, 30, 110, 21, 3)
    observed = seen(target=30, intent=intent)
    assert next_intent(observed, Position(137, 37), epoch=4, now_ms=LATER_MS).others == ()


def test_what_points_behind_a_loss_may_be_replaced_also_if_the_withdrawal_does_not_arrive() -> None:
    lost = seen(target=50, intent=Intent(137, 50), standing=20, translation=UNKNOWN)
    intent = next_intent(lost, Position(137, 20), epoch=5, now_ms=NOW_MS)
    healed = seen(target=50, intent=intent, translation=record(45))
    assert decide(healed, delete=False) == CommitDecision(Act.WRITE, Position(137, 45))


def test_the_offsets_that_may_still_arrive_are_bounded() -> None:
    intent = Intent(0, 0)
    for number in range(1, 20):
        intent = next_intent(seen(target=5, intent=intent), Position(number, 10 * number), epoch=NEVER, now_ms=NOW_MS)
    assert intent.others == (150, 160, 170, 180)
