"""The texts of a flow's page that need no script: its summary, its figures and its advice. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mirror.alignment.sync_state import ACLS, CONFIGS, DELETIONS, TOPICS, KindState
from mirror.groups.summary import GroupsSummary
from mirror.relay.batches.reencode_decision import SkipReason
from mirror.relay.model.ranges import CountBasis, Outcome, RangeResult
from mirror.telemetry.report import phases
from mirror.telemetry.report.evidence import evidence_texts
from mirror.telemetry.report.findings import LOSSES, NOTHING_TO_COPY, Finding, unhealthy_partitions
from mirror.telemetry.report.format import NONE, counted, link, listed, moment, rate, size, span
from mirror.telemetry.report.groups import group_texts
from mirror.telemetry.report.model import FlowReportData

_KINDS: Final = {ACLS: "ACLs", CONFIGS: "Configurations", DELETIONS: "Deletions", TOPICS: "Topics"}
"""The names of kinds of differences as titles; others have their own."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure of the summary."""

    name: str
    value: str
    more: str = ""
    """Details, in smaller print."""


def flow_texts(
    flow: FlowReportData, shown: FlowReportData, findings: Sequence[Finding], slow: Sequence[int], made_ms: int
) -> dict[str, Any]:
    """Return the values of the template.

    The figures are those of ``flow``. ``shown`` has only the partitions that the page shows; ``findings`` and ``slow``
    contain their indexes. ``made_ms`` is the time of the report.
    """
    spent = phases.time_by_phase(flow.partitions)
    return {
        "name": flow.flow,
        "outcome": flow.outcome.value,
        "badge": "not ended" if flow.ended_ms is None else flow.outcome.value,
        "error": flow.error,
        "when": _when(flow, made_ms),
        "trace": flow.trace,
        "summary": _summary(flow, findings),
        "tiles": _tiles(flow, made_ms),
        "findings": [
            {
                "advice": finding.advice,
                "members": [_member(flow.flow, shown.partitions[index], line) for index, line in finding.members],
            }
            for finding in findings
        ],
        "groups": None if flow.groups is None else group_texts(flow.groups),
        "evidence": evidence_texts(flow, made_ms),
        "partitions": bool(flow.partitions),
        "phases": [_phase(name, ms, sum(spent.values())) for name, ms in spent.items()],
        "slow": len(slow),
        "slow_advice": phases.explain_slowest(flow.flow, [shown.partitions[index] for index in slow]),
        "curves_from": _curves_from(flow),
        "table_lead": _table_lead(flow, shown),
    }


def _when(flow: FlowReportData, made_ms: int) -> str:
    topics = len({result.topic for result in flow.partitions})
    extent = f"{counted(len(flow.partitions), 'partition')} of {counted(topics, 'topic')}" if topics else ""
    kind = "" if flow.periods is None else f"stream, {counted(flow.periods, 'period')}"
    if flow.ended_ms is None:
        time = f"began {moment(flow.started_ms)}, and had not ended {span(made_ms - flow.started_ms)} later"
    else:
        time = f"{moment(flow.started_ms)} to {moment(flow.ended_ms)} ({span(flow.ended_ms - flow.started_ms)})"
    return " · ".join(part for part in (time, extent, kind) if part)


def _summary(flow: FlowReportData, findings: Sequence[Finding]) -> str:
    if flow.error is not None and not flow.partitions:
        return "The flow could not run: nothing was copied."
    if not flow.partitions:
        return "Its partitions have no results yet." if flow.ended_ms is None else "There was nothing to copy."
    complete = sum(result.outcome is Outcome.COMPLETE for result in flow.partitions)
    total = len(flow.partitions)
    summary = f"All {counted(total, 'partition')} are complete." if complete == total > 1 else ""
    summary = summary or f"{complete:,} of {counted(total, 'partition')} {'is' if complete == 1 else 'are'} complete."
    unhealthy = unhealthy_partitions(findings)
    if not unhealthy:
        return summary
    return f"{summary} {len(unhealthy):,} {'needs' if len(unhealthy) == 1 else 'need'} attention."


def _tiles(flow: FlowReportData, made_ms: int) -> list[Tile]:
    results = flow.partitions
    took_ms = (made_ms if flow.ended_ms is None else flow.ended_ms) - flow.started_ms
    retries = counted(sum(result.retries for result in results), "retry", "retries")
    copied, batches = sum(result.bytes for result in results), sum(result.batches for result in results)
    causes = [str(expiry.get("cause", "cause unknown")) for result in results for expiry in result.expiries]
    deep = _sums(result.deep for result in results)
    gaps = _sums(result.gaps for result in results)
    lost = sum(count for kind, count in gaps.items() if kind in LOSSES)
    skipped = _sums(result.skipped for result in results)
    aside = _sums(result.aside for result in results)
    not_local = skipped.get(SkipReason.NOT_LOCAL, 0)
    skipped_records = sum(count for reason, count in skipped.items() if reason not in NOTHING_TO_COPY)
    return [
        Tile(
            "Records copied",
            f"{sum(result.records for result in results):,}",
            f"in {counted(batches, 'batch', 'batches')}{_unknown(results, CountBasis.UNKNOWN)}",
        ),
        Tile(
            "Bytes copied",
            size(copied),
            f"as sent, with batch headers{_unknown(results, CountBasis.UNKNOWN, CountBasis.OFFSETS)}",
        ),
        Tile("Rate", rate(copied, took_ms), f"over {span(took_ms)}"),
        _remaining(results),
        Tile("Expiries", f"{len(causes):,}", f"{listed(Counter(causes)) or 'no batch expired'}; {retries}"),
        Tile("Batches re-encoded", f"{sum(deep.values()):,}", listed(deep) or "all batches were passed on as bytes"),
        Tile("Skipped", f"{sum(skipped.values()):,}", _of_which(skipped, skipped_records, "records")),
        Tile("Gaps", f"{sum(gaps.values()):,}", _of_which(gaps, lost, "lost")),
        *([] if flow.groups is None else [_groups(flow.groups)]),
        *(_kind(kind, state) for kind, state in flow.sync.kinds.items()),
        *([] if flow.index_bytes is None else [Tile("Offset index", size(flow.index_bytes), "on the target")]),
        *([Tile("Aside", f"{sum(aside.values()):,}", f"records: {listed(aside)}")] if aside else []),
        *([Tile("Not local", f"{not_local:,}", "records left out, which flows have written")] if not_local else []),
    ]


def _kind(kind: str, state: KindState) -> Tile:
    number = sum(state.by_reason.values())
    compared = f"last compared {moment(state.synced_ms)}" if state.synced_ms else "not compared by this run"
    held = f"not in step: {listed(dict(state.by_reason))}; " if number else ""
    return Tile(_KINDS.get(kind, kind), f"{number:,}" if number else "in step", f"{held}{compared}")


def _groups(groups: GroupsSummary) -> Tile:
    if not groups.sync:
        return Tile("Consumer groups", NONE, "sync is off")
    if not groups.total:
        return Tile("Consumer groups", NONE, groups.counts())
    held = f"; not: {listed(dict(groups.by_reason))}" if groups.by_reason else ""
    return Tile("Consumer groups", f"{groups.in_step:,} of {groups.total:,}", f"in step{held}")


def _unknown(results: Sequence[RangeResult], *incomplete: CountBasis) -> str:
    number = sum(result.counted in incomplete for result in results)
    return f"; not known for {counted(number, 'partition')}" if number else ""


def _remaining(results: Sequence[RangeResult]) -> Tile:
    timelines = [result.timeline for result in results if result.timeline is not None]
    before = [timeline.lag_before for timeline in timelines if timeline.lag_before is not None]
    after = [timeline.lag_after for timeline in timelines if timeline.lag_after is not None]
    late_ms = max((timeline.late_after_ms or 0 for timeline in timelines), default=0)
    more = f"of {sum(before):,} at the start" if before else "not known at the start"
    return Tile(
        "Left to copy",
        f"{sum(after):,}" if after else NONE,
        f"{more}; the oldest waits for {span(late_ms)}" if late_ms else more,
    )


def _of_which(counts: dict[str, int], part: int, name: str) -> str:
    return f"{part:,} {name}: {listed(counts)}" if part else listed(counts) or "none"


def _sums(counters: Iterable[dict[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for counts in counters:
        total.update(counts)
    return dict(total)


def _member(flow: str, result: RangeResult, line: str) -> dict[str, str]:
    topic, partition = result.topic, result.partition
    return {"name": f"{topic}-{partition}", "link": link(flow, topic, partition), "line": line}


def _phase(name: str, ms: int, total_ms: int) -> dict[str, str]:
    share = 100 * ms / max(1, total_ms)
    percent = f"{share:.0f}%" if share >= 1 else "under 1%"
    meaning = phases.MEANINGS.get(name, "")
    return {"name": name, "share": f"{share:.3f}", "percent": percent, "time": span(ms), "meaning": meaning}


def _curves_from(flow: FlowReportData) -> str:
    if flow.periods is not None and not any(one.timeline for one in flow.partitions):
        return " A stream has no curves here: its lag over time is in its metrics."
    if flow.periods is None or flow.covered_periods is None or flow.covered_periods >= flow.periods:
        return ""
    return (
        f" Curves and times are those of the last {flow.covered_periods:,} periods; the figures above are those of all."
    )


def _table_lead(flow: FlowReportData, shown: FlowReportData) -> str:
    lead = "Click a row to open the partition, with its curve, its events and all its figures."
    hidden = len(flow.partitions) - len(shown.partitions)
    return f"{lead} {hidden:,} more are not shown: they are complete or copied less." if hidden else lead
