"""How far a scheduled run is, by what its tasks report."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from mirror.client import TopicPartition
from mirror.relay.model.ranges import RangeResult
from mirror.relay.model.reports import COPYING, PartitionReport
from mirror.spark.driver.output.progress_lines import FIRST_INTERVAL_MS
from mirror.spark.driver.output.run_progress import RunProgress
from mirror.spark.ledger.plan import Plan
from tests.spark.planning.test_packing import backlog

if TYPE_CHECKING:
    import pytest

RANGES = [backlog(number, 50) for number in range(4)]


class Consoles:
    def __init__(self, *, is_terminal: bool) -> None:
        self.err = self
        self.is_terminal = is_terminal
        self.live, self.lines = "", list[str]()

    def set_live_text(self, _: str, text: str) -> None:
        self.live = text

    def progress(self, line: str) -> None:
        self.lines.append(line)


def report(partition: int, end: int) -> PartitionReport:
    one = RANGES[0]
    return PartitionReport(
        target=TopicPartition(one.target_topic, partition),
        run="r",
        job=0,
        task=0,
        attempt=0,
        taken=0,
        state=COPYING,
        sequence=1,
        version=0,
        result=replace(RangeResult.initial(one, one.start), partition=partition, end=end),
    )


def test_what_is_reported_of_the_ranges_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    consoles, start = Consoles(is_terminal=True), RANGES[0].start
    progress = RunProgress("f", Plan(flow="f", tasks=[RANGES], results_without_task=[]), cast("Any", consoles))
    total = sum(one.end - one.start for one in RANGES)
    progress.on_reports([])
    assert consoles.live == "", "nothing is known yet"
    now_s[0] += 10
    progress.on_reports([report(0, start + 20), report(1, 10**6), report(0, start + 10), report(9, 70)])
    done = 20 + RANGES[1].end - RANGES[1].start
    assert consoles.live.startswith(f"{done} of {total} records ({100 * done // total}%), ")
    assert f", {done / 10:.1f} records/s, " in consoles.live or f", {done // 10} records/s, " in consoles.live
    progress.end()
    progress.on_reports([report(2, start + 5)])
    assert consoles.live == ""
    assert consoles.lines == [f"flow f: copying {total} records in 4 partitions of 1 topic"]


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    consoles, start = Consoles(is_terminal=False), RANGES[0].start
    progress = RunProgress("f", Plan(flow="f", tasks=[RANGES], results_without_task=[]), cast("Any", consoles))
    for second in range(1, 2 * FIRST_INTERVAL_MS // 1000 + 1):
        now_s[0] += 1
        progress.on_reports([report(0, start + min(second, 19))])
    assert len(consoles.lines) == 1 + 2
