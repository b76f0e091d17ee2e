"""What the ledger has of each partition: its last error or expiry, its target's losses, and why it goes its way.

Reads only; unreadable files count as empty.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.target_loss import loss_text
from mirror.relay.readback.result import difference_count, differences_text
from mirror.spark.ledger.atomic_write import FIRST_TARGETS_FILE, TARGETS_FILE
from mirror.spark.ledger.obstacles import TargetTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

K = TypeVar("K")

_MAX_FILES: Final = 6
"""How many plans and results are read at most: an old error does not explain the present state."""
_COLUMNS: Final = ("topic", "partition", "error", "expiries")


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error of a partition."""

    line: str
    time_ms: int
    """In ms since 1970: the time of an expiry, else when the epoch ended."""


class LastErrors:
    """Reads what one flow's ledger says of its partitions in ``report_dir``, which may be missing; caches the files."""

    def __init__(self, report_dir: Path, flow: str) -> None:
        self._folder: Final = report_dir / "ledger" / flow
        self._cache: dict[tuple[Path, int], dict[TopicPartition, LastError]] = {}
        self._losses: Final = _LastResults(_target_losses_in)
        self._reasons: Final = _LastResults(_way_reasons_in)
        self._differences: dict[tuple[Path, int], dict[TopicPartition, str]] = {}
        self._failures_of: list[tuple[Path, int] | None] = []
        self._failures: dict[TopicPartition, LastError] = {}

    def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LastError]:
        """Return the last error of each of these source partitions that had one in the files that are read."""
        found: dict[TopicPartition, LastError] = {}
        files = self._files() if partitions else []
        self._cache = {file: self._cache[file] if file in self._cache else _errors_in(*file) for file in files}
        for file in files:
            for tp in partitions:
                error = self._cache[file].get(tp)
                if error is not None and tp not in found:
                    found[tp] = error
        return found

    def way_reasons(self) -> dict[tuple[TopicPartition, str], str]:
        """Return why source partitions went their way, by partition and way, in the last results."""
        return self._reasons.among(self._files())

    def differences(self) -> dict[TopicPartition, str]:
        """Return how the target differs from what was committed, by source partition, in the files that are read.

        A difference does not disappear with the next run or epoch, which reads back other batches.
        """
        files = [file for file in self._files() if file[0].suffix == ".parquet"]
        self._differences = {file: self._differences.get(file) or _differences_in(file[0]) for file in files}
        return {tp: line for file in reversed(files) for tp, line in self._differences[file].items()}

    def target_losses(self) -> dict[TopicPartition, str]:
        """Return what the target had lost, and was copied again, by source partition, in the last results."""
        return self._losses.among(self._files())

    def last_targets(self) -> tuple[str, TargetTopics] | None:
        """Return the last run, and the outcome of its preparation of the target's topics; None if it is unreadable."""
        return self._targets(TARGETS_FILE)

    def first_targets(self) -> TargetTopics | None:
        """Return the outcome of the preparation with which the last run began; None if it cannot be read."""
        found = self._targets(FIRST_TARGETS_FILE)
        return None if found is None else found[1]

    def failures(self) -> dict[TopicPartition, LastError]:
        """Return the errors of the source partitions that failed in the last plan, or else in the last results."""
        files = self._files()
        last = [next((file for file in files if file[0].suffix == kind), None) for kind in (".parquet", ".json")]
        if last != self._failures_of:
            self._failures_of, self._failures = last, {}
            for path, time_ms in filter(None, last):
                for tp, error in _outcomes_in(path).items():
                    self._failures.pop(tp, None)
                    if error is not None:
                        self._failures[tp] = LastError(error, time_ms)
        return self._failures

    def _targets(self, name: str) -> tuple[str, TargetTopics] | None:
        try:
            last = max(run for run in self._folder.iterdir() if run.is_dir())
            return last.name, TargetTopics.from_json(json.loads((last / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _files(self) -> list[tuple[Path, int]]:
        """Return the last results and plans with their modification times in ms, the newest first."""
        try:
            runs = sorted((run for run in self._folder.iterdir() if run.is_dir()), reverse=True)
            found: list[tuple[Path, int]] = []
            for run in runs:
                paths = (path for pattern in ("results-*.parquet", "plan-*.json") for path in run.glob(pattern))
                found += sorted(((path, path.stat().st_mtime_ns // 1_000_000) for path in paths), key=_age)[:_MAX_FILES]
                if len(found) >= _MAX_FILES:
                    break
        except OSError:
            return []  # There is no ledger, or a run was removed just now.
        return found[:_MAX_FILES]


class _LastResults(Generic[K]):
    """What one function reads of the last results; it is kept until there are newer ones."""

    def __init__(self, read: Callable[[Path], dict[K, str]]) -> None:
        self._read: Final = read
        self._file: tuple[Path, int] | None = None
        self._found: dict[K, str] = {}

    def among(self, files: list[tuple[Path, int]]) -> dict[K, str]:
        """Return what the first results of ``files`` have, which are the newest; nothing if there are none."""
        last = next((file for file in files if file[0].suffix == ".parquet"), None)
        if last is None:
            return {}
        if self._file != last:
            self._file, self._found = last, self._read(last[0])
        return self._found


def _age(file: tuple[Path, int]) -> int:
    return -file[1]


def _errors_in(path: Path, time_ms: int) -> dict[TopicPartition, LastError]:
    """Return the errors in one file, by source partition; none if it cannot be read."""
    try:
        rows = list(_failed_results(path) if path.suffix == ".parquet" else _results_in_plan(path))
        return {
            TopicPartition(row["topic"], row["partition"]): last
            for row in rows
            if (last := last_error(row["error"], row["expiries"], time_ms)) is not None
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _way_reasons_in(path: Path) -> dict[tuple[TopicPartition, str], str]:
    """Return the reasons in one file of results; none if it cannot be read, or is older than they are."""
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["topic", "partition", "attempt", "way", "way_reason"]).to_pylist()
    except (OSError, ValueError):
        return {}
    rows.sort(key=lambda row: int(row["attempt"]))
    return {(TopicPartition(row["topic"], row["partition"]), row["way"]): row["way_reason"] for row in rows}


def _target_losses_in(path: Path) -> dict[TopicPartition, str]:
    """Return the last loss of each partition in one file of results; none if it cannot be read, or has none."""
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["topic", "partition", "target_losses"]).to_pylist()
        losses = {TopicPartition(row["topic"], row["partition"]): json.loads(row["target_losses"]) for row in rows}
    except (OSError, ValueError, TypeError):
        return {}
    return {tp: loss_text(found[-1]) for tp, found in losses.items() if found}


def _differences_in(path: Path) -> dict[TopicPartition, str]:
    """Return the differences of each partition in one file of results; none if it cannot be read, or has none."""
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["topic", "partition", "read_back"]).to_pylist()
        found = {TopicPartition(row["topic"], row["partition"]): json.loads(row["read_back"] or "null") for row in rows}
    except (OSError, ValueError, TypeError):
        return {}
    return {tp: differences_text(read_back) for tp, read_back in found.items() if difference_count(read_back)}


def _outcomes_in(path: Path) -> dict[TopicPartition, str | None]:
    """Return the error of each partition that failed, None of the others in the file; none if it cannot be read."""
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            rows = pq.read_table(path, columns=["topic", "partition", "attempt", "outcome", "error"]).to_pylist()
            rows.sort(key=lambda row: int(row["attempt"]))
        else:
            rows = list(_results_in_plan(path))
        return {
            TopicPartition(row["topic"], row["partition"]): row["error"] if row["outcome"] == Outcome.FAILED else None
            for row in rows
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _failed_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that have an error or an expiry. pyarrow is imported here: without a ledger it is not needed."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    failed = pc.field("error").is_valid() | (pc.field("expiries") != "[]")
    for row in pq.read_table(path, columns=list(_COLUMNS), filters=failed).to_pylist():
        yield {**row, "expiries": json.loads(row["expiries"])}


def _results_in_plan(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the results that a plan has for partitions without a task."""
    yield from json.loads(path.read_text(encoding="utf-8"))["settled"]


def last_error(error: str | None, expiries: list[dict[str, Any]], time_ms: int) -> LastError | None:
    """Return the last error of a result that was recorded at ``time_ms`` (since 1970); None if it had none."""
    last = max(expiries, key=lambda expiry: int(expiry["time_ms"]), default=None)
    if last is None:
        return None if error is None else LastError(error, time_ms)
    # If the copy did not recover from the expiry, `error` describes it in full.
    cause = f": {last['last_error']}" if last.get("last_error") else ""
    line = error or f"expired ({last['phase']}, {last['cause']}){cause}"
    return LastError(line, int(last["time_ms"]))
