"""What is said while a run goes on: the words, how often, and how lines and the terminal's last line get along."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import FlowError
from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.spark.driver.launch.submission import STDERR_PIPE, STDOUT_PIPE, TERMINALS
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.progress_lines import (
    Cadence,
    behind,
    copied,
    followed,
    period_line,
    planned,
    stamped,
)
from mirror.spark.driver.output.stream_progress import StreamProgress
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.status_table import LastError
from mirror.spark.status.flow_status import FlowStatus, PartitionStatus
from mirror.telemetry.lag.lags import Lag, LagState, LagTotals, totals
from tests.spark.planning.test_packing import backlog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = datetime(2026, 1, 31, 12, 0, 5)  # noqa: DTZ001 - local, as it is shown


def status(behind: int = 1_234) -> FlowStatus:
    totals = LagTotals(behind, 0, 65.2, 5_000.4, 4.25, None, None, Counter({LagState.STUCK: 2, LagState.CAUGHT_UP: 3}))
    return FlowStatus(flow="f", source="a", target="b", time_ms=0, run=None, totals=totals, partitions=[])


def test_lines_have_a_time_and_in_a_log_a_date() -> None:
    assert stamped("planning", AT, terminal=True) == "mirror: 12:00:05 planning"
    assert stamped("planning", AT, terminal=False) == "mirror: 2026-01-31 12:00:05 planning"


def test_a_log_has_a_line_every_ten_seconds_at_first_and_then_each_minute() -> None:
    cadence = Cadence(1_000)
    due = [now // 1_000 - 1 for now in range(1_000, 302_000, 500) if cadence.due(now)]
    assert due == [10, 20, 30, 40, 50, 60, 120, 180, 240, 300]


def test_the_text_about_a_plan() -> None:
    plan = Plan(flow="f", tasks=[[backlog(0, 1_500)], [backlog(1, 5)]], results_without_task=[])
    assert planned(plan, follows=True) == "following 2 partitions of 1 topic"
    records = sum(one.end - one.start for one in plan.ranges)
    assert planned(plan, follows=False) == f"copying {records:,} records in 2 partitions of 1 topic"
    assert planned(Plan(flow="f", tasks=[], results_without_task=[]), follows=False) == "nothing to copy"
    assert OPEN_END not in {one.end for one in plan.ranges}


def test_the_line_of_a_period_names_what_is_not_complete_with_its_reason() -> None:
    done = RangeResult(flow="f", topic="t", target_topic="t", partition=0, start=0, end=9, records=9, bytes=1_000)
    done.outcome, done.seconds = Outcome.COMPLETE, 1.5
    sums = "18 records, 2.0 kB in 1.5 s"
    assert period_line([done, done]) == f"{sums}; 2 partitions"
    reasons = ("it waited for room in buffer.memory", None)
    waiting, idle = (replace(done, partition=1, outcome=Outcome.UNFINISHED, error=error) for error in reasons)
    text = "t-1 unfinished: it waited for room in buffer.memory"
    assert period_line([done, waiting]) == f"{sums}; 1 of 2 partitions not complete: {text}"
    assert period_line([done, idle]) == f"{sums}; 1 of 2 partitions not complete: t-1 unfinished"


def test_the_text_about_the_progress_of_a_run() -> None:
    assert copied(0, 200_000, 0.0) == "0 of 200,000 records (0%)"
    assert copied(50_000, 200_000, 1_250.0) == "50,000 of 200,000 records (25%), 1,250 records/s, 2 min 0 s left"
    assert copied(1, 200_000, 2.5).endswith("2.5 records/s, 22 h 13 min left")


def test_the_text_about_the_progress_of_a_stream() -> None:
    assert followed(status()) == "1,234 records behind, up to 1 min 5 s late, copied 5,000/s, new 4.2/s, 2 stuck"


@pytest.mark.parametrize(
    ("lags", "text"),
    [
        ([], "0 records behind"),
        ([3, 4], "7 records behind"),
        ([3, None, None], "3 records behind in 1 of 3 partitions, not known in the others"),
        ([0, None], "0 records behind in 1 of 2 partitions, not known in the others"),
        ([None, None], "how far it is behind is not known (2 partitions)"),
    ],
)
def test_a_lag_that_is_not_known_is_not_0(lags: list[int | None], text: str) -> None:
    found = totals(Lag(records, None, None, None, None, None, LagState.NO_LEADER) for records in lags)
    assert behind(found, "records ") == text


def test_the_text_names_why_a_partition_cannot_continue() -> None:
    lag = Lag(5, 0.0, 0.0, 0.0, None, None, LagState.STUCK)
    known: dict[str, Any] = {"target_topic": "a.t", "earliest": 0, "end": 5, "progress": 0, "committed_ms": 0}
    partitions = [
        PartitionStatus(
            topic="t", partition=number, lag=lag._replace(state=state), trouble=LastError(error, 0), **known
        )
        for number, (state, error) in enumerate([(LagState.BEHIND, "old"), (LagState.STUCK, "refused " * 99)])
    ]
    line = followed(replace(status(), partitions=partitions))
    assert ", 2 stuck, t-1: refused refused" in line
    assert len(line) < 400


@pytest.fixture
def consoles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Consoles]:
    for variable in (STDOUT_PIPE, STDERR_PIPE):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    made = Consoles()
    yield made
    for console in (made._out, made.err):
        console.file.close()


def on(folder: Path, variable: str) -> str:
    return (folder / variable).read_bytes().decode().removeprefix("\0")


def screen(text: str) -> str:
    """What a terminal shows."""
    lines = [""]
    for part in re.split(r"(\r\x1b\[2K|\n)", re.sub(r"\x1b\[\d*m", "", text)):
        if part == "\n":
            lines.append("")
        elif part.startswith("\r"):
            lines[-1] = ""
        else:
            lines[-1] += part
    return "\n".join(lines)


def test_the_live_line_stays_below_other_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(TERMINALS, "stdout,stderr")
    monkeypatch.setenv("COLUMNS", "60")
    one: Consoles = request.getfixturevalue("consoles")
    one.set_live_text("f", "5 behind")
    one.warning("a warning")
    one.set_live_text("f", "4 behind \x1b[2J")
    one.print_table("period 1")
    assert screen(on(tmp_path, STDERR_PIPE)) == "mirror: warning: a warning\nperiod 1\nf: 4 behind \\x1b[2J"
    assert on(tmp_path, STDOUT_PIPE) == "", "the order of two pipes is unknown"
    one.set_live_text("g", "x" * 100)
    assert len(screen(on(tmp_path, STDERR_PIPE)).splitlines()[-1]) == 59
    for flow in "fg":
        one.set_live_text(flow, "")
    one.print_table("a table")
    assert screen(on(tmp_path, STDERR_PIPE)) == "mirror: warning: a warning\nperiod 1\n"
    assert on(tmp_path, STDOUT_PIPE) == "a table\n"


def test_a_stream_writes_progress_lines_into_a_log(
    tmp_path: Path, consoles: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000]
    monkeypatch.setattr("mirror.spark.driver.output.stream_progress._now_ms", lambda: now[0])
    progress = StreamProgress("f", consoles)
    progress.on_status(status())
    plan = Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[])
    progress.on_plan(plan)
    for _ in range(30):
        now[0] += 1_000
        progress.on_status(status())
    progress.on_error(FlowError("cluster b does not answer"))
    progress.on_error(FlowError("cluster b does not answer"))
    progress.on_status(status(7))
    progress.end()
    progress.on_status(status(8))
    said = [line.split(" ", 3)[3] for line in on(tmp_path, STDERR_PIPE).splitlines()]
    assert said == [
        "flow f: following 1 partition of 1 topic",
        *[f"flow f: {followed(status())}"] * 3,
        "flow f: its progress cannot be read; retrying: cluster b does not answer",
        f"flow f: {followed(status(7))}",
    ]
    assert progress.interval_ms == 10_000


def lagging(**progress: int | None) -> FlowStatus:
    """Partitions that end at offset 5."""
    found = status()
    for topic, position in progress.items():
        state = LagState.NOT_BEGUN if position is None else LagState.FALLING_BEHIND
        lag = Lag(None if position is None else 5 - position, 1.0, None, None, None, None, state)
        found.partitions.append(
            PartitionStatus(
                topic=topic,
                partition=0,
                target_topic=topic,
                earliest=0,
                end=5,
                progress=position,
                committed_ms=None,
                lag=lag,
            )
        )
    return found


def test_a_stream_that_is_asked_to_end_says_what_stood_still(
    consoles: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000]
    monkeypatch.setattr("mirror.spark.driver.output.stream_progress._now_ms", lambda: now[0])
    progress = StreamProgress("f", consoles)
    rarely = StreamProgress("f", consoles, commit_interval_ms=20_000)
    assert progress.why_behind() is None
    for one in (progress, rarely):
        one.on_status(lagging(moving=1, standing=2, copied=5, waiting=None))
    now[0] += 29_999
    progress.on_status(lagging(moving=2, standing=2, copied=5, waiting=None, new=None))
    assert progress.why_behind() is None
    now[0] += 1
    assert progress.why_behind() is None, "it may have been copied since it was read"
    for one in (progress, rarely):
        one.on_status(lagging(moving=2, standing=2, copied=5, waiting=None, new=None))
    assert progress.why_behind() == "the copy of partitions standing-0, waiting-0 stood still"
    assert rarely.why_behind() is None
    progress.on_status(lagging(moving=2, standing=5, copied=5, waiting=0, new=None))
    assert progress.why_behind() is None
    now[0] += 29_999
    progress.on_status(lagging(moving=2, standing=5, copied=5, waiting=0, new=None))
    assert progress.why_behind() == "the copy of partitions moving-0, new-0 stood still"
    progress.on_status(lagging())
    for _ in range(2):
        progress.on_error(FlowError("cluster b does not answer"))
        assert progress.why_behind() is None
        now[0] += 29_999
    progress.end()
    assert progress.why_behind() == "its progress could not be read: cluster b does not answer"
    progress.on_status(status())
    assert progress.why_behind() is None
