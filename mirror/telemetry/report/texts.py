"""What the page says of a flow without any script: what ran, in figures, and what is to be done. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mirror.relay.model.ranges import CountBasis, Outcome, RangeResult
from mirror.telemetry.report import phases
from mirror.telemetry.report.advice import Level
from mirror.telemetry.report.findings import LOSSES, NOTHING_TO_COPY, Finding
from mirror.telemetry.report.format import NONE, counted, link, listed, moment, rate, size, span
from mirror.telemetry.report.model import FlowReportData


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    name: str
    value: str
    more: str = ""


def flow_texts(
    flow: FlowReportData, shown: FlowReportData, findings: Sequence[Finding], slow: Sequence[int], made_ms: int
) -> dict[str, Any]:
    """For the template. ``flow`` is what the figures are of, ``shown`` its partitions that the page has."""
    spent = phases.in_all(flow.partitions)
    return {
        "name": flow.flow,
        "outcome": flow.outcome.value,
        "badge": "not ended" if flow.ended_ms is None else flow.outcome.value,
        "error": flow.error,
        "when": _when(flow, made_ms),
        "trace": flow.trace,
        "verdict": _verdict(flow, findings),
        "tiles": _tiles(flow, made_ms),
        "findings": [
            {
                "advice": each.advice,
                "members": [_member(flow.flow, shown.partitions[place], line) for place, line in each.members],
            }
            for each in findings
        ],
        "partitions": bool(flow.partitions),
        "phases": [_phase(name, ms, sum(spent.values())) for name, ms in spent.items()],
        "slow": len(slow),
        "slow_advice": phases.of_the_slowest(flow.flow, [shown.partitions[place] for place in slow]),
        "curves_from": _curves_from(flow),
        "table_said": _table_said(flow, shown),
    }


def _when(flow: FlowReportData, made_ms: int) -> str:
    topics = len({one.topic for one in flow.partitions})
    what = f"{counted(len(flow.partitions), 'partition')} of {counted(topics, 'topic')}" if topics else ""
    kind = "" if flow.epochs is None else f"stream, {counted(flow.epochs, 'epoch')}"
    if flow.ended_ms is None:
        took = f"began {moment(flow.started_ms)}, and had not ended {span(made_ms - flow.started_ms)} later"
    else:
        took = f"{moment(flow.started_ms)} to {moment(flow.ended_ms)} ({span(flow.ended_ms - flow.started_ms)})"
    return " · ".join(part for part in (took, what, kind) if part)


def _verdict(flow: FlowReportData, findings: Sequence[Finding]) -> str:
    if flow.error is not None and not flow.partitions:
        return "It could not run: nothing was copied."
    if not flow.partitions:
        return "Nothing is known of its partitions yet." if flow.ended_ms is None else "There was nothing to copy."
    complete = sum(one.outcome is Outcome.COMPLETE for one in flow.partitions)
    total = len(flow.partitions)
    said = f"All {counted(total, 'partition')} are complete." if complete == total > 1 else ""
    said = said or f"{complete:,} of {counted(total, 'partition')} {'is' if complete == 1 else 'are'} complete."
    sick = {place for each in findings if each.advice.level is not Level.NOTE for place, _ in each.members}
    if not sick:
        return said
    return f"{said} {len(sick):,} {'needs' if len(sick) == 1 else 'need'} attention."


def _tiles(flow: FlowReportData, made_ms: int) -> list[Tile]:
    parts = flow.partitions
    took_ms = (made_ms if flow.ended_ms is None else flow.ended_ms) - flow.started_ms
    retries = counted(sum(one.retries for one in parts), "retry", "retries")
    copied, batches = sum(one.bytes for one in parts), sum(one.batches for one in parts)
    expiries = [str(each.get("cause", "cause unknown")) for one in parts for each in one.expiries]
    deep = _sums(one.deep for one in parts)
    gaps = _sums(one.gaps for one in parts)
    lost = sum(count for kind, count in gaps.items() if kind in LOSSES)
    skipped = _sums(one.skipped for one in parts)
    left_out = sum(count for why, count in skipped.items() if why not in NOTHING_TO_COPY)
    return [
        Tile(
            "Records copied",
            f"{sum(one.records for one in parts):,}",
            f"in {counted(batches, 'batch', 'batches')}{_unknown(parts, CountBasis.UNKNOWN)}",
        ),
        Tile(
            "Bytes copied",
            size(copied),
            f"on the wire, headers included{_unknown(parts, CountBasis.UNKNOWN, CountBasis.OFFSETS)}",
        ),
        Tile("Rate", rate(copied, took_ms), f"over {span(took_ms)}"),
        _left(parts),
        Tile("Expiries", f"{len(expiries):,}", f"{listed(Counter(expiries)) or 'no batch grew too old'}; {retries}"),
        Tile("Encoded anew", f"{sum(deep.values()):,}", listed(deep) or "all batches were passed on as bytes"),
        Tile("Skipped", f"{sum(skipped.values()):,}", _of_which(skipped, left_out, "left out")),
        Tile("Gaps", f"{sum(gaps.values()):,}", _of_which(gaps, lost, "lost")),
    ]


def _unknown(parts: Sequence[RangeResult], *lacking: CountBasis) -> str:
    number = sum(one.counted in lacking for one in parts)
    return f"; not known of {counted(number, 'partition')}" if number else ""


def _left(parts: Sequence[RangeResult]) -> Tile:
    stories = [one.story for one in parts if one.story is not None]
    before = [story.lag_before for story in stories if story.lag_before is not None]
    after = [story.lag_after for story in stories if story.lag_after is not None]
    late_ms = max((story.late_after_ms or 0 for story in stories), default=0)
    more = f"of {sum(before):,} at the start" if before else "not known at the start"
    return Tile(
        "Left to copy",
        f"{sum(after):,}" if after else NONE,
        f"{more}; the oldest waits for {span(late_ms)}" if late_ms else more,
    )


def _of_which(counts: dict[str, int], bad: int, name: str) -> str:
    return f"{bad:,} {name}: {listed(counts)}" if bad else listed(counts) or "none"


def _sums(each: Iterable[dict[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for counts in each:
        total.update(counts)
    return dict(total)


def _member(flow: str, one: RangeResult, line: str) -> dict[str, str]:
    return {"name": f"{one.topic}-{one.partition}", "link": link(flow, one.topic, one.partition), "line": line}


def _phase(name: str, ms: int, whole_ms: int) -> dict[str, str]:
    share = 100 * ms / max(1, whole_ms)
    percent = f"{share:.0f}%" if share >= 1 else "under 1%"
    meaning = phases.MEANINGS.get(name, "")
    return {"name": name, "share": f"{share:.3f}", "percent": percent, "time": span(ms), "meaning": meaning}


def _curves_from(flow: FlowReportData) -> str:
    if flow.epochs is None or flow.covered_epochs is None or flow.covered_epochs >= flow.epochs:
        return ""
    return (
        f" Curves and times are those of the last {flow.covered_epochs:,} epochs; the figures above are those of all."
    )


def _table_said(flow: FlowReportData, shown: FlowReportData) -> str:
    said = "A row opens its partition: its curve, what happened to it, and all its figures."
    left = len(flow.partitions) - len(shown.partitions)
    return f"{said} {left:,} more are not shown, which are complete or copied less." if left else said
