"""Results joined to the plan, the ledger's files, the summary, the table, and the progress bar's sum."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from mirror.errors import DeliveryCause, DeliveryPhase, DeliveryTimeout
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.driver.output.tables import flow_table, remarks
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.ledger import MAX_RUNS, Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import (
    STANDS_STILL_MS,
    FlowReport,
    Summary,
    Totals,
    exit_status,
    join_results,
    period_json,
    summary_text,
)
from tests.spark.planning.test_packing import backlog

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
END = datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC)


EXPIRY = DeliveryTimeout("late", cause=DeliveryCause.NO_LEADER, phase=DeliveryPhase.IN_FLIGHT, age_ms=5).describe()


LOSS = {"kind": "truncated", "target_start": 50, "target_end": 60, "start": 30, "end": 40, "time": 7}


def result(partition: int, outcome: Outcome = Outcome.COMPLETE, **more: object) -> RangeResult:
    values = {"flow": "f", "topic": "t", "target_topic": "a.t", "partition": partition, "start": 10, "end": 15}
    return RangeResult(**{**values, "outcome": outcome, **more})  # type: ignore[arg-type]  # a test's shorthand


def report(
    *partitions: RangeResult,
    error: str | None = None,
    behind: str | None = None,
    held: bool = False,
    asked: datetime | None = None,
) -> FlowReport:
    return FlowReport("f", START, END, list(partitions), error, held, behind=behind, asked=asked)


def test_every_partition_of_the_plan_has_a_result() -> None:
    plan = Plan(flow="f", tasks=[[backlog(2, 5)], [backlog(0, 5)]], results_without_task=[result(1)])
    attempts = [AttemptResult(0, 1, result(2)), AttemptResult(0, 0, result(2, Outcome.FAILED))]
    joined = join_results(plan, attempts)
    assert [(each.partition, each.outcome) for each in joined] == [
        (0, Outcome.UNFINISHED),
        (1, Outcome.COMPLETE),
        (2, Outcome.COMPLETE),
    ]
    assert (joined[0].start, joined[0].end) == (10, 10)
    assert "lost" in str(joined[0].error)


def test_a_partition_that_was_added_to_the_epoch_has_its_tasks_result() -> None:
    """Its plan lacked it, or knew it as not prepared."""
    waiting = [result(1, Outcome.UNFINISHED, error="not prepared"), result(3, Outcome.FAILED, error="no leader")]
    plan = Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=waiting, period=1)
    joined = join_results(plan, [AttemptResult(0, 0, result(number, records=7)) for number in range(3)])
    assert [(one.partition, one.outcome, one.records) for one in joined] == [
        (0, Outcome.COMPLETE, 7),
        (1, Outcome.COMPLETE, 7),
        (2, Outcome.COMPLETE, 7),
        (3, Outcome.FAILED, 0),
    ]


@pytest.mark.parametrize(
    ("one", "outcome", "words"),
    [
        (result(0), Outcome.UNFINISHED, "max-bytes-per-run: 85 records are left for the next run"),
        (result(0, end=100), Outcome.COMPLETE, None),
        # A batch that begins before the cut is copied whole, here all that there was.
        (result(0, end=101), Outcome.COMPLETE, None),
        (result(0, Outcome.FAILED, error="why"), Outcome.FAILED, "why"),
    ],
)
def test_a_truncated_range_is_unfinished_if_records_are_left(
    one: RangeResult, outcome: Outcome, words: str | None
) -> None:
    plan = Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[], truncated_at={"t-0": 100})
    (joined,) = join_results(plan, [AttemptResult(0, 0, one)])
    assert (joined.outcome, joined.error) == (outcome, words)


@pytest.mark.parametrize(
    ("reports", "status", "outcome"),
    [
        ([report()], 0, Outcome.COMPLETE),
        ([report(result(0), result(1))], 0, Outcome.COMPLETE),
        ([report(result(0), result(1, Outcome.UNFINISHED))], 3, Outcome.UNFINISHED),
        ([report(result(0, Outcome.FAILED), result(1, Outcome.UNFINISHED))], 3, Outcome.FAILED),
        ([report(result(0, Outcome.EXPIRED), result(1, Outcome.FENCED))], 3, Outcome.EXPIRED),
        ([report(error="no topic"), report(result(0, Outcome.EXPIRED))], 1, Outcome.FAILED),
        ([report(error="it copies again", held=True), report(result(0))], 4, Outcome.FAILED),
        ([report(error="it copies again", held=True), report(error="no topic")], 1, Outcome.FAILED),
        ([FlowReport("f", START)], 3, Outcome.UNFINISHED),
        ([FlowReport("f", START, END, cut_short=True)], 3, Outcome.UNFINISHED),
        ([report(result(0), behind="t-1 had not begun")], 3, Outcome.UNFINISHED),
        ([report(result(0, Outcome.FAILED), behind="t-1 had not begun")], 3, Outcome.FAILED),
    ],
)
def test_exit_status_and_outcome(reports: list[FlowReport], status: int, outcome: Outcome) -> None:
    assert exit_status(reports) == status
    assert reports[0].outcome is outcome


def test_the_table_of_many_partitions_has_the_worst_and_a_count() -> None:
    many = [result(number, records=1, bytes=number) for number in range(500)]
    many[250] = result(250, Outcome.FAILED, error="why not")
    many[77] = result(77, expiries=[EXPIRY])

    def rows(most: int | None) -> list[str]:
        text = io.StringIO()
        Console(file=text, width=200).print(flow_table(report(*many), most))
        return [" ".join(line.replace("│", " ").split()) for line in text.getvalue().splitlines()]

    found = [line for line in rows(40) if line.startswith("t ")]
    assert len(found) == 40
    assert [int(line.split()[1]) for line in found[:4]] == [250, 77, 499, 498]
    assert "460 more partitions, none of them worse (--all shows them)" in rows(40)
    assert any(line.startswith("total 500 498 ") and "499 of 500 complete" in line for line in rows(40))
    assert [line.split()[1] for line in rows(None) if line.startswith("t ")] == [f"{number}" for number in range(500)]
    assert not any("more partitions" in line for line in rows(None))


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (result(0), 0),
        (result(0, Outcome.UNFINISHED), 0),
        (result(0, Outcome.UNFINISHED, stuck_since_ms=1), 3),
        (result(0, Outcome.FAILED, error="why"), 3),
        (result(0, Outcome.EXPIRED), 3),
        (result(0, Outcome.FENCED), 3),
    ],
)
def test_a_stopped_stream_fails_only_for_earlier_failures(one: RangeResult, status: int) -> None:
    assert exit_status([report(result(1), one)], {"f"}) == status
    assert exit_status([report(result(1), one, error="it could not run")], {"f"}) == 1
    assert exit_status([report(result(1), one, behind="t-2 had not begun")], {"f"}) == 3


@pytest.mark.parametrize(
    ("waited_ms", "expiries", "status"),
    [(-200, [], 0), (STANDS_STILL_MS - 1, [], 0), (STANDS_STILL_MS, [], 3), (200, [EXPIRY], 3)],
)
def test_a_batch_in_flight_when_a_stream_is_stopped_is_not_stuck(
    waited_ms: int, expiries: list[dict[str, Any]], status: int
) -> None:
    """The target had no time to acknowledge it; it was sent shortly before the stream was asked to end, or after."""
    since_ms = round(END.timestamp() * 1000) - waited_ms
    interrupted = result(0, Outcome.UNFINISHED, stuck_since_ms=since_ms, expiries=expiries)
    assert exit_status([report(interrupted, asked=END)], {"f"}) == status


@pytest.mark.parametrize("counts", [[], [0], [1], [2, 0, 3]])
def test_the_summary_s_text_is_its_json_with_a_line_for_each_partition(counts: list[int]) -> None:
    flows = [
        {"flow": f'"{number}",\n', "groups": {"partitions": [{"a": 1}]}, "partitions": [{"topic": "t", "n": n}] * n}
        for number, n in enumerate(counts)
    ]
    text = summary_text({"flows": flows})
    assert json.loads(text) == {"flows": flows}
    assert len([line for line in text.splitlines() if line.startswith('    {"topic": "t"')]) == sum(counts)


def test_the_summary_has_its_documented_shape(tmp_path: Path) -> None:
    one = result(0, records=5, batches=1, bytes=500, seconds=0.5, retries=1, expiries=[EXPIRY])
    one.deep, one.gaps = {"offset gaps": 3}, {"retention": 7}
    one.way, one.way_reason = "sequences", "records are younger than 12 h"
    one.timeline = CopyTimeline(began_ms=1, phases={"idle": 2}, curve=[[1, 2, 3, 4]], traces=["a trace"])
    summary = Summary(tmp_path / "deep" / "er", pytest.fail)
    assert summary.content is None
    summary.write([report(one)])
    written = json.loads((tmp_path / "deep" / "er" / "summary.json").read_text())
    assert summary.content == written
    (flow,) = written["flows"]
    assert flow.pop("partitions") == [
        {
            "flow": "f",
            "topic": "t",
            "target_topic": "a.t",
            "partition": 0,
            "start": 10,
            "end": 15,
            "records": 5,
            "batches": 1,
            "bytes": 500,
            "seconds": 0.5,
            "outcome": "complete",
            "error": None,
            "skipped": {},
            "deep": {"offset gaps": 3},
            "gaps": {"retention": 7},
            "aside": {},
            "expiries": [EXPIRY],
            "target_losses": [],
            "retries": 1,
            "failures": {},
            "stuck_since_ms": None,
            "timeline": {**asdict(CopyTimeline(began_ms=1, phases={"idle": 2})), "curve": None, "traces": None},
            "counted": "records",
            "withheld": None,
            "way": "sequences",
            "way_reason": "records are younger than 12 h",
        }
    ]
    assert flow == {
        "flow": "f",
        "run": "",
        "outcome": "complete",
        "started": "2026-01-31T12:00:00.000Z",
        "ended": "2026-01-31T12:00:10.000Z",
        "error": None,
        "held": False,
        "behind": None,
        "groups": None,
        "configs": None,
        "deletions": None,
        "acls": None,
        "sync": {"kinds": {}, "not_local": 0, "aside": 0},
        "index_bytes": None,
        "evidence": {},
    }


def test_an_epoch_as_json_has_sums_and_incomplete_partitions() -> None:
    one = result(0, records=5, batches=1, bytes=500, seconds=0.51234)
    two = result(1, Outcome.EXPIRED, records=3, batches=2, bytes=70, seconds=0.1, error="late")
    assert period_json("f", 7, [one, two]) == {
        "flow": "f",
        "period": 7,
        "partitions": 2,
        "records": 8,
        "batches": 3,
        "bytes": 570,
        "seconds": 0.512,
        "incomplete": [{"topic": "t", "partition": 1, "outcome": "expired", "error": "late"}],
    }
    assert period_json("f", 8, [])["seconds"] == 0.0


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "summary.json", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mirror.spark.ledger.atomic_write.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "summary.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert (tmp_path / "summary.json").read_text() == "old"


def test_the_ledger_returns_what_was_recorded(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "1")
    assert (ledger.plan(), ledger.attempts()) == (None, [])
    plan = Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[result(1)])
    attempts = [
        AttemptResult(0, 1, result(0, skipped={"control": 2}, expiries=[EXPIRY], stuck_since_ms=77)),
        AttemptResult(0, 1, result(2, way="transactions", way_reason="the source topic is compacted")),
        AttemptResult(0, 1, result(3, target_losses=[LOSS])),
        AttemptResult(0, 0, result(0, Outcome.FAILED), "Trace\nback"),
    ]
    ledger.write_plan(plan)
    ledger.write_attempts(attempts)
    again = Ledger(ledger.path)
    assert (again.plan(), again.attempts()) == (plan, attempts)


def test_totals_of_a_stream_have_the_losses_of_all_epochs() -> None:
    totals = Totals()
    for period in (result(0, target_losses=[LOSS]), result(0), result(0, target_losses=[{**LOSS, "start": 50}])):
        totals.add([period])
    (total,) = totals.results()
    assert [loss["start"] for loss in total.target_losses] == [30, 50]


def test_totals_of_a_stream_have_the_last_known_way() -> None:
    totals = Totals()
    for period in (
        result(0, way="transactions", way_reason="old", records=1),
        result(0, way="sequences", way_reason="young", records=1),
        result(0, records=1),
    ):
        totals.add([period])
    (total,) = totals.results()
    assert (total.way, total.way_reason, total.records) == ("sequences", "young", 3)


def test_the_ledger_removes_old_runs_of_its_own_flow_only(tmp_path: Path) -> None:
    other = Ledger.open(tmp_path, "g", "0")
    runs = [Ledger.open(tmp_path, "f", f"2026-{number:03}").path for number in range(MAX_RUNS + 3)]
    assert [path.exists() for path in runs] == [False] * 3 + [True] * MAX_RUNS
    assert other.path.exists()


def shown(one: FlowReport, width: int = 160) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(flow_table(one))
    return file.getvalue()


def test_the_table_has_rates_and_a_total() -> None:
    text = shown(report(result(0, records=1500, bytes=3_000_000, seconds=2.0), result(1)))
    (row,) = (line for line in text.splitlines() if "1,500" in line and "total" not in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["t", "0", "1,500", "3.0 MB", "1.5 MB/s", "complete"]
    (total,) = (line for line in text.splitlines() if "total" in line)
    assert "300.0 kB/s" in total
    assert "2 of 2 complete" in total
    assert "error" not in text


def test_partitions_that_go_another_way_than_the_others_are_named_below_the_table() -> None:
    young: dict[str, Any] = {"way": "sequences", "way_reason": "records are younger than 12 h"}
    old: dict[str, Any] = {"way": "transactions", "way_reason": "records are older than 12 h", "topic": "[red]t"}
    text = shown(report(result(0, **young), result(1, **old)), width=200)
    line = "1 partition goes in transactions, because records are older than 12 h: [red]t-1"
    assert line in " ".join(text.split())
    compacted = {**old, "way_reason": "the source topic is compacted"}
    several = io.StringIO()
    Terminal(several).print(flow_table(report(result(0, **old), result(1, **compacted))))
    assert several.getvalue().count("\n1 partition goes in transactions, because ") == 2
    assert "goes in" not in shown(report(result(0, **young), result(1, **young)))
    configured: dict[str, Any] = {"way": "transactions", "way_reason": 'exactly-once-by = "transactions"'}
    assert "goes in" not in shown(report(result(0, **configured)))


def test_errors_are_shown_in_full_and_never_as_markup() -> None:
    line = "broker said [red]no[/red] " + "x" * 300
    text = shown(report(result(0), result(1, Outcome.FAILED, error=line)), width=100)
    assert "1 of 2 complete" in text
    assert text.count("x") >= 300
    assert "[red]no[/red]" in "".join(text.split("\n"))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (result(0), ""),
        (
            result(0, skipped={"control": 3, "aborted": 1, "empty": 1}, gaps={"compacted": 5, "markers": 2}, retries=1),
            "",
        ),
        (result(0, gaps={"retention": 1200, "markers": 2}), "gaps skipped: 1,200 offsets (retention)"),
        (
            result(0, target_losses=[LOSS]),
            "the target lost its offsets from 50 to 59: the source's offsets from 30 to 39 were copied again",
        ),
        (result(0, skipped={"no key": 2, "control": 1}), "left out: 2 (no key)"),
        (result(0, expiries=[EXPIRY]), "expired once, the last: no leader (in flight)"),
        (
            result(0, Outcome.EXPIRED, error="late", expiries=[EXPIRY, EXPIRY]),
            "late; expired 2 times, the last: no leader (in flight)",
        ),
    ],
)
def test_a_partition_has_remarks(one: RangeResult, expected: str) -> None:
    assert remarks(one) == expected


def test_remarks_about_complete_partitions_are_no_errors() -> None:
    text = shown(report(result(0, gaps={"truncated": 7})), width=100)
    assert "remarks" in text
    assert "error" not in text
    assert max(len(line) for line in text.splitlines()) <= 100
