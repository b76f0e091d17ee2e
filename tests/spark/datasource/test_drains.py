"""A stream that copies what there is, and ends: which partitions it gives up, and what it reports."""

from __future__ import annotations

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.results import StreamTotals, join_results
from tests.spark.epochs_harness import CONFIG, EpochsHarness, answer


def test_a_drain_ends_at_the_first_plans_source_ends_and_does_not_retry_failures(site: EpochsHarness) -> None:
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    assert {(one.partition, one.end) for one in first.ranges} == {(0, 10), (1, 20)}
    answer(site.ledger, first)
    with site.a.change() as state:
        for partition in state["topics"]["orders"]["partitions"]:
            partition["end"] += 5
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    assert {(one.partition, one.end) for one in second.ranges} == {(0, 10), (1, 20)}, "nothing is committed yet"
    answer(site.ledger, second, Outcome.EXPIRED)
    third = site.epochs.plan(3, drains=True)
    assert third is not None
    assert third.ranges == []


def test_a_drain_with_limits_continues_beside_given_up_partitions(site: EpochsHarness) -> None:
    """The limit chooses of what is left, not of what was given up."""
    site.config.write_text(CONFIG + "max-partitions-in-parallel = 1\n")
    tried: list[int] = []
    for epoch in range(1, 4):
        plan = site.epochs.plan(epoch, drains=True)
        assert plan is not None
        tried += [one.partition for one in plan.ranges]
        answer(site.ledger, plan, Outcome.EXPIRED)
    assert sorted(tried) == [0, 1]


def test_a_drain_in_which_nothing_can_be_copied_reports_why(site: EpochsHarness) -> None:
    with site.a.change() as state:
        for partition in state["topics"]["orders"]["partitions"]:
            partition["leader"] = -1
    plan = site.epochs.plan(1, drains=True)
    assert plan is not None
    assert plan.ranges == []
    assert site.ledger.last_completed_epoch() == 1
    assert site.ledger.plan(1) == plan
    assert {one.outcome for one in plan.results_without_task} == {Outcome.FAILED}


def test_a_drain_never_reports_a_given_up_partition_as_complete(site: EpochsHarness) -> None:
    """Seen: of epochs 1 (expired) and 2 (nothing left to try) the second had the last word, "complete"."""
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    answer(site.ledger, first, Outcome.EXPIRED, error="no leader")
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    totals = StreamTotals()
    for plan in (first, second):
        totals.add(join_results(plan, site.ledger.attempts(plan.epoch)))
    assert {(one.outcome, one.error) for one in totals.results()} == {(Outcome.EXPIRED, "no leader")}


def test_a_drain_keeps_partitions_that_a_later_attempt_completed(site: EpochsHarness) -> None:
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    outcomes = (Outcome.COMPLETE, Outcome.FAILED)
    attempts = [
        Attempt(0, number, RangeResult.initial(one, one.start, outcome))
        for one in first.ranges
        for number, outcome in zip((1, 0), outcomes, strict=True)
    ]
    site.ledger.write_attempts(attempts, 1)
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    assert len(second.ranges) == 2


def test_a_partition_that_cannot_be_copied_at_the_start_of_a_drain_stays_given_up(site: EpochsHarness) -> None:
    site.ledger.write_targets(
        TargetTopics(copyable={"orders": 1}, obstacles={"orders": Obstacle("no more partitions", 1)})
    )
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    assert [one.partition for one in first.ranges] == [0]
    answer(site.ledger, first)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    assert [(one.partition, one.outcome, one.error) for one in second.results_without_task] == [
        (1, Outcome.FAILED, "no more partitions")
    ]
