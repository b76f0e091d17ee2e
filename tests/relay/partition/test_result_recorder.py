"""What a result says beyond the counts of its commits."""

from __future__ import annotations

from mirror.relay.model.observer import NullObserver
from mirror.relay.model.ranges import Outcome, Range
from mirror.relay.model.way import Way
from mirror.relay.partition.across_attempts.attempt_outcome import AttemptOutcome
from mirror.relay.partition.across_attempts.result_recorder import ResultRecorder
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_loss import LossKind, TargetLoss

RANGE = Range(
    flow="f", topic="t", target_topic="a.t", partition=0, start=0, end=9, source_cluster_id="a", topic_id="id"
)


def test_later_loss_is_in_no_earlier_result() -> None:
    recorder = ResultRecorder(RANGE, lambda: 1_800_000_000_000, 0, NullObserver())
    lost = Progress(offset=40, leader_epoch=None, source_cluster_id="c", topic_id="t")
    loss = TargetLoss(flow="f", kind=LossKind.TRUNCATED, progress=lost, end=60, cut=50)
    recorder.on_target_loss(loss, 40)
    assert recorder.result.target_losses == [], "nothing of what was copied is missing"
    recorder.on_target_loss(loss, 30)
    earlier = recorder.result_at(5, AttemptOutcome(Outcome.COMPLETE, ""), None)
    recorder.on_target_loss(loss, 20)
    assert [record["start"] for record in earlier.target_losses] == [30]
    assert [record["start"] for record in recorder.result.target_losses] == [30, 20]


def test_a_result_has_the_last_way_and_its_reason() -> None:
    recorder = ResultRecorder(RANGE, lambda: 1_800_000_000_000, 0, NullObserver())
    assert (recorder.result.way, recorder.result.way_reason) == ("", "")
    recorder.set_way(Way.SEQUENCES, "")
    assert recorder.result.way == "", "no batch has chosen it yet"
    recorder.set_way(Way.SEQUENCES, "records are younger than 12 h")
    earlier = recorder.result_at(5, AttemptOutcome(Outcome.COMPLETE, ""), None)
    recorder.set_way(Way.TRANSACTIONS, "records are older than 12 h")
    recorder.close(9, AttemptOutcome(Outcome.COMPLETE, ""), None)
    assert (earlier.way, earlier.way_reason) == ("sequences", "records are younger than 12 h")
    assert (recorder.result.way, recorder.result.way_reason) == ("transactions", "records are older than 12 h")
    assert type(recorder.result.way) is str, "it is JSON"
