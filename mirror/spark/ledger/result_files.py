"""The ledger's results: a line of JSON per range and attempt, compressed, which DuckDB, pandas and Spark can read."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempts import Attempt, CopiedTask, field_values, result_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mirror.telemetry.task_report import TaskReport


def results_file(ledger: Path, epoch: int) -> Path:
    """Return the path of the results of ``epoch`` in a ledger's folder."""
    return ledger / f"results-{epoch:08}.jsonl.gz"


def task_reports_file(ledger: Path, epoch: int) -> Path:
    """Return the path of the task reports of ``epoch`` in a ledger's folder."""
    return ledger / f"task-reports-{epoch:08}.json"


def write_results(ledger: Path, attempts: Iterable[Attempt], epoch: int) -> None:
    """Write the results of ``epoch`` into the ledger's folder. Raises OSError."""
    lines = [json.dumps(_row(attempt, epoch), separators=(",", ":")) + "\n" for attempt in attempts]
    write_atomically(results_file(ledger, epoch), gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))


def read_results(path: Path) -> list[Attempt]:
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


def write_task_reports(ledger: Path, reports: Iterable[TaskReport], epoch: int) -> None:
    """Write the task reports of ``epoch`` into the ledger's folder. Raises OSError."""
    write_atomically(task_reports_file(ledger, epoch), json.dumps([report.to_json() for report in reports]).encode())


def write_copied(ledger: Path, tasks: Iterable[CopiedTask]) -> None:
    """Write what the tasks of one job have copied into the ledger's folder. Raises OSError."""
    copied = [task for task in tasks if task.attempts]
    if copied:
        epoch = copied[0].epoch
        # The results last: for readers of the ledger the epoch is complete as soon as they exist.
        write_task_reports(ledger, [task.report for task in copied if task.report], epoch)
        write_results(ledger, [attempt for task in copied for attempt in task.attempts], epoch)


def _row(attempt: Attempt, epoch: int) -> dict[str, Any]:
    result = field_values(attempt.result)
    timeline = attempt.result.timeline
    result["timeline"] = None if timeline is None else field_values(timeline)
    own = {"epoch": epoch, "task": attempt.task, "attempt": attempt.attempt, "traceback": attempt.traceback}
    return own | result


def _attempt(row: Mapping[str, Any]) -> Attempt:
    values = dict(row)
    task, attempt, traceback = values.pop("task"), values.pop("attempt"), values.pop("traceback")
    del values["epoch"]
    return Attempt(task, attempt, result_from_json(values), traceback)
