"""A flow's results as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.relay.gaps import GapKind
from mirror.relay.judge import Skip
from mirror.relay.open_transactions import OpenTransaction
from mirror.relay.ranges import Outcome, RangeResult

if TYPE_CHECKING:
    from mirror.spark.results import FlowReport

_LOSSES = frozenset({GapKind.RETENTION, GapKind.TRUNCATED, GapKind.RECREATED})
_NOTHING_TO_COPY = frozenset(Skip)
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
    said = [remarks(result) for result in report.partitions]
    if any(said):
        table.add_column("error" if any(result.error for result in report.partitions) else "remarks", overflow="fold")
    for result, text in zip(report.partitions, said, strict=True):
        table.add_row(*_cells(result), *([Text(text)] if any(said) else []))
    return table


def _cells(result: RangeResult) -> list[str | Text]:
    # Text, not str: a topic's name or a broker's message is never markup.
    return [
        Text(result.topic),
        f"{result.partition}",
        f"{result.records:,}",
        decimal(result.bytes),
        _rate(result.bytes, result.seconds),
        Text(result.outcome.value, style=_STYLES.get(result.outcome, "red")),
    ]


def remarks(result: RangeResult) -> str:
    """What a user should know of one partition: its error, what was lost, left out or withheld, what expired."""
    said = [result.error] if result.error else []
    gaps = [f"{count:,} offsets ({kind})" for kind, count in sorted(result.gaps.items()) if kind in _LOSSES]
    if gaps:
        said.append(f"gaps passed over: {', '.join(gaps)}")
    dropped = [f"{count:,} ({why})" for why, count in sorted(result.skipped.items()) if why not in _NOTHING_TO_COPY]
    if dropped:
        said.append(f"left out: {', '.join(dropped)}")
    if result.expiries:
        last = result.expiries[-1]
        times = "once" if len(result.expiries) == 1 else f"{len(result.expiries)} times"
        said.append(f"expired {times}, the last: {last.get('cause')} ({last.get('phase')})")
    if result.withheld:
        said.append(OpenTransaction(**result.withheld).summary())
    return "; ".join(said)


def _rate(size: int, seconds: float) -> str:
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 and size else "-"
