"""What is decided about one partition of a group that would move, by name."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.groups.back_positions import BackReason
from mirror.groups.commit_decision import Reason
from mirror.rehearsal.advice import Advice
from mirror.rehearsal.readiness import Seen, group_of, in_order, rehearse_partition
from mirror.rehearsal.values import GroupMove, GroupRehearsal, Limits, Why
from mirror.relay.offsets.copy_count import CopyCount, Move

ADVICE = Advice("f", "paris", "berlin")
OLD, NEW = TopicPartition("orders", 0), TopicPartition("paris.orders", 0)


def seen(**changes: Any) -> Seen:
    values = {"old_offset": 100, "new_offset": 100, "log": (0, 250), "copied_to": 250, "old_end": 300}
    return Seen(old=OLD, new=NEW, **{**values, **changes})


def count(offset: int, target_offset: int) -> Move:
    """Both logs have the same offsets."""
    return Move(CopyCount(max(0, offset - target_offset)), CopyCount(max(0, target_offset - offset)))


def rehearsed(limits: Limits | None = None, advice: Advice = ADVICE, **changes: Any) -> GroupMove:
    return rehearse_partition(seen(**changes), count, advice, limits or Limits())


def test_a_group_at_the_same_record_is_ready() -> None:
    move = rehearsed()
    assert (move.is_ready, move.read_again, move.skipped, move.begins_at) == (True, 0, 0, 100)
    assert (move.action, move.not_arrived) == ("", 50)


def test_what_a_group_has_read_itself_has_not_to_arrive() -> None:
    assert rehearsed(old_offset=290).not_arrived == 10
    assert rehearsed(old_end=None).not_arrived is None


def test_a_group_in_front_reads_again_and_is_ready() -> None:
    move = rehearsed(new_offset=60)
    assert (move.is_ready, move.read_again, move.skipped) == (True, 40, 0)


def test_a_group_behind_unread_records_would_skip_them() -> None:
    move = rehearsed(new_offset=130, reason=Reason.TAKEN_OVER.value)
    assert (move.reason, move.skipped) == (Why.SKIPS, 30)
    assert move.detail == "30 records in front of its position, not read on paris; its position is taken-over"
    assert move.action.startswith("if it has moved to berlin, nothing")
    assert move.action.endswith("30 records back")


def test_a_group_that_lives_on_the_new_cluster_has_moved() -> None:
    move = rehearsed(new_offset=130, reason=Reason.ACTIVE.value)
    assert (move.reason, move.skipped, move.is_ready) == (Why.MOVED, 30, False)
    assert move.action.startswith("nothing")
    assert rehearsed(new_offset=60, reason=Reason.ACTIVE.value).reason == Reason.ACTIVE


@pytest.mark.parametrize("changes", [{"reason": Reason.PASSED.value}, {"new_offset": None, "log": (130, 250)}])
def test_records_that_the_new_cluster_has_deleted_cannot_be_had_by_a_reset(changes: dict[str, Any]) -> None:
    move = rehearsed(**{"new_offset": 130, **changes})
    assert (move.reason, move.skipped) == (Why.SKIPS, 30)
    assert move.action.startswith("berlin has deleted 30 records of them")


def test_a_group_without_a_position_is_left_to_its_own_reset() -> None:
    move = rehearsed(new_offset=None)
    assert (move.reason, move.begins_at, move.read_again, move.skipped, move.at_stake) == (
        Why.NO_POSITION,
        0,
        100,
        0,
        150,
    )
    assert move.detail == 'with auto.offset.reset = "latest" it would skip 150 records'
    assert move.action == "run the flow: its next round commits the position on berlin"
    alone = Advice("f", "paris", "berlin", syncs=False)
    assert "add the section [flows.f.groups]" in rehearsed(advice=alone, new_offset=None).action


@pytest.mark.parametrize(("offset", "log"), [(99, (100, 250)), (251, (0, 250))])
def test_a_position_that_the_log_does_not_have_is_out_of_range(offset: int, log: tuple[int, int]) -> None:
    move = rehearsed(new_offset=offset, log=log, old_offset=200)
    assert (move.reason, move.begins_at) == (Why.OUT_OF_RANGE, log[0])


@pytest.mark.parametrize("offset", [0, 100, 250])
def test_a_position_at_an_end_of_the_log_is_in_it(offset: int) -> None:
    assert rehearsed(new_offset=offset, old_offset=250).is_ready


def test_what_the_logs_start_has_passed_is_skipped_with_earliest_too() -> None:
    move = rehearsed(new_offset=50, log=(120, 250))
    assert (move.reason, move.skipped) == (Why.SKIPS, 20)


@pytest.mark.parametrize(
    "reason",
    [
        Reason.ACTIVE,
        Reason.TAKEN_OVER,
        Reason.UNKNOWN,
        Reason.UNAUTHORIZED,
        Reason.UNAVAILABLE,
        Reason.REFUSED,
        Reason.OTHER_RUN,
        BackReason.ACTIVE,
    ],
)
def test_a_position_that_the_flow_does_not_hold_is_not_ready_and_says_what_to_do(reason: Reason | BackReason) -> None:
    advice = Advice("f", "berlin", "paris", reverse=True) if isinstance(reason, BackReason) else ADVICE
    move = rehearsed(advice=advice, reason=reason.value, detail="broker 2")
    assert (move.reason, move.detail) == (reason.value, "broker 2")
    assert move.action


@pytest.mark.parametrize("reason", [Reason.NOT_COPIED, Reason.BEHIND, Reason.TRUNCATED])
def test_a_position_that_only_waits_for_the_copy_is_ready(reason: Reason) -> None:
    move = rehearsed(reason=reason.value)
    assert (move.is_ready, move.note) == (True, reason.value)


def test_what_cannot_be_counted_is_not_ready() -> None:
    unknown = rehearse_partition(seen(), lambda *_: None, ADVICE, Limits())
    assert (unknown.reason, unknown.read_again, unknown.skipped) == (Why.NOT_KNOWN, None, None)
    assert rehearsed(log=None).reason == Why.NOT_KNOWN

    def fail(*_: int) -> Move:
        raise KafkaTimeout("the leader is silent")

    failed = rehearse_partition(seen(), fail, ADVICE, Limits())
    assert (failed.reason, failed.detail) == (Why.NOT_KNOWN, "the leader is silent")


def test_a_partition_without_a_position_on_the_old_cluster_does_not_move() -> None:
    move = rehearsed(old_offset=None, has_old_position=False, reason=Reason.DELETED.value)
    assert (move.is_ready, move.note, move.skipped) == (True, "deleted-on-source", None)
    assert rehearsed(old_offset=None).reason == Why.NOT_KNOWN


def test_reading_too_much_again_is_not_ready_if_there_is_a_limit() -> None:
    assert rehearsed(Limits(max_records=39), new_offset=60).reason == Why.READ_AGAIN
    assert rehearsed(Limits(max_records=40), new_offset=60).is_ready


def test_groups_that_skip_come_first_then_what_is_not_ready() -> None:
    ready, held = rehearsed(), rehearsed(new_offset=None)
    skips, more = rehearsed(new_offset=130), rehearsed(new_offset=160)
    groups = [
        group_of("a", [ready], "", "", ADVICE),
        group_of("b", [ready, held], "", "", ADVICE),
        group_of("c", [ready, skips, held], "", "", ADVICE),
        group_of("d", [more], "", "", ADVICE),
    ]
    ordered = in_order(groups)
    assert [one.group for one in ordered] == ["d", "c", "b", "a"]
    assert [one.reason for one in ordered[1].moves] == [Why.SKIPS, Why.NO_POSITION, ""]
    assert [one.is_ready for one in ordered] == [False, False, False, True]


def test_a_group_that_cannot_be_read_is_not_ready_and_says_what_to_do() -> None:
    group: GroupRehearsal = group_of("g", [], Reason.NOT_SUPPORTED.value, "a group of kind 'share'", ADVICE)
    assert (group.is_ready, group.is_known) == (False, False)
    assert group.action == "move it by its own means, and exclude it from the flow"
