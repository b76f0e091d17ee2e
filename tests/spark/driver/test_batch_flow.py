"""What a run records of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from mirror.errors import Fenced
from mirror.groups.decision import Reason
from mirror.groups.positions import GroupsReport, GroupState
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.control import RunControl
from mirror.runtime.clock import SystemClock
from mirror.spark.driver import batch_flow
from mirror.spark.driver.batch_flow import FlowRunner
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.output.console import Consoles
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import FlowReport, exit_status
from mirror.spark.preflight.flow_checks import Findings
from mirror.telemetry.run import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig


def runner(tmp_path: Path) -> FlowRunner:
    nothing = cast("Any", None)
    return FlowRunner(
        nothing,
        config_of(flow()),
        Consoles(),
        findings=Findings(),
        telemetry=RunTelemetry(TelemetrySettings(disabled=True), tmp_path, SystemClock()),
        config_path=tmp_path,
        secrets_dir=None,
        report_dir=tmp_path,
        debug=False,
        began_ms=SystemClock().unix_ms() - 1_030_000,
    )


def preparation(of: FlowConfig) -> FlowPreparation:
    return FlowPreparation(config_of(of), of, Consoles(), Findings())


def test_the_first_flow_of_a_run_records_the_overhead(tmp_path: Path) -> None:
    run = runner(tmp_path)
    first, second = (Ledger.open(tmp_path, "f", name) for name in ("run-1", "run-2"))
    for ledger in (first, second):
        ledger.write_plan(Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[]))
        ledger.write_attempts([Attempt(0, 0, result(0, seconds=1000.0)), Attempt(1, 0, result(1, seconds=400.0))])
        run._collect(flow(), ledger, FlowReport("f", datetime.now(UTC)))
    recorded = first.overhead()
    assert recorded is not None
    assert 30.0 <= recorded < 600.0
    assert second.overhead() is None, "Spark was there already"


@pytest.mark.parametrize("outcome", [Outcome.UNFINISHED, Outcome.COMPLETE])
def test_a_run_that_another_one_has_ended_names_it_unless_it_was_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: Outcome
) -> None:
    run = runner(tmp_path)
    run._fenced_by = RunControl(run="20261124-other", host="elsewhere", since_ms=0)
    report = FlowReport("f", datetime.now(UTC), datetime.now(UTC), [result(0), result(1, outcome)])
    run._report_takeover(flow(), report)
    line = "another run of this flow took over: 20261124-other on elsewhere"
    interrupted = outcome is Outcome.UNFINISHED
    assert (report.fenced, report.outcome) == ((line, Outcome.FENCED) if interrupted else (None, Outcome.COMPLETE))
    assert exit_status([report]) == (3 if interrupted else 0)
    assert capsys.readouterr().err == (f"mirror: flow f: {line}\n" if interrupted else "")


def test_an_unexpected_error_of_the_groups_is_reported_and_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("what")

    monkeypatch.setattr(batch_flow, "CheckpointedRounds", fail)
    report = FlowReport("f", datetime.now(UTC))
    runner(tmp_path)._bring_groups(flow(), Ledger.open(tmp_path, "f", "run"), report)
    assert report.groups is not None
    assert report.groups.problems == ("ZeroDivisionError: what",)
    assert "consumer groups: ZeroDivisionError: what" in capsys.readouterr().err


def test_groups_that_another_run_writes_are_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rounds:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def round(self) -> GroupsReport:
            raise Fenced("another one", 90)

        def fenced(self, error: Fenced) -> GroupsReport:
            return GroupsReport({"billing": GroupState("billing", (), Reason.OTHER_RUN, str(error))})

    monkeypatch.setattr(batch_flow, "CheckpointedRounds", Rounds)
    report = FlowReport("f", datetime.now(UTC))
    runner(tmp_path)._bring_groups(flow(), Ledger.open(tmp_path, "f", "run"), report)
    assert report.groups is not None
    assert [(held.group, held.reasons) for held in report.groups.held] == [("billing", ("other-run",))]
    assert Ledger(tmp_path / "ledger" / "f" / "run").groups() == report.groups
