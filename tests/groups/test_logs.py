"""What leader epochs say of a target's log."""

from __future__ import annotations

import pytest

from mirror.cluster.types import EpochEndOffset, OffsetAndMetadata
from mirror.errors import KafkaTimeout
from mirror.groups.commit_decision import NEVER
from mirror.groups.translation.logs import PartitionLogs


@pytest.mark.parametrize(
    ("ends", "epoch"),
    [
        ({5: EpochEndOffset(5, 200), 4: EpochEndOffset(3, 200)}, 3),
        ({5: EpochEndOffset(5, 200), 4: EpochEndOffset(4, 100)}, 5),
        ({5: EpochEndOffset(5, 200), 4: EpochEndOffset(-1, -1)}, 5),
        ({5: EpochEndOffset(5, 100)}, NEVER),
        ({}, NEVER),
    ],
)
def test_an_offset_is_of_an_epoch_that_has_records(ends: dict[int, EpochEndOffset | None], epoch: int) -> None:
    """The leader of epoch 5 has appended nothing in the first case, and epoch 6 may not know of it."""
    assert PartitionLogs(epoch_ends=ends, leader_epoch=5).epoch_at(111) == epoch


@pytest.mark.parametrize(
    ("epoch", "ends", "offset"),
    [
        (None, {}, 137),
        (4, {4: EpochEndOffset(4, 137)}, 137),
        (4, {4: EpochEndOffset(4, 120)}, 120),
        # All of epoch 4 is lost; in the second case the log may have been compacted as well.
        (4, {4: EpochEndOffset(3, 120)}, 120),
        (4, {4: EpochEndOffset(3, 150)}, 137),
        (4, {4: EpochEndOffset(-1, -1)}, None),
        (4, {4: None}, 137),
    ],
)
def test_a_group_continues_on_the_source_in_front_of_what_that_has_lost(
    epoch: int | None, ends: dict[int, EpochEndOffset | None], offset: int | None
) -> None:
    assert PartitionLogs(source_epoch_ends=ends).continued_at(OffsetAndMetadata(137, epoch)) == offset


def test_without_an_answer_of_the_source_s_leader_no_position_is_known() -> None:
    with pytest.raises(KafkaTimeout, match="leader epoch 4"):
        PartitionLogs(source_epoch_ends={3: EpochEndOffset(3, 200)}).continued_at(OffsetAndMetadata(137, 4))


def test_two_elections_without_records_are_no_loss() -> None:
    before = PartitionLogs(epoch_ends={5: EpochEndOffset(5, 200), 4: EpochEndOffset(3, 200)}, leader_epoch=5)
    after = PartitionLogs(epoch_ends={3: EpochEndOffset(3, 200), 5: EpochEndOffset(3, 200)}, leader_epoch=6)
    assert after.standing(111, before.epoch_at(111)) is None
