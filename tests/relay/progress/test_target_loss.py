"""How a loss of the target is recorded and described."""

from __future__ import annotations

from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_loss import LossKind, TargetLoss, loss_text

PROGRESS = Progress(offset=40, leader_epoch=None, source_cluster_id="c", topic_id="t")


def test_loss_is_recorded_with_the_offsets_of_both_sides() -> None:
    loss = TargetLoss(flow="f", kind=LossKind.TRUNCATED, progress=PROGRESS, end=60, cut=50)
    record = loss.to_record(30, 7)
    assert record == {
        "kind": "truncated",
        "target_start": 50,
        "target_end": 60,
        "start": 30,
        "end": 40,
        "time": 7,
    }
    assert loss_text(record) == (
        "the target lost its offsets from 50 to 59: the source's offsets from 30 to 39 were copied again"
    )


def test_topic_that_was_made_again_is_described() -> None:
    record = TargetLoss(flow="f", kind=LossKind.RECREATED, progress=None, end=60, cut=0).to_record(5, 7)
    assert loss_text(record) == "the target topic was made again: the copy began again at source offset 5"
