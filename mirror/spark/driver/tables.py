"""A flow's results as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.relay.batches.classify import Skip
from mirror.relay.model.ranges import SEVERITY, Counted, Outcome, RangeResult
from mirror.relay.progress.gaps import GapKind
from mirror.relay.progress.open_transactions import OpenTransaction

if TYPE_CHECKING:
    from mirror.spark.ledger.results import FlowReport

_LOSSES = frozenset({GapKind.RETENTION, GapKind.TRUNCATED, GapKind.RECREATED})
_NOTHING_TO_COPY = frozenset(Skip)
_UNKNOWN = "unknown"
_STYLES = {Outcome.COMPLETE: "green", Outcome.UNFINISHED: "yellow"}


SHOWN: Final = 40
"""Partitions of a flow, the worst of them, unless all are asked for: as many as ``mirror status`` shows."""


def flow_table(report: FlowReport, most: int | None = SHOWN) -> Table:
    """One line per partition and a total; rates are per second of copying, the total's per second of the flow.

    At most ``most`` partitions, the worst of them and then those that copied most (None: all).
    """
    table = Table(title=f"flow {report.flow}", title_justify="left", show_footer=True)
    seconds = (report.ended - report.started).total_seconds() if report.ended else 0.0
    records = sum(result.records for result in report.partitions)
    size = sum(result.bytes for result in report.partitions)
    complete = sum(result.outcome is Outcome.COMPLETE for result in report.partitions)
    table.add_column("topic", "total", overflow="fold")
    table.add_column("partition", f"{len(report.partitions)}", justify="right")
    table.add_column("records", _total(f"{records:,}", report, Counted.UNKNOWN), justify="right")
    table.add_column("bytes", _total(decimal(size), report, Counted.UNKNOWN, Counted.OFFSETS), justify="right")
    table.add_column("rate", _rate(size, seconds), justify="right")
    table.add_column("outcome", f"{complete} of {len(report.partitions)} complete")
    shown = _worst(report.partitions, most)
    if left := len(report.partitions) - len(shown):
        table.caption = f"{left:,} more partitions, none of which is worse (--all shows them)"
        table.caption_justify = "left"
    said = [remarks(result) for result in shown]
    if any(said):
        table.add_column("error" if any(result.error for result in shown) else "remarks", overflow="fold")
    for result, text in zip(shown, said, strict=True):
        table.add_row(*_cells(result), *([Text(text)] if any(said) else []))
    return table


def _worst(results: list[RangeResult], most: int | None) -> list[RangeResult]:
    """All of them in their order where they are not too many."""
    if most is None or len(results) <= most:
        return results

    def badness(one: RangeResult) -> tuple[int, bool, int, int]:
        return SEVERITY.index(one.outcome), bool(remarks(one)), len(one.expiries), one.bytes

    return sorted(results, key=badness, reverse=True)[:most]


def _cells(result: RangeResult) -> list[str | Text]:
    # Text, not str: a topic's name or a broker's message is never markup.
    return [
        Text(result.topic),
        f"{result.partition}",
        _UNKNOWN if result.counted is Counted.UNKNOWN else f"{result.records:,}",
        decimal(result.bytes) if result.counted is Counted.RECORDS else _UNKNOWN,
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


def _total(known: str, report: FlowReport, *unknown: Counted) -> str:
    """``known``, and that it is not all where some partitions' figures are ``unknown``."""
    lacking = sum(result.counted in unknown for result in report.partitions)
    if lacking == len(report.partitions) > 0:
        return _UNKNOWN
    return f"{known} or more" if lacking else known


def _rate(size: int, seconds: float) -> str:
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 and size else "-"
