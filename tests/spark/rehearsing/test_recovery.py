"""How long the copy of the rest takes, from the rates of earlier runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.rehearsal.values import RecoveryTime
from mirror.spark.rehearsing.recovery import recovery_time
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_history import FIRST, run
from tests.spark.planning.test_range_planner import flow


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A run that has copied 5,000 bytes a second, and took 12 s for everything else."""
    run(tmp_path, FIRST, results=[result(0, bytes=20_000, seconds=4.0)]).write_overhead(12.0)
    return tmp_path / "ledger"


def test_the_time_has_the_start_of_a_run(ledger: Path) -> None:
    expected = RecoveryTime(seconds=22.0, bytes_per_second=5_000, start_seconds=12.0)
    assert recovery_time(flow(), ledger, 50_000, is_running=False) == expected


def test_a_flow_that_runs_has_not_to_start(ledger: Path) -> None:
    assert recovery_time(flow(), ledger, 50_000, is_running=True) == RecoveryTime(seconds=10.0, bytes_per_second=5_000)


def test_a_limit_of_the_flow_counts(ledger: Path) -> None:
    limited = recovery_time(flow(max_bytes_per_second=2_000), ledger, 50_000, is_running=True)
    assert (limited.seconds, limited.bytes_per_second) == (25, 2_000)
    assert recovery_time(flow(max_bytes_per_second=10_000), ledger, 50_000, is_running=True).seconds == 10


def test_nothing_is_guessed(ledger: Path, tmp_path: Path) -> None:
    assert recovery_time(flow(), tmp_path / "missing", 5_000, is_running=False) == RecoveryTime()
    assert recovery_time(flow(), ledger, None, is_running=False).seconds is None
