"""By when all of a source is on the target."""

from __future__ import annotations

from mirror.client import TopicPartition
from mirror.spark.ledger.confirmation import Confirmed, confirmed
from mirror.telemetry.lag.lags import UNKNOWN_LAG, Lag, LagState


def lag(records: int, seconds: float | None) -> Lag:
    return UNKNOWN_LAG._replace(records=records, seconds=seconds, state=LagState.BEHIND)


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_all_that_was_committed_before_a_reading_of_the_ends_is_confirmed() -> None:
    lags = [(tp(0), lag(0, 0.0)), (tp(1), lag(3, 2.5)), (tp(2), lag(3, None)), (tp(3), UNKNOWN_LAG)]
    found = confirmed(lags, 10_000)
    assert found == Confirmed(since_ms=10_000, behind={"t-1": 7_500, "t-2": 0, "t-3": 0})
    assert [found.of(tp(number)) for number in (0, 1, 2, 9)] == [10_000, 7_500, 0, 10_000]


def test_what_is_not_named_is_no_further_behind_than_is_said() -> None:
    lags = [(tp(number), lag(1, float(number) / 1000)) for number in range(3_000)]
    found = confirmed(lags, 10_000)
    assert len(found.behind) == 1_000
    assert all(found.of(tp(number)) <= 10_000 - number for number in range(3_000))
