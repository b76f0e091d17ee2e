"""What leader epochs say of a target's log."""

from __future__ import annotations

import pytest

from mirror.cluster.types import EpochEndOffset
from mirror.groups.decision import NEVER
from mirror.groups.logs import PartitionLogs


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
def test_an_offset_is_of_an_epoch_that_has_records(ends: dict[int, EpochEndOffset], epoch: int) -> None:
    """The leader of epoch 5 has appended nothing in the first case, and epoch 6 may not know of it."""
    assert PartitionLogs(epoch_ends=ends, leader_epoch=5).epoch_at(111) == epoch


def test_two_elections_without_records_are_no_loss() -> None:
    before = PartitionLogs(epoch_ends={5: EpochEndOffset(5, 200), 4: EpochEndOffset(3, 200)}, leader_epoch=5)
    after = PartitionLogs(epoch_ends={3: EpochEndOffset(3, 200), 5: EpochEndOffset(3, 200)}, leader_epoch=6)
    assert after.standing(111, before.epoch_at(111)) is None
