"""The table of a verification, and lines about the first differences of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN
from mirror.verify.partition_results import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from mirror.spark.verification.verification_result import FlowVerification
    from mirror.verify.partition_results import PartitionResult
    from mirror.verify.values import Difference

_STYLES: Final = {"equal": "green", "not compared": "yellow", "unknown": "yellow", "different": "red"}
_FIRST_DIFFERENCES: Final = 5


def verification_lines(report: FlowVerification, *, all_partitions: bool) -> Iterator[RenderableType]:
    """Yield what is printed of a flow: the table of its partitions, and its first differences."""
    if not report.results:
        return
    most = None if all_partitions else MAX_PARTITIONS_SHOWN
    shown = _worst(report.results, most)
    yield _table(report, shown)
    for result in shown:
        yield from (Text(line) for line in _difference_lines(result))
    if report.proof_hash:
        yield Text(f"proof: {report.proof_hash}")


def _worst(results: Sequence[PartitionResult], most: int | None) -> list[PartitionResult]:
    if most is None or len(results) <= most:
        return list(results)
    return sorted(results, key=lambda one: (OUTCOMES.index(one.outcome), not one.incomplete))[:most]


def _table(report: FlowVerification, shown: Sequence[PartitionResult]) -> Table:
    table = Table(title=Text(f"flow {report.flow}"), title_justify="left", show_footer=True)
    verdicts = [result.verdict for result in report.results if result.verdict is not None]
    equal = sum(result.outcome == "equal" for result in report.results)
    size = sum(verdict.bytes for verdict in verdicts)
    table.add_column("topic", "total", overflow="fold")
    table.add_column("partition", f"{len(report.results)}", justify="right")
    table.add_column("equal records", f"{sum(verdict.records for verdict in verdicts):,}", justify="right")
    table.add_column("bytes", decimal(size), justify="right")
    table.add_column("equal up to", justify="right")
    table.add_column("outcome", f"{equal} of {len(report.results)} equal")
    complete = sum(not result.incomplete for result in report.results)
    table.add_column("complete", f"{complete} of {len(report.results)}")
    remarks = [_remarks(result) for result in shown]
    if any(remarks):
        table.add_column("remarks", overflow="fold")
    if len(shown) < len(report.results):
        table.caption, table.caption_justify = (
            Text(f"{len(report.results) - len(shown):,} more partitions, none of them worse (--all shows them)"),
            "left",
        )
    for result, text in zip(shown, remarks, strict=True):
        table.add_row(*_cells(result), *([Text(text)] if any(remarks) else []))
    return table


def _cells(result: PartitionResult) -> list[str | Text]:
    verdict = result.verdict
    return [
        Text(result.topic),
        f"{result.partition}",
        "-" if verdict is None else f"{verdict.records:,}",
        "-" if verdict is None else decimal(verdict.bytes),
        "-" if verdict is None else f"{verdict.source_end} = {verdict.target_end}",
        Text(result.outcome, style=_STYLES[result.outcome]),
        Text("no", style="yellow") if result.incomplete else "yes",
    ]


def _remarks(result: PartitionResult) -> str:
    """Describe what differs, what could not be compared, and what was named."""
    texts = [result.error] if result.error else []
    if result.verdict is not None:
        texts += [f"{count:,} {kind}" for kind, count in sorted(result.verdict.kinds.items())]
        texts += [str(one) for one in result.verdict.uncompared if one.reason != result.error]
        texts += map(str, result.outside)
        texts += [str(result.verdict.absent)] if result.verdict.absent is not None else []
        texts += [f"{count:,} {name}" for name, count in sorted(result.verdict.named.items())]
    return "; ".join([*texts, *result.notes])


def _difference_lines(result: PartitionResult) -> Iterator[str]:
    differences = [] if result.verdict is None else result.verdict.differences
    for difference in differences[:_FIRST_DIFFERENCES]:
        yield f"{result.topic}-{result.partition}: {difference_text(difference)}"
    if len(differences) > _FIRST_DIFFERENCES:
        left = len(differences) - _FIRST_DIFFERENCES
        yield f"{result.topic}-{result.partition}: {left:,} more differences (--json has all)"


def difference_text(difference: Difference) -> str:
    """Return one line about a difference."""
    records = "" if difference.count == 1 else f", {difference.count:,} records"
    parts = f" ({', '.join(difference.parts)})" if difference.parts else ""
    place = f"source offset {difference.source_offset}, target offset {difference.target_offset}"
    text = f"{difference.kind}{parts} at {place}{records}"
    if difference.excerpts is None:
        return text
    return f"{text}: source {difference.excerpts[0] or '-'}; target {difference.excerpts[1] or '-'}"
