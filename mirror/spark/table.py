"""A flow's results as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.relay.ranges import Outcome, RangeResult

if TYPE_CHECKING:
    from mirror.spark.results import FlowReport

_STYLES = {Outcome.COMPLETE: "green", Outcome.UNFINISHED: "yellow"}


def flow_table(report: FlowReport) -> Table:
    """One line per partition and a total; rates are per second of copying, the total's per second of the flow."""
    table = Table(title=f"flow {report.flow}", title_justify="left", show_footer=True)
    seconds = (report.ended - report.started).total_seconds() if report.ended else 0.0
    records = sum(result.records for result in report.partitions)
    size = sum(result.bytes for result in report.partitions)
    complete = sum(result.outcome is Outcome.COMPLETE for result in report.partitions)
    table.add_column("topic", "total", overflow="fold")
    table.add_column("partition", f"{len(report.partitions)}", justify="right")
    table.add_column("records", f"{records:,}", justify="right")
    table.add_column("bytes", decimal(size), justify="right")
    table.add_column("rate", _rate(size, seconds), justify="right")
    table.add_column("outcome", f"{complete} of {len(report.partitions)} complete")
    if any(result.error for result in report.partitions):
        table.add_column("error", overflow="fold")
    for result in report.partitions:
        table.add_row(*_cells(result, with_error=len(table.columns) > len(_cells(result, with_error=False))))
    return table


def _cells(result: RangeResult, *, with_error: bool) -> list[str | Text]:
    cells: list[str | Text] = [
        Text(result.topic),
        f"{result.partition}",
        f"{result.records:,}",
        decimal(result.bytes),
        _rate(result.bytes, result.seconds),
        Text(result.outcome.value, style=_STYLES.get(result.outcome, "red")),
    ]
    # Text, not str: a topic's name or a broker's message is never markup.
    return [*cells, Text(result.error or "")] if with_error else cells


def _rate(size: int, seconds: float) -> str:
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 and size else "-"
