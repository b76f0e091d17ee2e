"""A report folder read as what a report shows, and report.html kept beside the summary."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirror.errors import FlowError
from mirror.groups.summary import GroupsSummary
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.stored_record import plain
from mirror.spark.driver.report import report_file
from mirror.spark.driver.report.report_file import ReportFile
from mirror.spark.driver.report.report_source import ReportSource
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import FlowReport, Summary, Totals
from mirror.telemetry.evidence import Evidence, LastVerification
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.traces.ids import period_id
from tests.telemetry import runs

FLOW = "paris-berlin"
STARTED = datetime.fromtimestamp(runs.BEGAN_MS / 1000, UTC)
ENDED = datetime.fromtimestamp(runs.BEGAN_MS / 1000 + 303, UTC)


def planned(one: RangeResult) -> Range:
    return Range(
        flow=FLOW,
        topic=one.topic,
        target_topic=one.target_topic,
        partition=one.partition,
        start=one.start,
        end=one.end + 10,
        source_cluster_id="cluster-a",
        topic_id="t1",
    )


def write(folder: Path, run: str, results: list[RangeResult], period: int = 0, *more: AttemptResult) -> Ledger:
    """One period of a run, as the planner and the sink leave it."""
    ledger = Ledger.open(folder, FLOW, run)
    ledger.write_plan(
        Plan(flow=FLOW, tasks=[[planned(one) for one in results]], results_without_task=[], period=period)
    )
    ledger.write_attempts([*more, *(AttemptResult(0, 1, one) for one in results)], period)
    return ledger


def summary(folder: Path, results: list[RangeResult], run: str = "r1", **more: Any) -> None:
    Summary(folder, pytest.fail).write(
        [FlowReport(FLOW, STARTED, **{"ended": ENDED, "partitions": results, "run": run, **more})]
    )


def only(folder: Path, flow: str | None = None) -> FlowReportData:
    (view,) = ReportSource(folder).views(flow)
    return view


def test_a_scheduled_run_has_the_timelines_of_its_partitions(tmp_path: Path) -> None:
    results = [runs.healthy(), runs.expired()]
    write(tmp_path, "r1", results)
    summary(tmp_path, results)
    view = only(tmp_path)
    assert (view.flow, view.outcome, view.periods) == (FLOW, Outcome.EXPIRED, None)
    assert (view.started_ms, view.ended_ms) == (runs.BEGAN_MS, runs.BEGAN_MS + 303_000)
    assert view.partitions == results, "the summary has no curve: that of the ledger is there"
    assert view.trace == period_id(FLOW, "r1", 0).trace_hex


def second_epoch(one: RangeResult) -> RangeResult:
    """The same partition, a thousand records and ten minutes later."""
    timeline = runs.timeline_of(one)
    curve = [[time + 600_000, at + 1_000, end + 1_000, size] for time, at, end, size in timeline.curve]
    later = replace(timeline, began_ms=timeline.began_ms + 600_000, ended_ms=timeline.ended_ms + 600_000, curve=curve)
    return replace(one, start=one.end, end=one.end + 1_000, timeline=later)


def test_a_stream_s_epochs_are_one_curve(tmp_path: Path) -> None:
    first = runs.healthy()
    periods = [first, second_epoch(first)]
    totals = Totals()
    for number, one in enumerate(periods, 1):
        write(tmp_path, "r1", [one], number)
        totals.add([one])
    summary(tmp_path, totals.results(), ended=None)
    view = only(tmp_path)
    (one,) = view.partitions
    assert (view.periods, view.covered_periods, view.ended_ms) == (2, 2, None)
    assert one.records == 2 * first.records
    timeline = runs.timeline_of(one)
    assert len(timeline.curve) == 202
    assert timeline.curve[-1][3] == 2 * first.bytes
    assert timeline.began_ms == runs.BEGAN_MS


def test_each_epoch_of_a_stream_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    attempts = Ledger.attempts

    def counted(ledger: Ledger, period: int = 0) -> list[AttemptResult]:
        read.append(period)
        return attempts(ledger, period)

    monkeypatch.setattr(Ledger, "attempts", counted)
    source = ReportSource(tmp_path)
    for number in (1, 2, 3):
        write(tmp_path, "r1", [runs.healthy()], number)
        summary(tmp_path, [runs.healthy()])
        source.views()
        source.views()
    assert [period for period in read if period] == [1, 2, 3]


def test_an_earlier_attempt_is_an_event(tmp_path: Path) -> None:
    whole = runs.healthy()
    lost = replace(whole, outcome=Outcome.FAILED, error="the executor went away", timeline=None)
    write(tmp_path, "r1", [whole], 0, AttemptResult(0, 0, lost))
    summary(tmp_path, [whole])
    (event,) = runs.timeline_of(only(tmp_path).partitions[0]).events
    assert event["time_ms"] > 0
    del event["time_ms"]
    error = {"outcome": "failed", "error": "the executor went away"}
    assert event == {"name": "mirror.earlier_attempt", "task": 0, "attempt": 0, **error}


def test_expiries_that_the_summary_dropped_are_read_from_the_ledger(tmp_path: Path) -> None:
    many = [{"time_ms": number, "cause": "no leader"} for number in range(30)]
    one = replace(runs.expired(), expiries=many)
    write(tmp_path, "r1", [one])
    summary(tmp_path, [replace(one, expiries=[{"time_ms": -1, "cause": "backlog"}, *many[-9:]])])
    assert [each["time_ms"] for each in only(tmp_path).partitions[0].expiries] == [-1, *range(30)]


def test_a_killed_run_shows_its_planned_ranges(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, FLOW, "r1")
    ledger.write_plan(Plan(flow=FLOW, tasks=[[planned(runs.healthy())]], results_without_task=[runs.idle()]))
    summary(tmp_path, [], ended=None)
    view = only(tmp_path)
    assert (view.outcome, view.ended_ms) == (Outcome.UNFINISHED, None)
    config, orders = view.partitions
    assert (config.outcome, orders.outcome) == (Outcome.COMPLETE, Outcome.UNFINISHED)
    assert "was killed" in str(orders.error)


def test_a_killed_stream_shows_its_completed_epochs(tmp_path: Path) -> None:
    write(tmp_path, "r1", [runs.healthy()], 1)
    summary(tmp_path, [], ended=None)
    (one,) = only(tmp_path).partitions
    assert one == runs.healthy()


def test_a_flow_that_could_not_run_is_not_given_another_run_s_curves(tmp_path: Path) -> None:
    write(tmp_path, "r0", [runs.healthy()])
    summary(tmp_path, [], run="r1", error="no topic")
    view = only(tmp_path)
    assert (view.outcome, view.error, view.partitions) == (Outcome.FAILED, "no topic", [])


def test_folders_of_other_versions_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    write(tmp_path, "r1", [runs.healthy()])
    summary(tmp_path, [runs.healthy()])
    path = tmp_path / "summary.json"
    result = json.loads(path.read_text())
    del result["flows"][0]["run"]
    result["flows"][0]["partitions"][0] |= {"new": 1}
    result["flows"][0]["partitions"][0]["timeline"] |= {"newer": 2, "curve": None, "traces": None}
    path.write_text(json.dumps(result))
    (one,) = only(tmp_path).partitions
    assert one.records == runs.healthy().records
    assert runs.timeline_of(one).curve == []
    assert runs.timeline_of(one).phases == runs.timeline_of(runs.healthy()).phases


def test_the_groups_are_those_of_the_last_round(tmp_path: Path) -> None:
    older = GroupsSummary(total=5, in_step=2)
    write(tmp_path, "r1", [runs.healthy()])
    summary(tmp_path, [runs.healthy()], groups=older)
    assert only(tmp_path).groups == older


def test_the_last_verification_is_what_the_run_knew_of_it(tmp_path: Path) -> None:
    write(tmp_path, "r1", [runs.healthy()])
    summary(tmp_path, [runs.healthy()])
    assert only(tmp_path).evidence == Evidence()
    path = tmp_path / "summary.json"
    content = json.loads(path.read_text())
    found = Evidence(LastVerification(time_ms=7, equal_ms=5, outcomes={"equal": 3}))
    content["flows"][0]["evidence"] = plain(found)
    path.write_text(json.dumps(content))
    assert only(tmp_path).evidence == found


def test_the_size_of_the_index_is_in_the_summary_if_it_is_known(tmp_path: Path) -> None:
    write(tmp_path, "r1", [runs.healthy()])
    summary(tmp_path, [runs.healthy()])
    assert only(tmp_path).index_bytes is None
    path = tmp_path / "summary.json"
    content = json.loads(path.read_text())
    content["flows"][0]["index_bytes"] = 4_700
    path.write_text(json.dumps(content))
    assert only(tmp_path).index_bytes == 4_700


def test_an_epoch_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    first, second = runs.healthy(), second_epoch(runs.healthy())
    ledger = write(tmp_path, "r1", [first], 1)
    write(tmp_path, "r1", [second], 2)
    (ledger.path / "results-00000001.jsonl.gz").write_bytes(b"torn")
    summary(tmp_path, [second])
    view = only(tmp_path)
    assert (view.periods, view.covered_periods) == (2, 1)
    assert len(runs.timeline_of(view.partitions[0]).curve) == 101


def test_a_flow_of_an_earlier_job_is_in_the_ledger(tmp_path: Path) -> None:
    write(tmp_path, "r1", [runs.healthy(), runs.expired()])
    Summary(tmp_path, pytest.fail).write([FlowReport("other", STARTED, ENDED)])
    view = only(tmp_path, FLOW)
    assert (view.outcome, view.error) == (Outcome.EXPIRED, None)
    assert (view.started_ms, view.ended_ms) == (runs.BEGAN_MS, runs.BEGAN_MS + 300_000)
    assert [one.topic for one in view.partitions] == ["orders", "orders"]
    with pytest.raises(FlowError, match="there is no flow 'f' here, only: other, paris-berlin"):
        only(tmp_path, "f")


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no run has written"), ("{", "is not a summary of a run"), ('{"flows": [{}]}', r"\(KeyError: 'flow'\)")],
)
def test_a_folder_without_a_run_is_one_clear_line(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(FlowError, match=words) as caught:
        ReportSource(tmp_path).views()
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# --- report.html


def kept(folder: Path, warned: list[str] | None = None) -> ReportFile:
    return ReportFile(folder, (list[str]() if warned is None else warned).append)


def test_the_report_is_there_when_the_run_has_ended(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("yesterday's")
    with kept(tmp_path):
        assert "A run began at" in page.read_text()
        assert "yesterday" not in page.read_text()
        write(tmp_path, "r1", [runs.expired()])
        summary(tmp_path, [runs.expired()])
    assert "Expired: no leader on the target" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o644


def test_the_report_is_written_after_a_failed_run(tmp_path: Path) -> None:
    def fails() -> None:
        with kept(tmp_path):
            summary(tmp_path, [], error="no topic matches")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert "no topic matches" in (tmp_path / "report.html").read_text()


def test_a_run_that_never_began_leaves_no_report(tmp_path: Path) -> None:
    with kept(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(report_file, "render_report", broken)
    warned: list[str] = []
    with kept(tmp_path, warned) as report:
        summary(tmp_path, [])
        report.write()
    line = (
        f"{tmp_path / 'report.html'} could not be written (ZeroDivisionError: by zero); `mirror report` writes it later"
    )
    assert warned == [line]


def test_a_run_without_the_extra_of_reports_is_warned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    warned: list[str] = []
    with kept(tmp_path, warned) as report:
        summary(tmp_path, [])
        report.write()
    (line,) = warned
    assert "a report needs Plotly and Jinja: " in line


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_file, "write_atomically", full)
    warned: list[str] = []
    with kept(tmp_path, warned):
        summary(tmp_path, [])
    assert len(warned) == 1
    assert "No space left on device" in warned[0]


def test_a_stream_writes_the_report_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, takes, written = [1_000.0], [0.2], list[float]()

    def rendered(*_: object) -> bytes:
        written.append(now[0])
        now[0] += takes[0]
        return b""

    monkeypatch.setattr("mirror.spark.driver.report.report_file.time.monotonic", lambda: now[0])
    monkeypatch.setattr(report_file, "render_report", rendered)
    summary(tmp_path, [])
    report = kept(tmp_path)
    for _ in range(130):
        report.write_if_due()
        now[0] += 1
    assert [int(each) for each in written] == [1_000, 1_060, 1_120]
    written.clear()
    takes[0] = 3.0
    for _ in range(400):
        report.write_if_due()
        now[0] += 1
    assert len(written) == 3, "one that takes long is written less often: 2% of the time at most"


def test_two_thousand_partitions_are_read_and_written_within_seconds(tmp_path: Path) -> None:
    rng = random.Random(4)
    results = [runs.small(number, rng) for number in range(2_000)]
    write(tmp_path, "r1", results)
    summary(tmp_path, results)
    began = datetime.now(UTC)
    page = report_file.render_report(ReportSource(tmp_path))
    assert (datetime.now(UTC) - began).total_seconds() < 20, "it takes one on an idle machine"
    assert len(page) < 8_000_000
