"""Bounds what a report folder holds, and says while it cannot be written."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mirror.spark.ledger.ledger import Ledger

MAX_LEDGER_BYTES: Final = 1024**3
"""All flows and runs together. An epoch of 10,000 partitions takes megabytes, and each flow may keep 2,000 of them."""
MAX_LOG_BYTES: Final = 64 * 1024**2
_EPOCHS: Final = ("plan-", "results-", "task-reports-")
_KEPT: Final = 2
"""The last epochs of a run, which the plan of the next one reads."""
CHECK_INTERVAL_S: Final = 10.0
BOUND_INTERVAL_S: Final = 60.0


def bound_folder(report_dir: Path, *, ledger_bytes: int = MAX_LEDGER_BYTES, log_bytes: int = MAX_LOG_BYTES) -> None:
    """Remove the oldest epochs until the ledger has ``ledger_bytes`` at most, and the first half of a longer log.

    Ignores OSError: another process may remove the same file.
    """
    files = [path for path in (report_dir / "ledger").glob("*/*/*") if path.is_file()]
    excess = sum(map(_size, files)) - ledger_bytes
    for path in sorted(_removable(files), key=_modified_ns):
        if excess <= 0:
            break
        excess -= _size(path)
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        _shorten(report_dir / "spark.log", log_bytes)


def _removable(files: Iterable[Path]) -> Iterator[Path]:
    epochs: dict[Path, dict[str, list[Path]]] = {}
    for path in files:
        if path.name.startswith(_EPOCHS):
            number = path.stem.rpartition("-")[2]
            epochs.setdefault(path.parent, {}).setdefault(number, []).append(path)
    for by_number in epochs.values():
        for number in sorted(by_number)[:-_KEPT]:
            yield from by_number[number]


def _shorten(log: Path, most: int) -> None:
    """Keep the second half of a log of more than ``most`` bytes. Its writers append, so they continue at its end."""
    if log.stat().st_size <= most:
        return
    with log.open("r+b") as file:
        file.seek(-most // 2, os.SEEK_END)
        kept = file.read()
        file.truncate(0)
        file.seek(0)
        file.write(kept[kept.find(b"\n") + 1 :])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class FolderCheck:
    """Checks a stream's report folder now and then: copying goes on without it, and is not recorded meanwhile."""

    def __init__(self, report_dir: Path, warn: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self.why_not: str | None = None
        """Why it cannot be written; None if it can."""
        self._dir: Final = report_dir
        self._warn: Final = warn
        self._tell: Final = tell
        self._check_s = self._bound_s = 0.0

    def check(self, ledgers: Iterable[Ledger], now_s: float) -> None:
        """Bound the folder and try to write to ``ledgers``, if it is time; ``now_s`` is monotonic."""
        if now_s >= self._bound_s:
            self._bound_s = now_s + BOUND_INTERVAL_S
            bound_folder(self._dir)
        if now_s < self._check_s:
            return
        self._check_s = now_s + CHECK_INTERVAL_S
        before, self.why_not = self.why_not, next(filter(None, (one.why_not_writable() for one in ledgers)), None)
        if self.why_not is not None and before is None:
            self._warn(
                f"the report folder {self._dir} cannot be written: {self.why_not}; copying goes on, and what is copied"
                " meanwhile is missing in reports and totals"
            )
        elif self.why_not is None and before is not None:
            self._tell(f"the report folder {self._dir} is written again")
