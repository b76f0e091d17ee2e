"""The ledger's results as Parquet: one row per range and attempt, readable by Spark, DuckDB and pandas.

This module stays apart from ``ledger``: a sink's commit, a new process for each epoch, needs only this much, and
importing more costs it 1.2 instead of 0.3 s of CPU.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempts import Attempt, CopiedTask, field_values

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirror.telemetry.task_report import TaskReport

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_MAPS: Final = ("skipped", "deep", "gaps")
_LISTS: Final = ("expiries", "target_losses")
_READ_BACK: Final = "read_back"
_TIMELINE: Final = "timeline"
_EARLIER_TIMELINE: Final = "story"
"""The name of the same column in the ledgers of version 0.2.0."""

SCHEMA: Final = pa.schema(
    [
        ("epoch", pa.int64()),
        ("task", pa.int32()),
        ("attempt", pa.int32()),
        ("flow", pa.string()),
        ("topic", pa.string()),
        ("target_topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("records", pa.int64()),
        ("batches", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("outcome", pa.string()),
        ("error", pa.string()),
        ("skipped", _COUNTS),
        ("deep", _COUNTS),
        ("gaps", _COUNTS),
        ("expiries", pa.string()),
        ("retries", pa.int32()),
        ("stuck_since_ms", pa.int64()),
        ("timeline", pa.string()),
        ("traceback", pa.string()),
        ("way", pa.string()),
        ("way_reason", pa.string()),
        ("target_losses", pa.string()),
        ("read_back", pa.string()),
    ]
)
"""The fields of ``RangeResult`` (lists, ``read_back`` and ``timeline`` as JSON), with the epoch, task and attempt."""


def results_file(ledger: Path, epoch: int) -> Path:
    """Return the path of the results of ``epoch`` in a ledger's folder."""
    return ledger / f"results-{epoch:08}.parquet"


def write_results(ledger: Path, attempts: Iterable[Attempt], epoch: int) -> None:
    """Write the results of ``epoch`` into the ledger's folder. Raises OSError."""
    write_atomically(results_file(ledger, epoch), to_parquet(attempts, epoch))


def task_reports_file(ledger: Path, epoch: int) -> Path:
    """Return the path of the task reports of ``epoch`` in a ledger's folder."""
    return ledger / f"task-reports-{epoch:08}.json"


def write_task_reports(ledger: Path, reports: Iterable[TaskReport], epoch: int) -> None:
    """Write the task reports of ``epoch`` into the ledger's folder. Raises OSError."""
    write_atomically(task_reports_file(ledger, epoch), json.dumps([report.to_json() for report in reports]).encode())


def write_copied(ledger: Path, tasks: Iterable[CopiedTask]) -> None:
    """Write what the tasks of one epoch have copied into the ledger's folder. Raises OSError."""
    copied = [task for task in tasks if task.attempts]
    if copied:
        epoch = copied[0].epoch
        # The results last: for readers of the ledger the epoch is complete as soon as they exist.
        write_task_reports(ledger, [task.report for task in copied if task.report], epoch)
        write_results(ledger, [attempt for task in copied for attempt in task.attempts], epoch)


def to_parquet(attempts: Iterable[Attempt], epoch: int) -> bytes:
    """Return a whole Parquet file."""
    rows = [_row(attempt, epoch) for attempt in attempts]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())


def _row(attempt: Attempt, epoch: int) -> dict[str, Any]:
    row = field_values(attempt.result)
    row.update({name: list(row[name].items()) for name in _MAPS})
    row.update(
        epoch=epoch,
        task=attempt.task,
        attempt=attempt.attempt,
        traceback=attempt.traceback,
        outcome=str(attempt.result.outcome),
    )
    timeline = attempt.result.timeline
    timeline_json = None if timeline is None else json.dumps(field_values(timeline), separators=(",", ":"))
    read_back = None if attempt.result.read_back is None else json.dumps(attempt.result.read_back)
    lists = {name: json.dumps(row[name]) for name in _LISTS}
    return {**row, **lists, _READ_BACK: read_back, _TIMELINE: timeline_json}


def from_parquet(content: bytes) -> list[Attempt]:
    """The inverse of :func:`to_parquet`."""
    return [_attempt(row) for row in pq.read_table(pa.BufferReader(content)).to_pylist()]


def _attempt(row: dict[str, Any]) -> Attempt:
    task, attempt, traceback = row.pop("task"), row.pop("attempt"), row.pop("traceback")
    del row["epoch"]
    row.update({name: dict(row[name]) for name in _MAPS})
    # Ledgers of an older version have no timeline, no way, no losses of the target and nothing read back.
    row.update({name: json.loads(row.get(name) or "[]") for name in _LISTS})
    read_back = row.get(_READ_BACK)
    row[_READ_BACK] = json.loads(read_back) if read_back else None
    earlier = row.pop(_EARLIER_TIMELINE, None)  # a run reads the ledgers of earlier runs, maybe of an older version
    timeline = row.get(_TIMELINE) or earlier
    row[_TIMELINE] = CopyTimeline(**json.loads(timeline)) if timeline else None
    return Attempt(task, attempt, RangeResult(**{**row, "outcome": Outcome(row["outcome"])}), traceback)
