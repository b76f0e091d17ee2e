"""What the ledger last said against a partition: its errors and expiries. Reads only; nothing there says nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mirror.client import TopicPartition
from mirror.spark.ledger.atomic_write import TARGETS_FILE
from mirror.spark.ledger.obstacles import TargetTopics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_FILES: Final = 6
"""How many plans and results are read at most: an error of long ago explains nothing."""
_COLUMNS: Final = ("topic", "partition", "error", "expiries")


@dataclass(frozen=True, slots=True)
class LastError:
    """One line, and when it was (ms since 1970): an expiry's own time, else that of the epoch's end."""

    line: str
    time_ms: int


class LastErrors:
    """Of one flow, from its ledger in ``report_dir``, which may be missing. Files that were read are remembered."""

    def __init__(self, report_dir: Path, flow: str) -> None:
        self._folder: Final = report_dir / "ledger" / flow
        self._read: dict[tuple[Path, int], dict[TopicPartition, LastError]] = {}

    def of(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, LastError]:
        """The last one of each of these source partitions that had one lately."""
        found: dict[TopicPartition, LastError] = {}
        files = self._files() if wanted else []
        self._read = {file: self._read[file] if file in self._read else _troubles(*file) for file in files}
        for file in files:
            for tp in wanted:
                trouble = self._read[file].get(tp)
                if trouble is not None and tp not in found:
                    found[tp] = trouble
        return found

    def targets(self) -> TargetTopics | None:
        """What the last run's preparation of the target's topics came to, where it left that."""
        try:
            last = max(run for run in self._folder.iterdir() if run.is_dir())
            return TargetTopics.from_json(json.loads((last / TARGETS_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _files(self) -> list[tuple[Path, int]]:
        """The last results and plans with their times of writing in ms, the newest first."""
        try:
            runs = sorted((run for run in self._folder.iterdir() if run.is_dir()), reverse=True)
            found: list[tuple[Path, int]] = []
            for run in runs:
                paths = (path for pattern in ("results-*.parquet", "plan-*.json") for path in run.glob(pattern))
                found += sorted(((path, path.stat().st_mtime_ns // 1_000_000) for path in paths), key=_age)[:_FILES]
                if len(found) >= _FILES:
                    break
        except OSError:
            return []  # not there, or a run was removed just now
        return found[:_FILES]


def _age(file: tuple[Path, int]) -> int:
    return -file[1]


def _troubles(path: Path, time_ms: int) -> dict[TopicPartition, LastError]:
    """What one file says; one that cannot be read tells nothing."""
    try:
        rows = list(_results(path) if path.suffix == ".parquet" else _settled(path))
        return {
            TopicPartition(row["topic"], row["partition"]): trouble
            for row in rows
            if (trouble := _trouble(row["error"], row["expiries"], time_ms)) is not None
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _results(path: Path) -> Iterator[dict[str, Any]]:
    """The rows that tell of an error or an expiry; who has no ledger does not wait for pyarrow."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    sick = pc.field("error").is_valid() | (pc.field("expiries") != "[]")
    for row in pq.read_table(path, columns=list(_COLUMNS), filters=sick).to_pylist():
        yield {**row, "expiries": json.loads(row["expiries"])}


def _settled(path: Path) -> Iterator[dict[str, Any]]:
    """What needed no task, since it could not be copied."""
    yield from json.loads(path.read_text(encoding="utf-8"))["settled"]


def _trouble(error: str | None, expiries: list[dict[str, Any]], time_ms: int) -> LastError | None:
    last = max(expiries, key=lambda each: int(each["time_ms"]), default=None)
    if last is None:
        return None if error is None else LastError(error, time_ms)
    # An expiry's own error says all of it; one that was recovered from is told of by its values.
    why = f": {last['last_error']}" if last.get("last_error") else ""
    line = error or f"expired ({last['phase']}, {last['cause']}){why}"
    return LastError(line, int(last["time_ms"]))
