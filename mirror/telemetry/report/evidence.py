"""The texts about the last verification and the last rehearsal of a flow, which need no script. Pure."""

from __future__ import annotations

from typing import Any, Final

from mirror.errors import brief
from mirror.telemetry.evidence import Evidence, LastRehearsal, LastVerification
from mirror.telemetry.report.format import NONE, counted, listed, moment, size, span
from mirror.telemetry.report.model import FlowReportData

MAX_ROWS: Final = 50
_MAX_CHARACTERS: Final = 400


def evidence_texts(flow: FlowReportData, made_ms: int) -> dict[str, Any] | None:
    """Return the values of the template; None if the flow is neither verified nor rehearsed."""
    evidence = flow.evidence
    if evidence == Evidence():
        return None
    verification, rehearsal = evidence.verification, evidence.rehearsal
    return {
        "verification": None if verification is None else _verification(verification, made_ms),
        "rehearsal": None if rehearsal is None else _rehearsal(rehearsal, made_ms),
    }


def _verification(found: LastVerification, made_ms: int) -> dict[str, Any]:
    not_equal = [one for one in found.partitions if one.outcome != "equal"]
    differs, bad = found.outcomes.get("different", 0), bool(found.error or not_equal)
    result = f"{found.outcomes.get('equal', 0):,} of {counted(sum(found.outcomes.values()), 'partition')} equal"
    result = result if found.outcomes else "nothing could be compared" if found.error else "nothing to compare"
    equal = f"{moment(found.equal_ms)} ({_ago(found.equal_ms, made_ms)})" if found.equal_ms else "never"
    return {
        "level": "critical" if differs else "warning" if bad else "good",
        "title": f"Verified {_ago(found.time_ms, made_ms)}: {result}",
        "error": found.error,
        "lines": [
            f"{counted(found.records, 'record')}, {size(found.bytes)}, in {span(found.seconds * 1000)}",
            *(["only a part was compared (--from or --check)"] if found.partial else []),
            f"all of it last found equal: {equal}" if found.partial else f"last found equal: {equal}",
            *([f"not complete: {counted(found.incomplete, 'partition')}"] if found.incomplete else []),
            *([f"differing records: {listed(dict(found.differing))}"] if found.differing else []),
        ],
        "rows": [
            [one.topic, f"{one.partition}", one.outcome, _offset(one.equal_to), _brief(one.remarks)]
            for one in not_equal[:MAX_ROWS]
        ],
        "more": max(0, sum(found.outcomes.values()) - found.outcomes.get("equal", 0) - MAX_ROWS),
    }


def _rehearsal(found: LastRehearsal, made_ms: int) -> dict[str, Any]:
    total = counted(found.groups, "group")
    groups = f"{found.groups_not_ready:,} of {total} not ready" if found.groups_not_ready else f"{total} ready"
    return {
        "level": "good" if found.ready else "warning",
        "error": "",
        "title": f"Rehearsed {_ago(found.time_ms, made_ms)}: {'ready' if found.ready else 'not ready'}",
        "lines": [
            f"{groups}; {counted(found.skipped, 'record')} skipped, {counted(found.read_again, 'record')} read again",
            f"recovery point: {_seconds(found.point_seconds)}, at most {counted(found.records, 'record')} not arrived",
            f"recovery time: {_seconds(found.time_seconds)}",
        ],
        "rows": [[one.kind, _brief(one.name), _brief(one.reason)] for one in found.blockers[:MAX_ROWS]],
        "more": max(0, len(found.blockers) - MAX_ROWS),
    }


def _ago(time_ms: int, made_ms: int) -> str:
    return f"{span(made_ms - time_ms)} before this report"


def _offset(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else span(value * 1000)


def _brief(text: str) -> str:
    return brief(text, _MAX_CHARACTERS)
