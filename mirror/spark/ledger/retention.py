"""Bounds what a report folder holds."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAX_LEDGER_BYTES: Final = 1024**3
"""All flows and runs together. A period of 10,000 partitions takes megabytes, and each flow may keep 2,000 of them."""
MAX_LOG_BYTES: Final = 64 * 1024**2
_KEPT: Final = 2
"""The last periods of a run that goes on: their measurements are still to be read."""
_FRESH_NS: Final = 86_400 * 10**9
"""A run that has written nothing for so long has ended."""


def bound_folder(report_dir: Path, *, ledger_bytes: int = MAX_LEDGER_BYTES, log_bytes: int = MAX_LOG_BYTES) -> None:
    """Remove the oldest periods until the ledger has ``ledger_bytes`` at most, and the first half of a longer log.

    Ignores OSError: another process may remove the same file or folder, and a stream goes on without its report folder.
    """
    with contextlib.suppress(OSError):
        _bound_ledger(report_dir / "ledger", ledger_bytes)
    with contextlib.suppress(OSError):
        _shorten(report_dir / "spark.log", log_bytes)


def _bound_ledger(ledger: Path, most: int) -> None:
    files = [path for path in ledger.glob("*/*/*") if path.is_file()]
    excess = sum(map(_size, files)) - most
    for path in sorted(_removable(files, time.time_ns()), key=_modified_ns):
        if excess <= 0:
            break
        excess -= _size(path)
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()  # if it was the last one of its run


def _removable(files: Iterable[Path], now_ns: int) -> Iterator[Path]:
    """Yield all files but those of the last periods of the newest run of each flow, if that still writes."""
    runs: dict[Path, dict[str, dict[str, list[Path]]]] = {}
    for path in files:
        number = path.name.partition(".")[0].rpartition("-")[2]
        of_flow = runs.setdefault(path.parents[1], {})
        of_flow.setdefault(path.parent.name, {}).setdefault(number, []).append(path)
    for of_flow in runs.values():
        newest = max(of_flow)
        for name, periods in of_flow.items():
            kept = sorted(periods)[-_KEPT:] if name == newest else []
            for number, found in periods.items():
                is_fresh = max(map(_modified_ns, found)) > now_ns - _FRESH_NS
                if number not in kept or not is_fresh:
                    yield from found


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
