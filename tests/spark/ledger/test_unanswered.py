"""Ranges whose tasks did not answer: their figures come from the target or are unknown, and never 0."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import CountBasis, Outcome
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.spark.driver.output.tables import flow_table
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import FlowReport, Totals, join_results
from mirror.spark.ledger.unanswered import TargetProgress, result_without_answer
from mirror.spark.status import target_progress as reached
from mirror.spark.status.target_progress import read_target_progress
from tests.spark import fakes
from tests.spark.ledger.test_results import END, START, result
from tests.spark.planning.test_packing import backlog

if TYPE_CHECKING:
    pass


ONE = replace(backlog(0, 50), topic_id="id")
TP = TopicPartition(ONE.target_topic, 0)


def at(offset: int, topic_id: str = "id") -> TargetProgress:
    return TargetProgress({TP: Progress(offset=offset, leader_epoch=0, source_cluster_id="", topic_id=topic_id)})


@pytest.mark.parametrize(
    ("progress", "end"),
    [
        (at(ONE.start + 7), ONE.start + 7),
        (at(ONE.end + 100), ONE.end),
        (at(ONE.start - 1), ONE.start),
        (TargetProgress(), ONE.start),
        (at(ONE.start + 7, "another topic of this name"), ONE.start),
    ],
)
def test_progress_on_the_target_gives_the_committed_end(progress: TargetProgress, end: int) -> None:
    one = result_without_answer(ONE, progress, cut_short=True)
    assert (one.start, one.end, one.records) == (ONE.start, end, end - ONE.start)
    assert (one.counted, one.outcome) == (CountBasis.OFFSETS, Outcome.UNFINISHED)
    assert str(one.error).startswith("the run was cut short")
    assert "the next run resumes there" in str(one.error)
    assert "its task was lost" in str(result_without_answer(ONE, progress, cut_short=False).error)


def test_without_progress_from_the_target_figures_are_unknown() -> None:
    plan = Plan(flow="f", tasks=[[ONE, backlog(1, 5)]], results_without_task=[])
    report = FlowReport("f", START, END, join_results(plan, [], TargetProgress(error="no answer"), cut_short=True))
    outcome = report.to_json()["partitions"][0]
    assert [outcome[name] for name in ("end", "records", "batches", "bytes", "counted")] == [None] * 4 + ["unknown"]
    assert "(no answer)" in outcome["error"]
    assert shown(report).count("unknown") == 6, "two partitions and the total"


def test_the_table_shows_known_figures_as_lower_bounds() -> None:
    report = FlowReport(
        "f", START, END, [result(1, records=5, bytes=500), result_without_answer(ONE, at(12), cut_short=True)]
    )
    text = shown(report)
    assert "500 bytes or more" in text
    assert "500 bytes or more" in shown(replace_partition(report))
    assert "5 or more" in shown(replace_partition(report))


def replace_partition(report: FlowReport) -> FlowReport:
    return replace(report, partitions=[report.partitions[0], result_without_answer(ONE, None, cut_short=False)])


def shown(report: FlowReport) -> str:
    text = io.StringIO()
    Console(file=text, width=300).print(flow_table(report))
    return text.getvalue()


def test_a_lost_task_does_not_hide_what_earlier_epochs_copied() -> None:
    totals = Totals()
    totals.add([result(0, records=5, bytes=500)])
    totals.add([result_without_answer(ONE, None, cut_short=False)])
    (one,) = totals.results()
    assert (one.start, one.end, one.records, one.counted) == (10, 15, 5, CountBasis.RECORDS)
    assert one.outcome is Outcome.UNFINISHED
    totals = Totals()
    totals.add([result_without_answer(ONE, None, cut_short=False)])
    totals.add([result(0, start=12, records=3)])
    assert [(one.start, one.end, one.counted) for one in totals.results()] == [(12, 15, CountBasis.RECORDS)]


def test_the_target_is_read_until_its_progress_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.Cluster("b:1").make()
    offsets = iter([11, 12, 12, 13])

    class Noting(Admin):
        def offsets_of_groups_async(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
            self.commit_group_offsets(group_of("f", TP), {TP: to_offset(at(next(offsets)).progress[TP])})
            return super().offsets_of_groups_async(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(reached, "Admin", Noting)
    monkeypatch.setattr(reached, "_REREAD_DELAY_S", 0.0)
    assert read_target_progress({"bootstrap.servers": "b:1"}, "f", [ONE]).progress[TP].offset == 12
    assert next(offsets) == 13


def test_an_unreachable_target_is_awaited_no_longer_than_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    class Hung(Admin):
        def offsets_of_groups_async(self, *_: object, **__: object) -> object:  # type: ignore[override]
            over.wait(60)
            return {}

    monkeypatch.setattr(reached, "Admin", Hung)
    began_s = time.monotonic()
    outcome = read_target_progress({"bootstrap.servers": "b:1"}, "f", [ONE], timeout_s=0.2)
    over.set()
    assert outcome == TargetProgress(error="no answer within 0.2 s")
    assert time.monotonic() - began_s < 30


def test_an_error_of_the_target_is_part_of_the_result() -> None:
    assert "b:1: connection refused" in str(read_target_progress({"bootstrap.servers": "b:1"}, "f", [ONE]).error)


def test_an_unexpected_error_of_the_target_is_part_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(reached, "Admin", broken)
    assert read_target_progress({"bootstrap.servers": "b:1"}, "f", [ONE]).error == "a bug"
