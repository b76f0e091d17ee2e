"""What came of a run: results joined to the plan, the flow's outcome, ``summary.json`` and the exit status."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import SEVERITY, Counted, Outcome, Range, RangeResult
from mirror.spark.ledger.atomic_write import describe_file_error, write_atomically
from mirror.spark.ledger.unanswered import TargetProgress, unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.plan import Plan

EXIT_COMPLETE: Final = 0
EXIT_COULD_NOT_RUN: Final = 1
EXIT_INCOMPLETE: Final = 3


@dataclass(slots=True)
class FlowReport:
    """One flow's run.

    ``error`` is why it could not run, in one line, or None; ``cut_short`` says a signal ended it, ``fenced`` (one line)
    that another run took over. ``run`` is its folder in the ledger; "" where it has none.
    ``started`` and ``ended`` are in UTC; ``ended`` is None while it runs.
    """

    flow: str
    started: datetime
    ended: datetime | None = None
    partitions: list[RangeResult] = field(default_factory=list)
    error: str | None = None
    cut_short: bool = False
    fenced: str | None = None
    run: str = ""

    @property
    def outcome(self) -> Outcome:
        """``failed`` if the flow could not run, ``unfinished`` if cut short, else the worst partition's outcome."""
        if self.error is not None:
            return Outcome.FAILED
        if self.fenced is not None:
            return Outcome.FENCED
        if self.cut_short or self.ended is None:
            return Outcome.UNFINISHED
        return max((result.outcome for result in self.partitions), key=SEVERITY.index, default=Outcome.COMPLETE)

    def to_json(self) -> dict[str, Any]:
        """As ``summary.json`` has it; times in ISO 8601, UTC."""
        return {
            "flow": self.flow,
            "run": self.run,
            "outcome": self.outcome.value,
            "started": iso(self.started),
            "ended": iso(self.ended) if self.ended else None,
            "error": self.error,
            "partitions": [_plain(result) for result in self.partitions],
        }


def _plain(result: RangeResult) -> dict[str, Any]:
    """Without what only pictures need; what is not known is None, and never 0."""
    values, story = asdict(replace(result, story=None)), result.story
    values |= dict.fromkeys(_UNKNOWN[result.counted])
    if story is not None:
        values["story"] = {**asdict(replace(story, curve=[], traces=[])), "curve": None, "traces": None}
    return values


def iso(moment: datetime) -> str:
    """``2026-01-31T12:00:00.000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_UNKNOWN: Final[dict[Counted, tuple[str, ...]]] = {
    Counted.RECORDS: (),
    Counted.OFFSETS: ("batches", "bytes"),
    Counted.UNKNOWN: ("end", "records", "batches", "bytes"),
}
"""The figures that a result does not have, by where the others come from."""


def join_results(
    plan: Plan, attempts: Iterable[Attempt], reached: TargetProgress | None = None, *, cut_short: bool = False
) -> list[RangeResult]:
    """Every partition's result, by topic and partition: settled, answered (the last attempt's word), or unfinished.

    Each with what the plan saw behind an open transaction of the source, where that is worth a word.
    ``reached`` is how far the target says that those are whose tasks did not answer (None: it was not asked), and
    ``cut_short`` whether that is because the run was ended.
    """
    answered: dict[tuple[str, int], RangeResult] = {}
    for each in sorted(attempts, key=lambda attempt: attempt.attempt):
        answered[each.result.topic, each.result.partition] = each.result
    results = [
        _judged(
            answered.get((each.topic, each.partition)) or unanswered(each, reached, cut_short=cut_short),
            plan.truncated_at.get(_name(each)),
        )
        for each in plan.ranges
    ]
    every = [_with_withheld(result, plan.withheld) for result in (*plan.results_without_task, *results)]
    return sorted(every, key=lambda result: (result.topic, result.partition))


def _with_withheld(result: RangeResult, withheld: OpenTransactions) -> RangeResult:
    found = withheld.get(TopicPartition(result.topic, result.partition))
    return replace(result, withheld=found.to_json()) if found is not None and found.noted else result


def _name(each: Range) -> str:
    return f"{each.topic}-{each.partition}"


def _judged(result: RangeResult, stop: int | None) -> RangeResult:
    """A range that was cut is complete for its task; for the run it is not, where something is left up to ``stop``."""
    if stop is None or result.outcome is not Outcome.COMPLETE or result.end >= stop:
        return result
    line = f"max-bytes-per-epoch: {stop - result.end} records are left for the next run"
    return replace(result, outcome=Outcome.UNFINISHED, error=line)


def exit_status(reports: Sequence[FlowReport], in_order: Collection[str] = ()) -> int:
    """0 if everything is complete, 1 if a flow could not run, else 3.

    The flows ``in_order`` are streams that were asked to end, and did: what their end interrupted is no failure of
    theirs, but what had failed, or had waited for long, when it came is one.
    """
    if any(report.error is not None for report in reports):
        return EXIT_COULD_NOT_RUN
    complete = all(
        not any(map(_needs_care, report.partitions)) if report.flow in in_order else report.outcome is Outcome.COMPLETE
        for report in reports
    )
    return EXIT_COMPLETE if complete else EXIT_INCOMPLETE


def _needs_care(result: RangeResult) -> bool:
    interrupted = result.outcome is Outcome.UNFINISHED and result.stuck_since_ms is None
    return result.outcome is not Outcome.COMPLETE and not interrupted


class Summary:
    """``summary.json`` in the report folder; ``told`` is what it says, or None while this run has written none."""

    def __init__(self, report_dir: Path, warn: Callable[[str], None]) -> None:
        """``warn`` is called with one line where the file cannot be written, once."""
        self._path: Final = report_dir / "summary.json"
        self._warn: Final = warn
        self._warned = False
        self.content: dict[str, Any] | None = None

    def write(self, reports: Sequence[FlowReport]) -> None:
        """In place of what was there. A run goes on without it; an older run's is removed then."""
        self.content = {"flows": [report.to_json() for report in reports]}
        try:
            write_atomically(self._path, (json.dumps(self.content, indent=2) + "\n").encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.unlink()
            if not self._warned:
                self._warn(
                    f"the summary cannot be written: {describe_file_error(error) or error}; the run goes on without it"
                )
            self._warned = True


def epoch_json(flow: str, epoch: int, results: Sequence[RangeResult]) -> dict[str, Any]:
    """A stream's epoch as ``--json`` tells it: sums over its partitions, and those that are not complete.

    ``bytes`` are on the wire; ``seconds`` is the longest of its partitions.
    """
    wrong = [one for one in results if one.outcome is not Outcome.COMPLETE]
    return {
        "flow": flow,
        "epoch": epoch,
        "partitions": len(results),
        "records": sum(one.records for one in results),
        "batches": sum(one.batches for one in results),
        "bytes": sum(one.bytes for one in results),
        "seconds": round(max((one.seconds for one in results), default=0.0), 3),
        "incomplete": [
            {"topic": one.topic, "partition": one.partition, "outcome": one.outcome.value, "error": one.error}
            for one in wrong
        ],
    }
