"""Lag, rates, drain time and loss time from samples of a partition: exact values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.telemetry.lag.lags import Lag, LagState, LagTracker
from mirror.telemetry.lag.offset_history import PartitionOffsets
from tests.telemetry.lag_samples import T0, TP, followed, lag_of

DAY_S = 86_400.0


# --- records and seconds


def test_partition_without_records_to_copy_has_no_lag() -> None:
    assert lag_of([(0, 0, 100, 100)]) == Lag(0, 0.0, None, None, 0.0, None, LagState.CAUGHT_UP)


def test_progress_beyond_an_older_end_is_no_lag() -> None:
    found = lag_of([(0, 0, 100, 103)])
    assert (found.records, found.seconds, found.state) == (0, 0.0, LagState.CAUGHT_UP)


def test_seconds_are_interpolated_between_two_samples() -> None:
    # The end was 250 a quarter of the way from the first sample to the second.
    found = lag_of([(0, 0, 200, 0), (4, 0, 400, 100), (8, 0, 500, 250)])
    assert (found.records, found.seconds) == (250, 7.0)


def test_seconds_count_from_the_last_sample_without_uncopied_records() -> None:
    # The end stood at 300 from the second to the eighth second: what is not copied came after that.
    found = lag_of([(0, 0, 100, 0), (12, 0, 300, 100), (24, 0, 300, 200), (36, 0, 700, 300)])
    assert found.seconds == 12.0


def test_seconds_increase_after_the_last_sample() -> None:
    samples = [(0, 0, 200, 0), (4, 0, 400, 300)]
    assert lag_of(samples).seconds == 2.0
    assert lag_of(samples, at_s=10).seconds == 8.0


def test_seconds_beyond_the_first_sample_are_extrapolated_by_the_mean_rate() -> None:
    # 100 records/s: 1,000 more than the first sample's 4,000 take 10 s, and it is 20 s ago.
    found = lag_of([(0, 0, 4_000, 3_000), (20, 0, 6_000, 3_000)])
    assert found.seconds == 30.0


def test_seconds_without_new_records_since_the_first_sample_are_unknown() -> None:
    assert lag_of([(0, 0, 4_000, 3_000), (20, 0, 4_000, 3_500)]).seconds is None
    assert lag_of([(0, 0, 4_000, 3_000)]).seconds is None


def test_truncated_or_recreated_log_starts_a_new_history() -> None:
    samples = [(0, 0, 9_000, 9_000), (10, 0, 9_500, 9_500), (20, 0, 40, 0), (30, 0, 60, 10)]
    found = lag_of(samples)
    assert found.records == 50
    # From 40 at 20 s and 60 at 30 s, the end was 10 at 5 s: the larger log before tells nothing.
    assert found.seconds == 25.0
    assert (found.copied_per_s, found.produced_per_s) == (1.0, 2.0)


def test_samples_without_a_leader_are_ignored() -> None:
    found = lag_of([(0, 0, 200, 0), (4, None, None, 100), (8, 0, 600, 300)])
    assert (found.seconds, found.produced_per_s) == (6.0, 50.0)


@given(
    rate=st.integers(1, 10**6),
    late_s=st.integers(1, 3_000),
    every_s=st.sampled_from([1.0, 2.0, 7.0, 10.0, 45.0]),
    base=st.integers(0, 2**60),
)
def test_seconds_of_a_steady_source_are_exact_for_all_sample_times(
    rate: int, late_s: int, every_s: float, base: int
) -> None:
    """What the history forgets does not matter, and neither does how far it reaches back."""
    lags = LagTracker()
    for each in range(300):
        at_s = each * every_s
        end = base + round(rate * (at_s + 3_000))
        lags.add_sample(T0 + round(at_s * 1000), {TP: PartitionOffsets(0, end, end - rate * late_s)})
    found = lags.estimates(T0 + round(299 * every_s * 1000))[TP]
    assert found.records == rate * late_s
    assert found.seconds == pytest.approx(late_s, rel=1e-6, abs=1e-3)
    assert found.produced_per_s == pytest.approx(rate)
    assert found.copied_per_s == pytest.approx(rate)


def test_seconds_stay_known_for_hours() -> None:
    """An hour at 10 records/s, then seven at 1,000: what came in the first hour is found there, hours later."""

    def end(at_s: float) -> float:
        return 10 * at_s if at_s < 3_600 else 36_000 + 1_000 * (at_s - 3_600)

    found = lag_of(followed(end, lambda _: 18_000, every_s=10, for_s=8 * 3_600))
    assert found.seconds == pytest.approx(7.5 * 3_600, rel=0.1)


# --- rates


def test_rates_need_two_samples() -> None:
    assert lag_of([(0, 0, 100, 50)])[2:4] == (None, None)
    assert lag_of([(0, 0, 100, 50), (2, 0, 300, 150)])[2:4] == (50.0, 100.0)


def test_rates_cover_the_last_minute() -> None:
    found = lag_of(followed(lambda at: 100 * min(at, 300) + 40 * max(0, at - 300), lambda _: 0, for_s=400))
    assert found.produced_per_s == 40.0


@pytest.mark.parametrize("which", range(8))
def test_rate_is_not_distorted_by_one_late_sample(which: int) -> None:
    """One of a rate's samples has the offsets of 9 s later, as if its brokers had responded late."""
    samples = followed(lambda at: 1_000 * at + 60_000, lambda at: 900 * at, every_s=10, for_s=120)
    at_s, earliest, end, progress = samples[-1 - which]
    samples[-1 - which] = (at_s, earliest, end + 9_000, progress + 8_100)
    found = lag_of(samples)
    assert found[2:4] == (900.0, 1_000.0)


def test_samples_at_uneven_times_give_the_same_rates() -> None:
    times = [0, 2, 4, 27, 28, 30, 55, 57, 80, 81, 82]
    found = lag_of([(at, 0, 1_000 + 20 * at, 10 * at) for at in times])
    assert found[2:4] == (10.0, 20.0)


def test_samples_far_apart_give_rates() -> None:
    found = lag_of([(each * 180, 0, 1_000 + 1_800 * each, 900 * each) for each in range(6)])
    assert found[2:4] == (5.0, 10.0)


def test_falling_progress_has_no_rate_until_it_rises() -> None:
    samples = [(0, 0, 100, 90), (10, 0, 200, 20)]
    assert lag_of(samples)[2:4] == (None, 10.0)
    assert lag_of([*samples, (20, 0, 300, 50), (30, 0, 400, 80)])[2:4] == (3.0, 10.0)


# --- time to drain


def test_drain_time_is_lag_by_the_difference_of_rates() -> None:
    found = lag_of(followed(lambda at: 100_000 + 100 * at, lambda at: 350 * at))
    assert found.records == 70_000
    assert (found.drain_s, found.state) == (280.0, LagState.CATCHING_UP)


@pytest.mark.parametrize("copied", [0, 99, 100])
def test_lag_that_does_not_shrink_never_drains(copied: int) -> None:
    found = lag_of(followed(lambda at: 100_000 + 100 * at, lambda at: copied * at), stuck_after_s=math.inf)
    assert (found.drain_s, found.state) == (math.inf, LagState.FALLING_BEHIND)


def test_one_sample_gives_no_drain_time() -> None:
    found = lag_of([(0, 0, 100, 50)])
    assert (found.drain_s, found.state) == (None, LagState.BEHIND)


def test_records_in_transit_are_no_backlog() -> None:
    """A copy that follows has always some records to go, now a little more and now a little less."""
    samples = [(2.0 * each, 0, 2_000 * each + 5_000, 2_000 * each + 4_000 - each % 3 * 300) for each in range(60)]
    found = lag_of(samples, retention_s=3_600)
    assert found.records == 1_600
    assert (found.drain_s, found.state) == (0.0, LagState.CAUGHT_UP)
    assert found.seconds == pytest.approx(1.6)
    assert found.loss_s == pytest.approx(3_600 - 1.6, abs=0.1)


def test_rare_samples_raise_the_limit_of_caught_up() -> None:
    """All that was there at the sample before is copied: what is left may have come just now."""
    samples = [(60.0 * each, 0, each, max(0, each - 1)) for each in range(9)]
    assert (lag_of(samples).seconds, lag_of(samples).state) == (60.0, LagState.CAUGHT_UP)
    late = [(60.0 * each, 0, each, max(0, each - 2)) for each in range(9)]
    assert (lag_of(late).seconds, lag_of(late).state) == (120.0, LagState.FALLING_BEHIND)


# --- time to loss


def test_loss_time_of_the_oldest_record_is_retention_minus_its_age() -> None:
    # 30 s late; what is there is copied within 21 s.
    found = lag_of(followed(lambda at: 1_000 * at + 60_000, lambda at: 1_000 * at + 30_000), retention_s=3_600)
    assert found.loss_s == 3_570.0


def test_loss_time_of_the_newest_record_is_retention_minus_its_copy_time() -> None:
    # 100,000 records at 50/s: the last of them is copied in 2,000 s; the first is 98 s old.
    samples = followed(lambda at: 1_000 * at, lambda at: 50 * at, for_s=100)
    found = lag_of([*samples, (102, 0, 102_000, 5_100)], retention_s=3_600)
    assert (found.records, found.copied_per_s) == (96_900, 50.0)
    assert found.seconds == pytest.approx(96.9)
    assert found.loss_s == pytest.approx(3_600 - 96_900 / 50)
    assert found.state is LagState.FALLING_BEHIND
    late = lag_of([*samples, (102, 0, 102_000, 5_100)], retention_s=1_800)
    assert late.loss_s == pytest.approx(1_800 - 96_900 / 50)
    assert late.state is LagState.LOSING


def test_copy_that_keeps_pace_loses_nothing_and_never_drains() -> None:
    found = lag_of(followed(lambda at: 1_000 * at + 60_000, lambda at: 1_000 * at), retention_s=3_600)
    assert (found.drain_s, found.loss_s, found.state) == (math.inf, 3_540.0, LagState.FALLING_BEHIND)


def test_loss_time_of_a_stopped_copy_is_that_of_the_oldest_record() -> None:
    samples = followed(lambda at: 1_000 * at, lambda _: 50_000, every_s=10, for_s=600)
    assert lag_of(samples, retention_s=3_600).loss_s == 3_600 - 550
    assert lag_of(samples, retention_s=3_600, at_s=3_000).loss_s == 3_600 - 2_950
    gone = lag_of(samples, retention_s=500)
    assert (gone.loss_s, gone.state) == (-50.0, LagState.LOSING)


def test_loss_time_follows_the_moving_log_start() -> None:
    samples = followed(lambda at: 1_000 * at + 200_000, lambda _: 250_000, earliest=lambda at: 1_000 * at, for_s=120)
    found = lag_of(samples)
    assert (found.seconds, found.loss_s, found.state) == (70.0, 130.0, LagState.STUCK)
    assert lag_of(samples, retention_s=DAY_S).loss_s == 130.0, "the smaller wins"
    assert lag_of(samples, retention_s=150).loss_s == 80.0


def test_expired_uncopied_records_are_lost() -> None:
    found = lag_of([(0, 500, 900, 400)])
    assert (found.loss_s, found.state) == (0.0, LagState.LOSING)
    moving = lag_of(followed(lambda at: 10 * at + 900, lambda _: 400, earliest=lambda at: 10 * at + 500, for_s=20))
    assert (moving.loss_s, moving.state) == (-30.0, LagState.LOSING)


def test_log_emptied_behind_its_copy_is_no_loss() -> None:
    found = lag_of(followed(lambda at: 10 * at, lambda at: 10 * at, earliest=lambda at: 10 * at), retention_s=60)
    assert (found.loss_s, found.drain_s, found.state) == (60.0, 0.0, LagState.CAUGHT_UP)


def test_loss_time_without_retention_is_unknown() -> None:
    assert lag_of(followed(lambda at: 1_000 * at + 60_000, lambda at: 1_000 * at)).loss_s is None


def test_extrapolated_age_above_the_retention_is_discarded() -> None:
    """A log filled at once, with a record a second since: at that rate it took a million seconds, and it did not."""
    samples = followed(lambda at: 1_000_000 + at, lambda at: 20_000 * at, for_s=10)
    found = lag_of(samples, retention_s=7 * DAY_S)
    assert found.seconds == pytest.approx(800_010)
    assert (found.loss_s, found.state) == (None, LagState.CATCHING_UP)
    believed = lag_of(samples, retention_s=20 * DAY_S)
    assert believed.loss_s == pytest.approx(20 * DAY_S - 800_010)


def test_newest_record_alone_can_show_a_loss() -> None:
    # Nothing came since the first sample; 900,000 records at 1/s take longer than a week.
    found = lag_of(followed(lambda _: 900_000, lambda at: at, for_s=100), retention_s=7 * DAY_S)
    assert (found.seconds, found.loss_s, found.state) == (None, 7 * DAY_S - 899_900, LagState.LOSING)
    soon = lag_of(followed(lambda _: 9_000, lambda at: at, for_s=100), retention_s=7 * DAY_S)
    assert soon.loss_s is None


# --- states


def test_partition_without_a_leader_has_no_lag() -> None:
    assert lag_of([(0, None, None, 40)]) == Lag(None, None, None, None, None, None, LagState.NO_LEADER)


def test_partition_without_progress_is_not_begun() -> None:
    found = lag_of([(0, 0, 40, None), (10, 0, 60, None)], retention_s=60)
    assert found == Lag(None, None, None, 2.0, None, None, LagState.NOT_BEGUN)


def test_empty_partition_without_progress_is_caught_up() -> None:
    assert lag_of([(0, 70, 70, None)]) == Lag(0, 0.0, None, None, 0.0, None, LagState.CAUGHT_UP)


def test_lag_without_progress_for_a_minute_is_stuck() -> None:
    samples = [(0, 0, 100, 50), (10, 0, 100, 60), (40, 0, 120, 60), (70, 0, 140, 60)]
    assert lag_of(samples).state is LagState.FALLING_BEHIND, "60 s are not longer than 60 s"
    assert lag_of(samples, at_s=71).state is LagState.STUCK
    assert lag_of(samples, at_s=71, stuck_after_s=math.inf).state is LagState.FALLING_BEHIND
    assert lag_of([*samples, (72, 0, 140, 61)]).state is not LagState.STUCK


def test_time_without_records_to_copy_is_not_stuck() -> None:
    samples = [(0, 0, 100, 100), (100, 0, 100, 100), (300, 0, 101, 100)]
    assert lag_of(samples, at_s=310).state is not LagState.STUCK
    assert lag_of([*samples, (410, 0, 101, 100)]).state is LagState.STUCK


def test_states_are_in_the_order_of_severity() -> None:
    assert [each.rank for each in LagState] == list(range(10))
    assert [each for each in LagState if each.unhealthy] == list(LagState)[:5]
