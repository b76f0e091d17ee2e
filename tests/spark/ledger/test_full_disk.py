"""A report folder without room: the error names the file, and the results of the run are shown nevertheless."""

from __future__ import annotations

import contextlib
import errno
import os
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.cli import console as cli_console
from mirror.errors import FlowError
from mirror.relay.model.ranges import Outcome
from mirror.runtime.clock import SystemClock
from mirror.spark.driver import batch_job as job
from mirror.spark.driver import run_status
from mirror.spark.driver.batch_flow import FlowRunner
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempts import Attempt, CopiedTask
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.result_files import write_copied
from mirror.spark.ledger.results import FlowReport, Summary
from mirror.spark.ledger.status_table import StatusTable
from mirror.spark.preflight.flow_checks import Findings
from mirror.telemetry.run import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.spark.fakes import SilentWriter
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig

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
    def run(_: object, report: FlowReport) -> None:
        report.partitions = [result(0, records=5)]

    consoles = Consoles()
    reports = [FlowReport("f", datetime.now(UTC))]
    runner = cast("Any", SimpleNamespace(run=run))
    options = JobOptions(config=tmp_path)
    job._run_flow(runner, flow(), reports, consoles, Summary(tmp_path, consoles.warning), options)
    said = capsys.readouterr()
    assert "1 of 1 complete" in said.out
    assert f"{tmp_path}/summary.json: {FULL}" in " ".join(said.err.split())


@pytest.mark.usefixtures("full")
def test_a_flow_without_room_for_its_ledger_says_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        FlowError, match=rf"^the ledger {tmp_path}/ledger/f/run cannot be written: {FULL}; .*--report-dir"
    ):
        Ledger.open(tmp_path, "f", "run")


UNWATCHED = SimpleNamespace(check=lambda: None)


def test_results_that_could_not_be_written_do_not_count_as_lost_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied_but_not_recorded(_: FlowRunner, __: FlowConfig, ledger: Ledger, *___: object) -> None:
        ledger.write_plan(Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[]))
        monkeypatch.setattr(os, "fsync", _full)
        raise RuntimeError("Spark says something long")

    monkeypatch.setattr(FlowPreparation, "prepare", lambda *_: TargetTopics(copyable={}, obstacles={}))
    monkeypatch.setattr(FlowPreparation, "open_watch", lambda *_: contextlib.nullcontext(UNWATCHED))
    monkeypatch.setattr(FlowRunner, "_claimed", lambda *_: contextlib.nullcontext(None))
    monkeypatch.setattr(FlowRunner, "_replicate", copied_but_not_recorded)
    monkeypatch.setattr(run_status, "StatusWriter", SilentWriter)
    monkeypatch.setattr(run_status, "read_status", lambda *_: StatusTable())
    one, nothing = flow(), cast("Any", None)
    telemetry = RunTelemetry(TelemetrySettings(disabled=True), tmp_path, SystemClock())
    run = FlowRunner(
        nothing,
        config_of(one),
        Consoles(),
        findings=Findings(),
        telemetry=telemetry,
        config_path=tmp_path,
        secrets_dir=None,
        report_dir=tmp_path,
        debug=False,
    )
    report = FlowReport("f", datetime.now(UTC))
    with pytest.raises(FlowError, match=f"the ledger .* cannot be written: {FULL}"):
        run.run(one, report)
    assert [one.outcome for one in report.partitions] == [Outcome.UNFINISHED], "the table has its rows"


def test_checking_a_writable_ledger_leaves_no_file(tmp_path: Path) -> None:
    assert list(Ledger.open(tmp_path, "f", "run").path.iterdir()) == []


@pytest.mark.usefixtures("full")
def test_results_that_cannot_be_written_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=FULL):
        write_copied(tmp_path, [CopiedTask([Attempt(0, 0, result(0))], 1, None)])
