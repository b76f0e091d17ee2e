"""The tables of `mirror status`: rows, columns, and formats."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from mirror.cli.views import amounts, status_view
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.spark.ledger.status_table import LastError
from mirror.spark.status.flow_status import FlowStatus, PartitionStatus
from mirror.telemetry.lag.lags import Lag, LagState, totals

T0 = 1_800_000_000_000


def partition(number: int, lag: Lag, trouble: LastError | None = None, topic: str = "orders") -> PartitionStatus:
    return PartitionStatus(
        topic=topic,
        partition=number,
        target_topic=f"a.{topic}",
        earliest=0,
        end=10,
        progress=5,
        committed_ms=T0,
        lag=lag,
        trouble=trouble,
    )


def flow(*partitions: PartitionStatus, name: str = "f") -> FlowStatus:
    return FlowStatus(
        flow=name,
        source="a",
        target="b",
        time_ms=T0,
        run=None,
        totals=totals(each.lag for each in partitions),
        partitions=list(partitions),
    )


def shown(one: FlowStatus, most: int | None = 40, width: int = 160) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(status_view.live([one], {}, {}, most, width))
    text = console.file
    assert isinstance(text, StringIO)
    return text.getvalue()


def lag(state: LagState, records: int | None = 1, seconds: float | None = None) -> Lag:
    return Lag(records, seconds, 10.0, 20.0, math.inf, 3_000.0, state)


def test_the_head_says_when_the_first_records_are_lost() -> None:
    far = Lag(5, 10.0, 0.0, 0.0, math.inf, 90_000.0, LagState.STUCK)
    fine = Lag(0, 0.0, 0.0, 0.0, 0.0, 60.0, LagState.CAUGHT_UP)
    assert "25 h to the first loss; 1 stuck, 1 caught up" in shown(flow(partition(0, far), partition(1, fine)))
    gone = far._replace(loss_s=-5.0, state=LagState.LOSING)
    assert "never drained; losing records; 1 losing" in shown(flow(partition(0, gone)))


def test_unhealthy_partitions_come_first_and_the_rest_is_counted() -> None:
    healthy = [partition(each, lag(LagState.CAUGHT_UP, 0)) for each in range(100)]
    sick = [partition(200, lag(LagState.STUCK, 5, 90)), partition(201, lag(LagState.LOSING, 5, 10))]
    text = shown(flow(*healthy, *sick), 4)
    rows = [line.split() for line in text.splitlines() if " orders " in line]
    assert [row[0] for row in rows] == ["losing", "stuck", "caught", "caught"]
    assert "98 more partitions, none of them worse (--all)" in text
    assert "1 losing, 1 stuck, 100 caught up" in text
    everything = shown(flow(*healthy, *sick), None)
    assert everything.count(" orders ") == 102
    assert "--all" not in everything


def test_an_open_transaction_of_the_source_is_named_also_of_a_partition_that_is_not_shown() -> None:
    withheld = OpenTransaction(topic="orders", partition=3, offset=10, records=5, seen_ms=T0, since_ms=T0 - 90_000)
    healthy = [partition(each, lag(LagState.CAUGHT_UP, 0)) for each in range(9)]
    held = replace(partition(3, lag(LagState.CAUGHT_UP, 0)), high_watermark=15, withheld=withheld)
    one = flow(*healthy, held)
    assert "orders-3: 5 records from offset 10 on are not copied" in " ".join(shown(one, 2).split())
    console = Console(file=StringIO(), width=200)
    console.print(status_view.once([one], 2))
    assert isinstance(console.file, StringIO)
    assert "orders-3: 5 records from offset 10 on" in " ".join(console.file.getvalue().split())
    assert "transaction" not in shown(flow(replace(held, withheld=replace(withheld, since_ms=T0))), 2)


def test_last_errors_have_a_column_only_if_there_are_any() -> None:
    stuck = lag(LagState.STUCK, 5, 90)
    assert "last error" not in shown(flow(partition(0, stuck)))
    text = shown(flow(partition(0, stuck, LastError("it\nbroke", T0 - 600_000))))
    assert "10 min ago: it broke" in text


@pytest.mark.parametrize("width", [84, 100, 120, 200])
def test_a_row_is_one_line_and_its_numbers_are_whole_however_narrow(width: int) -> None:
    trouble = LastError("a very long story " * 20, T0)
    rows = [partition(each, lag(LagState.FALLING_BEHIND, 123_456_789, 9e4), trouble, "o" * 90) for each in range(7)]
    lines = shown(flow(*rows), 7, width).splitlines()
    assert max(map(len, lines)) <= width
    result = [line for line in lines if line.startswith("falling behind ")]
    assert [line.split()[3] for line in result] == [f"{each}" for each in range(7)]
    assert all("123,456,789" in line and "25 h" in line and "50 min" in line for line in result)
    beside = [line for line in result if "a very long story" in line]
    below = [line for line in lines if line.startswith("ooo") and line not in result]
    assert (len(beside), len(below)) == ((7, 0) if width == 200 else (0, 3))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.04, "0.0 s"),
        (4.21, "4.2 s"),
        (95.0, "95 s"),
        (119.0, "119 s"),
        (120.0, "2.0 min"),
        (2_100.0, "35 min"),
        (7_199.0, "120 min"),
        (7_200.0, "2.0 h"),
        (86_400.0, "24 h"),
        (600_000.0, "6.9 d"),
        (-30.0, "-30 s"),
        (-600_000.0, "-6.9 d"),
        (math.inf, "never"),
    ],
)
def test_durations_are_formatted_with_two_or_three_digits(seconds: float | None, text: str) -> None:
    assert amounts.duration(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"), [(None, "-"), (0.0, "0"), (0.34, "0.3"), (9.96, "10.0"), (12.4, "12"), (1_234.5, "1,234")]
)
def test_rates_are_formatted_as_records_per_second(per_s: float | None, text: str) -> None:
    assert amounts.rate(per_s) == text


@pytest.mark.parametrize(("height", "flows", "rows"), [(24, 1, 17), (200, 1, 40), (24, 3, 3), (5, 1, 3), (60, 2, 23)])
def test_as_many_rows_as_the_terminal_has_room_for(height: int, flows: int, rows: int) -> None:
    assert status_view.rows_for(height, flows) == rows
