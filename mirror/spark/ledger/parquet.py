"""The ledger's results as Parquet: one row per range and attempt, to be read by Spark, DuckDB, pandas and people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempts import Attempt, plain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirror.telemetry.task_report import TaskReport

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_MAPS: Final = ("skipped", "deep", "gaps")
_JSON: Final = "expiries"
_STORY: Final = "story"

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
        ("story", pa.string()),
        ("traceback", pa.string()),
    ]
)
"""The fields of ``RangeResult``, ``expiries`` and ``story`` as JSON, with who says so."""


def results_file(ledger: Path, epoch: int) -> Path:
    """Where a ledger's folder has the results of ``epoch``."""
    return ledger / f"results-{epoch:08}.parquet"


def write_results(ledger: Path, attempts: Iterable[Attempt], epoch: int) -> None:
    """Into the ledger's folder. Of its own, so that a sink's commit, a new process each, loads nothing more."""
    write_atomically(results_file(ledger, epoch), to_parquet(attempts, epoch))


def task_reports_file(ledger: Path, epoch: int) -> Path:
    """Where a ledger's folder has what the tasks of ``epoch`` told of themselves."""
    return ledger / f"told-{epoch:08}.json"


def write_task_reports(ledger: Path, told: Iterable[TaskReport], epoch: int) -> None:
    """Into the ledger's folder."""
    write_atomically(task_reports_file(ledger, epoch), json.dumps([one.to_json() for one in told]).encode())


def to_parquet(attempts: Iterable[Attempt], epoch: int) -> bytes:
    """A whole file."""
    rows = [_row(each, epoch) for each in attempts]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())


def _row(each: Attempt, epoch: int) -> dict[str, Any]:
    row = plain(each.result)
    row.update({name: list(row[name].items()) for name in _MAPS})
    row.update(
        epoch=epoch, task=each.task, attempt=each.attempt, traceback=each.traceback, outcome=str(each.result.outcome)
    )
    story = each.result.story
    told = None if story is None else json.dumps(plain(story), separators=(",", ":"))
    return {**row, _JSON: json.dumps(row[_JSON]), _STORY: told}


def from_parquet(content: bytes) -> list[Attempt]:
    """The inverse of :func:`to_parquet`."""
    return [_attempt(row) for row in pq.read_table(pa.BufferReader(content)).to_pylist()]


def _attempt(row: dict[str, Any]) -> Attempt:
    task, attempt, traceback = row.pop("task"), row.pop("attempt"), row.pop("traceback")
    del row["epoch"]
    row.update({name: dict(row[name]) for name in _MAPS})
    row[_JSON] = json.loads(row[_JSON])
    # Ledgers of an older version have none.
    row[_STORY] = CopyTimeline(**json.loads(row[_STORY])) if row.get(_STORY) else None
    return Attempt(task, attempt, RangeResult(**{**row, "outcome": Outcome(row["outcome"])}), traceback)
