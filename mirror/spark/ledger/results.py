"""The results of a run: joined to the plan, added up over a stream's periods, ``summary.json`` and the exit status."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final

from mirror.alignment.sync_state import ACLS, CONFIGS, DELETIONS, SyncState
from mirror.client import TopicPartition
from mirror.errors import FlowHeld
from mirror.exit_status import ATTENTION, DONE, FAILED, HELD
from mirror.relay.batches.reencode_decision import SkipReason
from mirror.relay.model.ranges import SEVERITY, CountBasis, Outcome, RangeResult
from mirror.relay.progress.stored_record import plain
from mirror.spark.ledger.atomic_write import describe_file_error, write_atomically
from mirror.spark.ledger.attempt_results import field_values
from mirror.spark.ledger.unanswered import TargetProgress, result_without_answer
from mirror.telemetry.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from mirror.alignment.differences import KindReport
    from mirror.groups.summary import GroupsSummary
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.spark.ledger.attempt_results import AttemptResult
    from mirror.spark.ledger.plan import Plan

STANDS_STILL_MS: Final = 30_000
"""A partition that does not move for less than this may be about to go on."""
MAX_EXPIRIES: Final = 10
"""How many expiries of each partition a stream's totals keep, the last ones: the stream may run for years."""
MAX_GONE: Final = 1_000
"""How many partitions that were deleted a stream's totals keep: with 17,000 a summary takes 300 ms, every 5 s."""


@dataclass(slots=True)
class FlowReport:
    """The report of one flow's run."""

    flow: str
    started: datetime
    """In UTC, as ``ended``."""
    ended: datetime | None = None
    """None while the flow runs."""
    partitions: list[RangeResult] = field(default_factory=list)
    error: str | None = None
    """Why the flow could not run, in one line; else None."""
    held: bool = False
    """Whether ``error`` is that MirrorMaker 2 copies again what the flow has taken over."""
    cut_short: bool = False
    """Whether a signal ended the run."""
    asked: datetime | None = None
    """When the run was asked to end, in UTC; None: it was not."""
    fenced: str | None = None
    """One line that says which other run took over; else None."""
    behind: str | None = None
    """One line that says why a stream that ended in order had not copied all that it should have; else None."""
    run: str = ""
    """The name of the run's folder in the ledger; empty if it has none."""
    groups: GroupsSummary | None = None
    """The consumer groups after the last round; None if there was none."""
    kinds: Mapping[str, KindReport] = field(default_factory=dict)
    """What is kept in step on the target after the last round, by kind."""
    sync: SyncState = field(default_factory=SyncState)
    """What else is in step, by kind."""
    index_bytes: int | None = None
    """The size of the offset index on the target, in bytes; None if it is not known."""
    evidence: Evidence = field(default_factory=Evidence)
    """The last verification and rehearsal, on any host."""

    @property
    def sync_state(self) -> SyncState:
        """:attr:`sync` with the counts of the records that are left out, or went aside."""
        not_local = sum(result.skipped.get(SkipReason.NOT_LOCAL, 0) for result in self.partitions)
        aside = sum(sum(result.aside.values()) for result in self.partitions)
        return replace(self.sync, not_local=not_local, aside=aside)

    @property
    def outcome(self) -> Outcome:
        """``failed`` if the flow could not run, ``unfinished`` if cut short, else the worst partition's outcome."""
        if self.error is not None:
            return Outcome.FAILED
        if self.fenced is not None:
            return Outcome.FENCED
        if self.cut_short or self.ended is None:
            return Outcome.UNFINISHED
        least = Outcome.COMPLETE if self.behind is None else Outcome.UNFINISHED
        return max((least, *(result.outcome for result in self.partitions)), key=SEVERITY.index)

    def failed(self, error: Exception, line: str) -> None:
        """Record ``error``, with the ``line`` about it."""
        self.error, self.held = line, isinstance(error, FlowHeld)

    def to_json(self) -> dict[str, Any]:
        """Return the flow's part of ``summary.json``; times are in ISO 8601, UTC."""
        return {
            "flow": self.flow,
            "run": self.run,
            "outcome": self.outcome.value,
            "started": iso(self.started),
            "ended": iso(self.ended) if self.ended else None,
            "error": self.error,
            "held": self.held,
            "behind": self.behind,
            "groups": None if self.groups is None else self.groups.to_json(),
            **{kind: self.kinds[kind].summary() if kind in self.kinds else None for kind in (CONFIGS, DELETIONS, ACLS)},
            "sync": self.sync_state.to_json(),
            "index_bytes": self.index_bytes,
            "evidence": plain(self.evidence),
            "partitions": [_summary_of(result) for result in self.partitions],
        }


def _summary_of(result: RangeResult) -> dict[str, Any]:
    """Return the result's fields without those that only the report draws; unknown figures are None, and never 0."""
    values, timeline = field_values(result), result.timeline
    values |= dict.fromkeys(_UNKNOWN_FIGURES[result.counted])
    if timeline is not None:
        values["timeline"] = {**field_values(timeline), "curve": None, "traces": None}
    return values


def iso(moment: datetime) -> str:
    """Return ``moment`` in UTC, as ``2026-01-31T12:00:00.000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_UNKNOWN_FIGURES: Final[dict[CountBasis, tuple[str, ...]]] = {
    CountBasis.RECORDS: (),
    CountBasis.OFFSETS: ("batches", "bytes"),
    CountBasis.UNKNOWN: ("end", "records", "batches", "bytes"),
}
"""The figures that a result lacks, by where its other figures come from."""


def join_results(
    plan: Plan, attempts: Iterable[AttemptResult], target: TargetProgress | None = None, *, cut_short: bool = False
) -> list[RangeResult]:
    """Return the result of every partition of the plan, by topic and partition.

    A partition's result is that of its last attempt, even if it was given to a task after the plan was made, else that
    of the plan, if it needed no task. If no attempt answered, it is unfinished: ``target`` has the progress
    that was read for such partitions (None: it was not read), and ``cut_short`` says whether the run was ended. Results
    carry the open transaction of the source that the plan found, if it is noteworthy.
    """
    answered: dict[tuple[str, int], RangeResult] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.attempt):
        answered[attempt.result.topic, attempt.result.partition] = attempt.result
    results = [
        _with_truncation(
            answered.get((range_.topic, range_.partition))
            or result_without_answer(range_, target, cut_short=cut_short),
            plan.truncated_at.get(f"{range_.topic}-{range_.partition}"),
        )
        for range_ in plan.ranges
    ]
    planned = {(range_.topic, range_.partition) for range_ in plan.ranges}
    added = {key: result for key, result in answered.items() if key not in planned}
    settled = [each for each in plan.results_without_task if (each.topic, each.partition) not in added]
    all_results = [_with_withheld(result, plan.withheld) for result in (*settled, *added.values(), *results)]
    return sorted(all_results, key=lambda result: (result.topic, result.partition))


def _with_withheld(result: RangeResult, withheld: OpenTransactions) -> RangeResult:
    found = withheld.get(TopicPartition(result.topic, result.partition))
    return replace(result, withheld=found.to_json()) if found is not None and found.is_noteworthy else result


def _with_truncation(result: RangeResult, stop: int | None) -> RangeResult:
    """Mark a complete but truncated range as unfinished for the run, if records are left before ``stop``."""
    if stop is None or result.outcome is not Outcome.COMPLETE or result.end >= stop:
        return result
    line = f"max-bytes-per-run: {stop - result.end} records are left for the next run"
    return replace(result, outcome=Outcome.UNFINISHED, error=line)


def exit_status(reports: Sequence[FlowReport], in_order: Collection[str] = ()) -> int:
    """Return 0 if everything is complete, 1 if a flow could not run, 4 if a person has to decide first, else 3.

    It is 3, too, if a stream was behind for another reason than its end.

    The flows ``in_order`` are streams that were asked to end, and did. A partition that their end interrupted does not
    count as incomplete, but one that had failed, or had stood still for long, when they were asked does.
    """
    if failed := [report for report in reports if report.error is not None]:
        return HELD if all(report.held for report in failed) else FAILED
    if any(report.behind is not None for report in reports):
        return ATTENTION
    complete = all(
        not any(_needs_attention(result, report.asked) for result in report.partitions)
        if report.flow in in_order
        else report.outcome is Outcome.COMPLETE
        for report in reports
    )
    return DONE if complete else ATTENTION


def _needs_attention(result: RangeResult, asked: datetime | None) -> bool:
    if result.outcome is not Outcome.UNFINISHED:
        return result.outcome is not Outcome.COMPLETE
    if result.stuck_since_ms is None:
        return False
    # A batch or a fence that the end has interrupted waits, too: on a busy cluster for longer than a copy may wind up.
    waited_ms = inf if asked is None else asked.timestamp() * 1000 - result.stuck_since_ms
    return waited_ms >= STANDS_STILL_MS or bool(result.expiries)


class Summary:
    """The file ``summary.json`` in the report folder."""

    def __init__(self, report_dir: Path, warn: Callable[[str], None]) -> None:
        """``warn`` is called once, with one line, if the file cannot be written."""
        self._path: Final = report_dir / "summary.json"
        self._warn: Final = warn
        self._warned = False
        self.content: dict[str, Any] | None = None
        """The content as this run wrote it last; None before that."""

    def write(self, reports: Sequence[FlowReport]) -> None:
        """Replace the file. If it cannot be written, the run continues, and an older run's file is removed."""
        self.content = {"flows": [report.to_json() for report in reports]}
        try:
            write_atomically(self._path, summary_text(self.content).encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.unlink()
            if not self._warned:
                reason = describe_file_error(error) or error
                self._warn(f"the summary cannot be written: {reason}; the run continues without it")
            self._warned = True


def summary_text(content: Mapping[str, Any]) -> str:
    """Return the JSON of a summary, with a line for each partition.

    With an indent, Python's own encoder writes each value, which takes six times as long as the one in C.
    """
    flows = []
    for flow in content["flows"]:
        rows = ",\n    ".join(json.dumps(one) for one in flow["partitions"])
        fields = {name: json.dumps(value) for name, value in flow.items()} | {"partitions": f"[\n    {rows}\n  ]"}
        flows.append(",\n  ".join(f"{json.dumps(name)}: {text}" for name, text in fields.items()))
    return '{"flows": [' + ", ".join(f"{{\n  {flow}\n}}" for flow in flows) + "]}\n"


def period_json(flow: str, period: int, results: Sequence[RangeResult]) -> dict[str, Any]:
    """Return the line that ``--json`` prints for a stream's period: sums over its partitions, and the incomplete ones.

    ``bytes`` are on the wire; ``seconds`` is that of the slowest partition.
    """
    return {
        "flow": flow,
        "period": period,
        "partitions": len(results),
        "records": sum(result.records for result in results),
        "batches": sum(result.batches for result in results),
        "bytes": sum(result.bytes for result in results),
        "seconds": round(max((result.seconds for result in results), default=0.0), 3),
        "incomplete": [
            {
                "topic": result.topic,
                "partition": result.partition,
                "outcome": result.outcome.value,
                "error": result.error,
            }
            for result in results
            if result.outcome is not Outcome.COMPLETE
        ],
    }


class Totals:
    """Results added up by partition: counts are sums, the state is that of the last result."""

    def __init__(self) -> None:
        self._by_partition: dict[tuple[str, int], RangeResult] = {}

    def count(self, result: RangeResult) -> None:
        """Add a result of one partition: other partitions stay as they are."""
        key = (result.topic, result.partition)
        previous = self._by_partition.get(key)
        self._by_partition[key] = result if previous is None else _sum_of(previous, result)

    def add(self, results: Sequence[RangeResult]) -> None:
        """Add results of all partitions that there are."""
        self.keep({(one.topic, one.partition) for one in results})
        for result in results:
            self.count(result)

    def keep(self, present: Collection[tuple[str, int]]) -> None:
        """Forget partitions that were deleted, all but those ``present``, unless something of them was copied.

        Of the latter the last :data:`MAX_GONE` are kept, by when they were counted first.
        """
        found = self._by_partition
        gone = [key for key, one in found.items() if key not in present and _has_counts(one)]
        kept = {*gone[-MAX_GONE:], *present}
        self._by_partition = {key: one for key, one in found.items() if key in kept}

    def by_partition(self) -> Mapping[tuple[str, int], RangeResult]:
        """Return the totals as they are now, by source topic and partition."""
        return dict(self._by_partition)

    def results(self) -> list[RangeResult]:
        """Return the totals by topic and partition."""
        return [self._by_partition[key] for key in sorted(self._by_partition)]


def _has_counts(result: RangeResult) -> bool:
    lost = result.gaps or result.expiries or result.target_losses
    return bool(result.records or result.skipped or result.aside or lost)


def _sum_of(previous: RangeResult, result: RangeResult) -> RangeResult:
    # A task that was lost reports no position: the previous one stays valid.
    last_counted = previous if result.counted is CountBasis.UNKNOWN else result
    return replace(
        result,
        start=result.start if previous.counted is CountBasis.UNKNOWN else previous.start,
        end=last_counted.end,
        counted=last_counted.counted,
        records=previous.records + result.records,
        batches=previous.batches + result.batches,
        bytes=previous.bytes + result.bytes,
        seconds=previous.seconds + result.seconds,
        skipped=_sum_by_key(previous.skipped, result.skipped),
        deep=_sum_by_key(previous.deep, result.deep),
        gaps=_sum_by_key(previous.gaps, result.gaps),
        aside=_sum_by_key(previous.aside, result.aside),
        failures=_sum_by_key(previous.failures, result.failures),
        expiries=[*previous.expiries, *result.expiries][-MAX_EXPIRIES:],
        target_losses=[*previous.target_losses, *result.target_losses][-MAX_EXPIRIES:],
        retries=previous.retries + result.retries,
        way=result.way or previous.way,
        way_reason=result.way_reason if result.way else previous.way_reason,
    )


def _sum_by_key(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in first | second}
