"""A report folder as what a report shows: its ``summary.json``, and what the ledger knows of the runs that it tells of.

The summary has the figures of a whole run. The ledger has each attempt's story, of a stream's last epochs; they are
joined here to one story per partition. What is not there, or cannot be read any more, is left out: a report is made of
what there is.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from mirror.errors import FlowError
from mirror.relay.model.ranges import SEVERITY, Counted, Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.ledger.ledger import MAX_EPOCHS, Ledger
from mirror.spark.ledger.results import StreamTotals, join_results
from mirror.telemetry.report.history import EARLIER_ATTEMPT, PartitionHistory
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.traces.ids import epoch_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mirror.spark.ledger.attempts import Attempt

_POINTS_IN_ALL: Final = 120_000
"""Kept of a run's curves while they are joined: 8 MB at most."""
_MOST_POINTS, _LEAST_POINTS = 480, 16
_UNANSWERED: Final = "it has not answered yet: it is being copied, or the run was killed"

Key = tuple[str, int]


class RunReader:
    """What the ledger tells of one run of one flow; of a stream, more with each epoch. For one thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger: Final = ledger
        self._totals: Final = StreamTotals()
        self._histories: Final = dict[Key, PartitionHistory]()
        self._most = 0
        self._last: int | None = None
        self.covered_epochs = 0

    def read_on(self) -> None:
        """Take in the epochs that have ended since the last time. Raises OSError."""
        last = self._ledger.last_completed_epoch()
        if last is None:
            return
        first = max(0, last - MAX_EPOCHS) if self._last is None else self._last + 1
        for epoch in range(first, last + 1):
            try:
                plan, attempts = self._ledger.plan(epoch), self._ledger.attempts(epoch)
            except (ValueError, TypeError, KeyError):
                continue  # of another version, or damaged
            if plan is not None:
                self._take_in(join_results(plan, attempts), attempts, epoch)
        self._last = last

    def _take_in(self, results: list[RangeResult], attempts: Iterable[Attempt], epoch: int) -> None:
        self.covered_epochs += 1
        self._most = self._most or max(_LEAST_POINTS, min(_MOST_POINTS, _POINTS_IN_ALL // max(1, len(results))))
        self._totals.add(results)
        tries: dict[Key, list[Attempt]] = {}
        for each in sorted(attempts, key=lambda attempt: attempt.attempt):
            tries.setdefault((each.result.topic, each.result.partition), []).append(each)
        for key, tried in tries.items():
            history = self._histories.setdefault(key, PartitionHistory(self._most))
            for each in tried[:-1]:
                history.add(each.result, [self._earlier(each, epoch)])
            history.add(tried[-1].result)

    def _earlier(self, each: Attempt, epoch: int) -> dict[str, Any]:
        """An attempt that did not have the last word: its executor was lost, or it was slower than its twin."""
        story, result = each.result.story, each.result
        about = {"task": each.task, "attempt": each.attempt, "outcome": result.outcome.value, "error": result.error}
        time_ms = story.ended_ms if story is not None else self._ledger.planned_ms(epoch)
        return {"time_ms": time_ms, "name": EARLIER_ATTEMPT, **about}

    @property
    def epochs(self) -> int | None:
        """How many a stream has had; None for a scheduled run."""
        if (self._ledger.last_planned_epoch() or 0) == 0:
            return None
        return self._ledger.last_completed_epoch() or 0

    @property
    def trace(self) -> str:
        """The id of the trace of the last epoch that has ended; "" before the first."""
        last, path = self._ledger.last_completed_epoch(), self._ledger.path
        return "" if last is None else epoch_id(path.parent.name, path.name, last).trace_hex

    def results(self) -> list[RangeResult]:
        """Of the epochs that are remembered, added up; of a run whose tasks have not answered, what they have to do."""
        if told := self._totals.results():
            return told
        plan = self._ledger.plan(self._ledger.last_planned_epoch() or 0)
        if plan is None:
            return []
        waiting = [RangeResult.begun(each, each.start, Outcome.UNFINISHED, _UNANSWERED) for each in plan.ranges]
        for one in waiting:
            one.counted = Counted.UNKNOWN
        return sorted([*plan.results_without_task, *waiting], key=lambda one: (one.topic, one.partition))

    def with_story(self, one: RangeResult) -> RangeResult:
        """``one`` with all that is remembered of how it went."""
        history = self._histories.get((one.topic, one.partition))
        if history is None:
            return one
        known = {json.dumps(each, sort_keys=True) for each in history.expiries()}
        earlier = [each for each in one.expiries if json.dumps(each, sort_keys=True) not in known]
        return replace(one, story=history.story() or one.story, expiries=[*earlier, *history.expiries()])


class ReportSource:
    """Reads a report folder, again and again: what it has read of a run it does not read twice."""

    def __init__(self, report_dir: Path) -> None:
        self._dir: Final = report_dir
        self._readers: Final = dict[tuple[str, str], RunReader]()

    def views(self, flow: str | None = None) -> list[FlowReportData]:
        """The flows of the summary; or ``flow`` alone, also one that only the ledger remembers.

        Raises FlowError where there is no such thing, or where it cannot be read.
        """
        entries = self._summary()
        if flow is None:
            if entries:
                return [self._view(each) for each in entries.values()]
            raise FlowError(f"{self._dir}: no run has written a summary.json here; name the --report-dir of one")
        if flow in entries:
            return [self._view(entries[flow])]
        if ledgers := Ledger.runs(self._dir, flow):
            return [self._from_ledger(flow, ledgers[0])]
        known = sorted({*entries, *self._remembered()})
        raise FlowError(f"{self._dir}: nothing is known of a flow {flow!r} here, only of: {', '.join(known) or 'none'}")

    def _summary(self) -> dict[str, dict[str, Any]]:
        path = self._dir / "summary.json"
        try:
            return {str(each["flow"]): each for each in json.loads(path.read_text(encoding="utf-8"))["flows"]}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FlowError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise FlowError(f"{path} is not what a run writes ({type(error).__name__}: {error})") from error

    def _remembered(self) -> list[str]:
        folder = self._dir / "ledger"
        return [each.name for each in folder.iterdir()] if folder.is_dir() else []

    def _reader(self, flow: str, run: str) -> RunReader:
        reader = self._readers.get((flow, run))
        if reader is None:
            path = self._dir / "ledger" / flow / run
            reader = self._readers[flow, run] = RunReader(Ledger(path))
        reader.read_on()
        return reader

    def _view(self, entry: Mapping[str, Any]) -> FlowReportData:
        """Of a run that is in the summary; where that is one of an older version, it does not name its ledger."""
        results = [_result(each) for each in entry["partitions"]]
        reader = self._reader(str(entry["flow"]), str(entry["run"])) if entry.get("run") else None
        if reader is not None:
            results = [reader.with_story(one) for one in results or reader.results()]
        return FlowReportData(
            flow=str(entry["flow"]),
            outcome=Outcome(entry["outcome"]),
            started_ms=_ms(entry["started"]),
            ended_ms=_ms(entry["ended"]) if entry["ended"] else None,
            error=entry.get("error"),
            epochs=reader.epochs if reader is not None else None,
            covered_epochs=reader.covered_epochs if reader is not None else None,
            trace=reader.trace if reader is not None else "",
            partitions=results,
        )

    def _from_ledger(self, flow: str, ledger: Ledger) -> FlowReportData:
        """Of a run whose summary is that of another one by now."""
        reader = self._reader(flow, ledger.path.name)
        results = [reader.with_story(one) for one in reader.results()]
        stories = [one.story for one in results if one.story is not None]
        error = ledger.error()
        began_ms = min((story.began_ms for story in stories), default=_first_ms(ledger))
        return FlowReportData(
            flow=flow,
            outcome=max((one.outcome for one in results), key=SEVERITY.index, default=Outcome.UNFINISHED),
            started_ms=began_ms,
            ended_ms=max((story.ended_ms for story in stories), default=None),
            error=error.line if error is not None else None,
            epochs=reader.epochs,
            covered_epochs=reader.covered_epochs,
            trace=reader.trace,
            partitions=results,
        )


def _first_ms(ledger: Ledger) -> int:
    return int(ledger.path.stat().st_mtime * 1000)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _result(values: Mapping[str, Any]) -> RangeResult:
    """From the summary, which leaves the curve out; what this version does not know is left out, too."""
    known = _of(RangeResult, values)
    story = CopyTimeline(**_of(CopyTimeline, values["story"])) if values.get("story") else None
    told = {"outcome": Outcome(values["outcome"]), "counted": Counted(values.get("counted") or Counted.RECORDS)}
    return RangeResult(**{"end": values["start"], **known, **told, "story": story})


def _of(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that a ``kind`` has; what was left out, or is None, is as by default."""
    return {each.name: values[each.name] for each in fields(kind) if values.get(each.name) is not None}
