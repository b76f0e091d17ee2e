"""The ledger's results: a line of JSON per range and attempt, compressed, which DuckDB, pandas and Spark can read."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempt_results import AttemptResult, field_values, result_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def results_file(ledger: Path, period: int) -> Path:
    """Return the path of the results of ``period`` in a ledger's folder."""
    return ledger / f"results-{period:08}.jsonl.gz"


def write_results(ledger: Path, attempts: Iterable[AttemptResult], period: int) -> None:
    """Write the results of ``period`` into the ledger's folder. Raises OSError."""
    lines = [json.dumps(_row(attempt, period), separators=(",", ":")) + "\n" for attempt in attempts]
    write_atomically(results_file(ledger, period), gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))


def read_results(path: Path) -> list[AttemptResult]:
    """Return what :func:`write_results` has written; nothing if there is no file.

    Raises OSError, ValueError, TypeError and KeyError for a file that is damaged, or that another version has written.
    """
    if not path.exists():
        return []
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return [_attempt(json.loads(line)) for line in content.splitlines()]


def _row(attempt: AttemptResult, period: int) -> dict[str, Any]:
    result = field_values(attempt.result)
    timeline = attempt.result.timeline
    result["timeline"] = None if timeline is None else field_values(timeline)
    own = {"period": period, "task": attempt.task, "attempt": attempt.attempt, "traceback": attempt.traceback}
    return own | result


def _attempt(row: Mapping[str, Any]) -> AttemptResult:
    values = dict(row)
    task, attempt, traceback = values.pop("task"), values.pop("attempt"), values.pop("traceback")
    del values["period"]
    return AttemptResult(task, attempt, result_from_json(values), traceback)
