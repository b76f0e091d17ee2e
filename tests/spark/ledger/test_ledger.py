"""What the ledger of a run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.spark.ledger.ledger import MAX_PERIODS, Ledger
from mirror.spark.ledger.plan import Plan
from tests.other_user import OtherUser


def test_the_ledger_keeps_only_the_last_epochs(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "1")
    assert (ledger.last_planned_period(), ledger.last_completed_period()) == (None, None)
    for period in (1, 2, MAX_PERIODS + 1):
        plan = Plan(flow="f", tasks=[], results_without_task=[], period=period)
        ledger.write_plan(plan)
        ledger.write_attempts([], period)
    assert (ledger.last_planned_period(), ledger.last_completed_period()) == (MAX_PERIODS + 1, MAX_PERIODS + 1)
    assert ledger.plan(1) is None
    assert ledger.plan(2) is not None


def test_the_ledgers_are_for_their_user_and_the_group_that_reads_reports(tmp_path: Path) -> None:
    report = tmp_path / "report"
    Ledger.open(report, "f", "1")
    assert [path.stat().st_mode & 0o777 for path in (report, report / "ledger")] == [0o700, 0o700]
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    Ledger.open(shared, "f", "1")
    assert (shared / "ledger").stat().st_mode & 0o777 == 0o750


def test_the_ledgers_of_an_earlier_version_are_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger").chmod(0o755)
    Ledger.open(tmp_path, "f", "1")
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o750


def test_ledgers_of_another_user_are_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ledger" / "f" / "1").mkdir(parents=True)
    OtherUser(monkeypatch).owns(tmp_path / "ledger")
    with pytest.raises(FlowError, match=r"^the ledger .* cannot be written: it belongs to .*--report-dir$"):
        Ledger.open(tmp_path, "f", "2")
    assert [path.name for path in (tmp_path / "ledger" / "f").iterdir()] == ["1"]
