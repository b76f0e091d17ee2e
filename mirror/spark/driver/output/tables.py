"""The table of a flow's results, and the lines about its consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.errors import brief
from mirror.relay.batches.reencode_decision import SkipReason
from mirror.relay.model.ranges import SEVERITY, CountBasis, Outcome, RangeResult
from mirror.relay.model.way_notes import PartitionWay, way_notes
from mirror.relay.progress.gaps import GapKind
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.relay.progress.target_loss import loss_text
from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN
from mirror.spark.driver.output.progress_lines import span

if TYPE_CHECKING:
    from mirror.groups.summary import GroupsSummary, HeldGroup
    from mirror.spark.ledger.results import FlowReport

_LOSSES = frozenset({GapKind.RETENTION, GapKind.TRUNCATED, GapKind.RECREATED})
_NOTHING_TO_COPY = frozenset(SkipReason) - {SkipReason.NOT_LOCAL}
_UNKNOWN = "unknown"
_STYLES = {Outcome.COMPLETE: "green", Outcome.UNFINISHED: "yellow"}
_MAX_GROUPS_SHOWN = 5
_MAX_CHARACTERS = 120
"""Of a group's name, and of the detail beside it."""


def flow_results(report: FlowReport, most: int | None = MAX_PARTITIONS_SHOWN) -> Group:
    """Return what a run prints of a flow at its end: the table of its partitions, and lines about its groups."""
    lines = (
        []
        if report.groups is None
        else [f"consumer groups: {report.groups.line()}", *worst_groups(report.groups, report.flow)]
    )
    return Group(*([flow_table(report, most)] if report.partitions else []), *map(Text, lines))


def worst_groups(groups: GroupsSummary, flow: str) -> list[str]:
    """Return a line for each of the worst groups that are not in step, and how to see the others."""
    shown = groups.held[:_MAX_GROUPS_SHOWN] if groups.sync else ()
    left = groups.total - groups.in_step - len(shown) if groups.sync else 0
    more = [f"  and {left:,} more: mirror groups --flow {flow} shows all"] if left > 0 else []
    return [*map(_group_line, shown), *more]


def _group_line(held: HeldGroup) -> str:
    age = f" for {span(held.age_ms / 1000)}" if held.age_ms else ""
    detail = f" ({brief(held.detail, _MAX_CHARACTERS)})" if held.detail else ""
    return f"  {brief(held.group, _MAX_CHARACTERS)}: {held.words}{age}{detail}"


def flow_table(report: FlowReport, most: int | None = MAX_PARTITIONS_SHOWN) -> Group:
    """Return a table with one line per partition and a total, and lines about several partitions below it.

    A partition's rate is per second of copying, the total's per second of the flow. At most ``most`` partitions are
    shown (None: all): the worst, then those that copied most.
    """
    table = Table(title=f"flow {report.flow}", title_justify="left", show_footer=True)
    seconds = (report.ended - report.started).total_seconds() if report.ended else 0.0
    records = sum(result.records for result in report.partitions)
    size = sum(result.bytes for result in report.partitions)
    complete = sum(result.outcome is Outcome.COMPLETE for result in report.partitions)
    table.add_column("topic", "total", overflow="fold")
    table.add_column("partition", f"{len(report.partitions)}", justify="right")
    table.add_column("records", _total(f"{records:,}", report, CountBasis.UNKNOWN), justify="right")
    table.add_column("bytes", _total(decimal(size), report, CountBasis.UNKNOWN, CountBasis.OFFSETS), justify="right")
    table.add_column("rate", _rate(size, seconds), justify="right")
    when = " when it was stopped" if report.asked is not None and report.fenced is None else ""
    table.add_column("outcome", f"{complete} of {len(report.partitions)} complete{when}")
    shown = _worst(report.partitions, most)
    left = len(report.partitions) - len(shown)
    lines = [f"{left:,} more partitions, none of them worse (--all shows them)"] if left else []
    lines += way_notes(
        PartitionWay(f"{each.topic}-{each.partition}", each.way, each.way_reason) for each in report.partitions
    )
    texts = [remarks(result) for result in shown]
    if any(texts):
        table.add_column("error" if any(result.error for result in shown) else "remarks", overflow="fold")
    for result, text in zip(shown, texts, strict=True):
        table.add_row(*_cells(result), *([Text(text)] if any(texts) else []))
    return Group(table, *map(Text, lines))


def _worst(results: list[RangeResult], most: int | None) -> list[RangeResult]:
    """Return the ``most`` worst results, worst first; all in their order if there are not more."""
    if most is None or len(results) <= most:
        return results

    def severity(result: RangeResult) -> tuple[int, bool, int, int]:
        return SEVERITY.index(result.outcome), bool(remarks(result)), len(result.expiries), result.bytes

    return sorted(results, key=severity, reverse=True)[:most]


def _cells(result: RangeResult) -> list[str | Text]:
    # Text, not str: rich would read markup in a topic's name or a broker's message.
    return [
        Text(result.topic),
        f"{result.partition}",
        _UNKNOWN if result.counted is CountBasis.UNKNOWN else f"{result.records:,}",
        decimal(result.bytes) if result.counted is CountBasis.RECORDS else _UNKNOWN,
        _rate(result.bytes, result.seconds),
        Text(result.outcome.value, style=_STYLES.get(result.outcome, "red")),
    ]


def remarks(result: RangeResult) -> str:
    """Describe a partition's error, and what was lost, left out or withheld, and what expired."""
    texts = [result.error] if result.error else []
    gaps = [f"{count:,} offsets ({kind})" for kind, count in sorted(result.gaps.items()) if kind in _LOSSES]
    if gaps:
        texts.append(f"gaps skipped: {', '.join(gaps)}")
    texts += [loss_text(record) for record in result.target_losses[-1:]]
    dropped = [f"{count:,} ({why})" for why, count in sorted(result.skipped.items()) if why not in _NOTHING_TO_COPY]
    if dropped:
        texts.append(f"left out: {', '.join(dropped)}")
    if result.aside:
        texts.append(f"aside: {', '.join(f'{count:,} ({why})' for why, count in sorted(result.aside.items()))}")
    if result.expiries:
        last = result.expiries[-1]
        times = "once" if len(result.expiries) == 1 else f"{len(result.expiries)} times"
        texts.append(f"expired {times}, the last: {last.get('cause')} ({last.get('phase')})")
    if result.withheld:
        texts.append(OpenTransaction(**result.withheld).summary())
    return "; ".join(texts)


def _total(text: str, report: FlowReport, *unknown: CountBasis) -> str:
    """Return ``text``, with "or more" if the figures of some partitions are unknown, or "unknown" if all are."""
    lacking = sum(result.counted in unknown for result in report.partitions)
    if lacking == len(report.partitions) > 0:
        return _UNKNOWN
    return f"{text} or more" if lacking else text


def _rate(size: int, seconds: float) -> str:
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 and size else "-"
