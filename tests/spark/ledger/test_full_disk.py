"""A report folder without room: the error names the file, and the results of the run are shown nevertheless."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.cli import console as cli_console
from mirror.errors import FlowError
from mirror.spark.driver import batch_job as job
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.result_files import write_results
from mirror.spark.ledger.results import FlowReport, Summary
from tests.spark.ledger.test_results import result

if TYPE_CHECKING:
    from pathlib import Path


FULL = "No space left on device"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is written gets to the disk, as on a file system that allocates late."""
    monkeypatch.setattr(os, "fsync", _full)


def _full(_: int) -> None:
    raise OSError(errno.ENOSPC, FULL)


@pytest.mark.usefixtures("full")
def test_a_write_to_a_full_disk_names_the_file_and_leaves_no_partial_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(OSError, match=FULL) as caught:
        write_atomically(path, b"x")
    assert list(tmp_path.iterdir()) == []
    assert error_lines(caught.value) == [f"{path}: {FULL}"]
    cli_console.print_error(caught.value, debug=False)
    assert capsys.readouterr().err == f"mirror: {path}: {FULL}\n"


@pytest.mark.usefixtures("full")
def test_a_run_continues_without_its_summary_and_removes_an_older_one(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "summary.json").write_text("yesterday's")
    summary = Summary(tmp_path, said.append)
    summary.write([])
    summary.write([])
    assert said == [f"the summary cannot be written: {tmp_path}/summary.json: {FULL}; the run continues without it"]
    assert summary.content == {"flows": []}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("full")
def test_the_table_is_printed_without_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: object) -> None:
        report.partitions = [result(0, records=5)]

    consoles, report = Consoles(), FlowReport("f", datetime.now(UTC))
    flow_run = cast("Any", SimpleNamespace(run=run))
    options = JobOptions(config=tmp_path)
    job._run_flow(flow_run, [report], consoles, Summary(tmp_path, consoles.warning), options)
    said = capsys.readouterr()
    assert "1 of 1 complete" in said.out
    assert f"{tmp_path}/summary.json: {FULL}" in " ".join(said.err.split())


@pytest.mark.usefixtures("full")
def test_a_flow_without_room_for_its_ledger_says_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        FlowError, match=rf"^the ledger {tmp_path}/ledger/f/run cannot be written: {FULL}; .*--report-dir"
    ):
        Ledger.open(tmp_path, "f", "run")


def test_checking_a_writable_ledger_leaves_no_file(tmp_path: Path) -> None:
    assert list(Ledger.open(tmp_path, "f", "run").path.iterdir()) == []


@pytest.mark.usefixtures("full")
def test_results_that_cannot_be_written_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=FULL):
        write_results(tmp_path, [AttemptResult(0, 0, result(0))], 0)
