"""How long the copy of the rest takes, from the rate of earlier runs."""

from __future__ import annotations

from mirror.rehearsal.values import RecoveryTime
from mirror.spark.ledger.copy_rate import RUN_START_S, CopyRate
from mirror.spark.rehearsing.recovery import recovery_time
from tests.spark.planning.test_range_planner import flow

RATE = CopyRate(20_000, 4.0, 1)


def test_the_time_has_the_start_of_a_run() -> None:
    expected = RecoveryTime(seconds=10 + RUN_START_S, bytes_per_second=5_000, start_seconds=RUN_START_S)
    assert recovery_time(flow(), RATE, 50_000, is_running=False) == expected


def test_a_flow_that_runs_has_not_to_start() -> None:
    assert recovery_time(flow(), RATE, 50_000, is_running=True) == RecoveryTime(seconds=10.0, bytes_per_second=5_000)


def test_a_limit_of_the_flow_counts() -> None:
    limited = recovery_time(flow(max_bytes_per_second=2_000), RATE, 50_000, is_running=True)
    assert (limited.seconds, limited.bytes_per_second) == (25, 2_000)
    assert recovery_time(flow(max_bytes_per_second=10_000), RATE, 50_000, is_running=True).seconds == 10


def test_nothing_is_guessed() -> None:
    assert recovery_time(flow(), None, 5_000, is_running=False) == RecoveryTime()
    assert recovery_time(flow(), RATE, None, is_running=False).seconds is None
