"""How a copy continues at an anchor once its target has lost records."""

from __future__ import annotations

from dataclasses import replace

from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import NO_TOTALS, latest_of
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from tests.relay.copy_harness import CopyHarness, progress_at

MARK = TargetMark(topic_id="a", end=1_100, leader_epoch=3, producer_id=7)
LOST = replace(progress_at(100), generation=5, target=MARK)
STOOD = replace(MARK, end=1_060, leader_epoch=4)
ANCHORED = replace(LOST, offset=60, target=STOOD, way=Way.SEQUENCES)
LOSS = TargetLoss(flow="flow", kind=LossKind.TRUNCATED, progress=LOST, end=1_100, cut=1_070)


def test_progress_of_an_earlier_attempt_that_is_committed_late_does_not_count_after_a_loss() -> None:
    """It is beyond what the target holds."""
    late = replace(LOST, way=Way.SEQUENCES)
    run = CopyHarness(OPEN_END, rules=WayRules(mode="sequences", expiration_ms=86_400_000)).found(late)
    run.resolved(ANCHORED, STOOD.end, mark=STOOD, loss=replace(LOSS, progress=late))
    ((claim, _),) = run.writer.acquisitions
    assert claim.offset == 60
    assert latest_of(claim, late) == claim


def test_what_is_gone_at_the_source_may_stand_behind_the_anchor() -> None:
    """The plan is old, so that the source is checked first: retention has deleted what another attempt has copied."""
    run = CopyHarness(50).opened_with(replace(LOST, offset=40))
    run.context.leader = (2, 4)
    run.copy.step(run.clock.now())
    run.context.comparisons[-1][1].set_result(None)
    run.context.run_until_idle()
    run.closed()
    run.found(LOST).resolved(ANCHORED, STOOD.end, mark=STOOD, loss=LOSS)
    assert run.copy.state is CopyState.CHECKING_SOURCE
    run.source_checked(earliest=150, end=1_000)
    ((claim, found),) = run.writer.acquisitions
    assert (claim.offset, run.writer.losses) == (60, [LOSS])
    found.set_result(FoundPosition(replace(claim, offset=150), NO_TOTALS, LOSS))
    run.context.run_until_idle()
    assert run.commit().offset == 150
    result = run.ended_with(Outcome.COMPLETE)
    assert result.gaps == {}
