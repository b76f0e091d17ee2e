"""By when all of a source is on the target."""

from __future__ import annotations

from dataclasses import replace

from mirror.client import TopicPartition
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.spark.ledger.confirmation import Confirmed, confirmed, copied_by
from mirror.telemetry.lag.lags import UNKNOWN_LAG, Lag, LagState


def lag(records: int, seconds: float | None) -> Lag:
    return UNKNOWN_LAG._replace(records=records, seconds=seconds, state=LagState.BEHIND)


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_all_that_was_committed_before_a_reading_of_the_ends_is_confirmed() -> None:
    lags = [(tp(0), lag(0, 0.0)), (tp(1), lag(3, 2.5)), (tp(2), lag(3, None)), (tp(3), UNKNOWN_LAG)]
    found = confirmed({tp: copied_by(one, None, 10_000) for tp, one in lags}, 10_000)
    assert found == Confirmed(since_ms=10_000, behind={"t-1": 7_500, "t-2": 0, "t-3": 0})
    assert [found.of(tp(number)) for number in (0, 1, 2, 9)] == [10_000, 7_500, 0, 10_000]


def test_what_is_not_named_is_no_further_behind_than_is_said() -> None:
    lags = [(tp(number), lag(1, float(number) / 1000)) for number in range(3_000)]
    found = confirmed({tp: copied_by(one, None, 10_000) for tp, one in lags}, 10_000)
    assert len(found.behind) == 1_000
    assert all(found.of(tp(number)) <= 10_000 - number for number in range(3_000))


def test_records_behind_an_open_transaction_are_confirmed_up_to_its_start() -> None:
    open_ = OpenTransaction(topic="t", partition=0, offset=10, records=5, seen_ms=9_000, since_ms=9_000, start_ms=4_000)
    assert copied_by(lag(0, 0.0), open_, 10_000) == 4_000
    assert copied_by(lag(3, 8.0), open_, 10_000) == 2_000, "the copy is further behind"
    unknown = replace(open_, start_ms=None)
    assert copied_by(lag(0, 0.0), unknown, 10_000) == 0
    assert copied_by(lag(0, 0.0), unknown, 10_000, before_ms=7_000) == 7_000
    assert copied_by(UNKNOWN_LAG, unknown, 10_000, before_ms=7_000) == 0, "the target may have lost its copy"


def test_what_a_reading_does_not_see_keeps_what_was_confirmed_before() -> None:
    known = [tp(0), tp(1), tp(9)]
    before = confirmed({tp(0): 5_000, tp(1): 3_000, tp(9): 5_000}, 5_000)
    found = confirmed({tp(0): 10_000}, 10_000, before, known)
    assert [found.of(tp(number)) for number in (0, 1, 9)] == [10_000, 3_000, 5_000]
    later = confirmed({tp(0): 20_000}, 20_000, found)
    assert later == Confirmed(since_ms=20_000, behind={"t-1": 3_000, "t-9": 5_000}), "its report is deleted by then"
    assert confirmed({tp(0): 30_000, tp(9): 30_000}, 30_000, later).of(tp(9)) == 30_000, "it was seen again"
    assert confirmed({}, 10_000, None, known).of(tp(9)) == 0
