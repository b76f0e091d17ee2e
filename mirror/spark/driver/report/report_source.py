"""Read the data of a report from a report folder: its ``summary.json``, and the ledgers of the runs in it.

The summary has the figures of a whole run. The ledger has the timeline of each attempt, for a stream only of its last
periods; this module joins them to one timeline per partition. Parts that are missing or cannot be read are left out.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from mirror.alignment.sync_state import SyncState
from mirror.errors import FlowError
from mirror.groups.summary import GroupsSummary
from mirror.relay.model.ranges import SEVERITY, CountBasis, Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.relay.progress.stored_record import record_of
from mirror.spark.ledger.ledger import MAX_PERIODS, Ledger
from mirror.spark.ledger.results import Totals, join_results
from mirror.telemetry.evidence import Evidence
from mirror.telemetry.report.history import EARLIER_ATTEMPT, PartitionHistory
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.traces.ids import period_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mirror.spark.ledger.attempt_results import AttemptResult

_MAX_POINTS_PER_RUN: Final = 120_000
"""Points of a run's curves that are held while they are joined: 8 MB at most."""
_MAX_POINTS, _MIN_POINTS = 480, 16
"""Points of one partition's curve."""
_NO_RESULT: Final = "it has no result yet: it is being copied, or the run was killed"

Key = tuple[str, int]


class RunReader:
    """Reads the ledger of one run of one flow, period by period. For one thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger: Final = ledger
        self._totals: Final = Totals()
        self._histories: Final = dict[Key, PartitionHistory]()
        self._points = 0
        """The number of points of each partition's curve; 0 before the first period."""
        self._last: int | None = None
        self.covered_periods = 0
        """The number of periods that have been read."""

    def read_new_periods(self) -> None:
        """Read the periods that were completed since the last call. Raises OSError."""
        last = self._ledger.last_completed_period()
        if last is None:
            return
        first = max(0, last - MAX_PERIODS) if self._last is None else self._last + 1
        for period in range(first, last + 1):
            try:
                plan, attempts = self._ledger.plan(period), self._ledger.attempts(period)
            except (ValueError, TypeError, KeyError):
                continue  # written by another version, or damaged
            if plan is not None:
                self._add(join_results(plan, attempts), attempts, period)
        self._last = last

    def _add(self, results: list[RangeResult], attempts: Iterable[AttemptResult], period: int) -> None:
        self.covered_periods += 1
        self._points = self._points or max(_MIN_POINTS, min(_MAX_POINTS, _MAX_POINTS_PER_RUN // max(1, len(results))))
        self._totals.add(results)
        by_partition: dict[Key, list[AttemptResult]] = {}
        for attempt in sorted(attempts, key=lambda attempt: attempt.attempt):
            by_partition.setdefault((attempt.result.topic, attempt.result.partition), []).append(attempt)
        for key, in_order in by_partition.items():
            history = self._histories.setdefault(key, PartitionHistory(self._points))
            for attempt in in_order[:-1]:
                history.add(attempt.result, [self._superseded(attempt, period)])
            history.add(in_order[-1].result)

    def _superseded(self, attempt: AttemptResult, period: int) -> dict[str, Any]:
        """Return the event for an attempt with a later one: its executor was lost, or it was slower than the other."""
        timeline, result = attempt.result.timeline, attempt.result
        attributes = {
            "task": attempt.task,
            "attempt": attempt.attempt,
            "outcome": result.outcome.value,
            "error": result.error,
        }
        time_ms = timeline.ended_ms if timeline is not None else self._ledger.planned_ms(period)
        return {"time_ms": time_ms, "name": EARLIER_ATTEMPT, **attributes}

    @property
    def periods(self) -> int | None:
        """The number of periods that a stream has completed; None for a scheduled run."""
        if (self._ledger.last_planned_period() or 0) == 0:
            return None
        return self._ledger.last_completed_period() or 0

    @property
    def trace(self) -> str:
        """The trace id of the last completed period; "" before the first."""
        last, path = self._ledger.last_completed_period(), self._ledger.path
        return "" if last is None else period_id(path.parent.name, path.name, last).trace_hex

    def results(self) -> list[RangeResult]:
        """Return the sums of the periods in the ledger; before the first result, the planned ranges as unfinished."""
        if totals := self._totals.results():
            return totals
        plan = self._ledger.plan(self._ledger.last_planned_period() or 0)
        if plan is None:
            return []
        pending = [RangeResult.initial(range_, range_.start, Outcome.UNFINISHED, _NO_RESULT) for range_ in plan.ranges]
        for result in pending:
            result.counted = CountBasis.UNKNOWN
        return sorted([*plan.results_without_task, *pending], key=lambda result: (result.topic, result.partition))

    def with_timeline(self, result: RangeResult) -> RangeResult:
        """Return a copy of ``result`` with the timeline and the expiries in the ledger."""
        history = self._histories.get((result.topic, result.partition))
        if history is None:
            return result
        in_history = {json.dumps(expiry, sort_keys=True) for expiry in history.expiries()}
        earlier = [expiry for expiry in result.expiries if json.dumps(expiry, sort_keys=True) not in in_history]
        return replace(result, timeline=history.timeline() or result.timeline, expiries=[*earlier, *history.expiries()])


class ReportSource:
    """Reads a report folder repeatedly; each period of a run is read once."""

    def __init__(self, report_dir: Path) -> None:
        self._dir: Final = report_dir
        self._readers: Final = dict[tuple[str, str], RunReader]()

    def views(self, flow: str | None = None) -> list[FlowReportData]:
        """Return the flows in the summary, or ``flow`` alone, which may be in the ledger only.

        Raises FlowError if there is no such flow, or if it cannot be read.
        """
        entries = self._summary()
        if flow is None:
            if entries:
                return [self._view(entry) for entry in entries.values()]
            raise FlowError(f"{self._dir}: no run has written a summary.json here; give the --report-dir of a run")
        if flow in entries:
            return [self._view(entries[flow])]
        if ledgers := Ledger.runs(self._dir, flow):
            return [self._from_ledger(flow, ledgers[0])]
        available = sorted({*entries, *self._flows_in_ledger()})
        raise FlowError(f"{self._dir}: there is no flow {flow!r} here, only: {', '.join(available) or 'none'}")

    def _summary(self) -> dict[str, dict[str, Any]]:
        path = self._dir / "summary.json"
        try:
            return {str(entry["flow"]): entry for entry in json.loads(path.read_text(encoding="utf-8"))["flows"]}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FlowError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise FlowError(f"{path} is not a summary of a run ({type(error).__name__}: {error})") from error

    def _flows_in_ledger(self) -> list[str]:
        folder = self._dir / "ledger"
        return [path.name for path in folder.iterdir()] if folder.is_dir() else []

    def _reader(self, flow: str, run: str) -> RunReader:
        reader = self._readers.get((flow, run))
        if reader is None:
            path = self._dir / "ledger" / flow / run
            reader = self._readers[flow, run] = RunReader(Ledger(path))
        reader.read_new_periods()
        return reader

    def _view(self, entry: Mapping[str, Any]) -> FlowReportData:
        """Return the data of a run in the summary. A summary of an older version does not name the run's ledger."""
        results = [_result(values) for values in entry["partitions"]]
        reader = self._reader(str(entry["flow"]), str(entry["run"])) if entry.get("run") else None
        if reader is not None:
            results = [reader.with_timeline(result) for result in results or reader.results()]
        return FlowReportData(
            flow=str(entry["flow"]),
            outcome=Outcome(entry["outcome"]),
            started_ms=_ms(entry["started"]),
            ended_ms=_ms(entry["ended"]) if entry["ended"] else None,
            error=entry.get("error"),
            periods=reader.periods if reader is not None else None,
            covered_periods=reader.covered_periods if reader is not None else None,
            trace=reader.trace if reader is not None else "",
            groups=_groups(entry.get("groups")),
            sync=SyncState.from_json(entry["sync"]) if entry.get("sync") else SyncState(),
            index_bytes=entry.get("index_bytes"),
            evidence=record_of(Evidence, entry.get("evidence")) or Evidence(),
            partitions=results,
        )

    def _from_ledger(self, flow: str, ledger: Ledger) -> FlowReportData:
        """Return the data of a run that is in the ledger, but no longer in the summary."""
        reader = self._reader(flow, ledger.path.name)
        results = [reader.with_timeline(result) for result in reader.results()]
        timelines = [result.timeline for result in results if result.timeline is not None]
        began_ms = min((timeline.began_ms for timeline in timelines), default=_first_ms(ledger))
        return FlowReportData(
            flow=flow,
            outcome=max((result.outcome for result in results), key=SEVERITY.index, default=Outcome.UNFINISHED),
            started_ms=began_ms,
            ended_ms=max((timeline.ended_ms for timeline in timelines), default=None),
            error=None,
            periods=reader.periods,
            covered_periods=reader.covered_periods,
            trace=reader.trace,
            partitions=results,
        )


def _groups(values: Mapping[str, Any] | None) -> GroupsSummary | None:
    """Read the groups of the summary: a run whose round failed has no others."""
    return None if values is None else GroupsSummary.from_json(values)


def _first_ms(ledger: Ledger) -> int:
    return int(ledger.path.stat().st_mtime * 1000)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _result(values: Mapping[str, Any]) -> RangeResult:
    """Read a result from the summary. Keys that this version does not know are ignored."""
    timeline = CopyTimeline(**_fields_of(CopyTimeline, values["timeline"])) if values.get("timeline") else None
    enums = {"outcome": Outcome(values["outcome"]), "counted": CountBasis(values.get("counted") or CountBasis.RECORDS)}
    return RangeResult(**{"end": values["start"], **_fields_of(RangeResult, values), **enums, "timeline": timeline})


def _fields_of(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Select the ``values`` that are fields of the dataclass ``kind``; None stands for the field's default."""
    return {field.name: values[field.name] for field in fields(kind) if values.get(field.name) is not None}
