"""The totals over a stream's periods."""

from __future__ import annotations

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.spark.ledger.results import MAX_EXPIRIES, Totals


def result(period: int, **more: object) -> RangeResult:
    values = {"flow": "f", "topic": "t", "target_topic": "a.t", "partition": 0, "start": period, "end": period + 1}
    return RangeResult(**{**values, "records": 1, "bytes": 10, "outcome": Outcome.COMPLETE, **more})  # type: ignore[arg-type]


def test_totals_drop_a_removed_partition_that_was_never_copied() -> None:
    totals = Totals()
    idle = result(0, records=0, partition=1, outcome=Outcome.FAILED, error="its name is too long")
    totals.add([result(0), idle])
    totals.add([result(1, topic="other"), idle])
    assert [(one.topic, one.partition) for one in totals.results()] == [("other", 0), ("t", 0), ("t", 1)]
    totals.add([result(2)])
    assert [(one.topic, one.partition) for one in totals.results()] == [("other", 0), ("t", 0)]


def test_totals_add_up_and_the_last_epoch_sets_the_outcome() -> None:
    totals = Totals()
    for period in range(MAX_EXPIRIES + 2):
        totals.add(
            [result(period, skipped={"control": 1}, expiries=[{"at": period}], outcome=Outcome.EXPIRED, error="x")]
        )
    totals.add([result(99, skipped={"empty": 2})])
    (one,) = totals.results()
    assert (one.start, one.end, one.records, one.bytes) == (0, 100, MAX_EXPIRIES + 3, 10 * (MAX_EXPIRIES + 3))
    assert one.skipped == {"control": MAX_EXPIRIES + 2, "empty": 2}
    assert (one.outcome, one.error) == (Outcome.COMPLETE, None)
    assert [each["at"] for each in one.expiries] == list(range(2, MAX_EXPIRIES + 2))
