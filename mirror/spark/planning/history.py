"""How fast earlier runs on this host copied, for forecasts, as far as the ledger has them."""

from __future__ import annotations

import contextlib
import statistics
from typing import TYPE_CHECKING

from mirror.spark.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path


def bytes_per_second(flow_folder: Path) -> float | None:
    """Return the rate at which the ledger's runs copied, over all partitions; None if they copied nothing.

    A run's time is that of its longest copy, since its tasks run in parallel. Of a stream, what it has caught up with
    counts.
    """
    size = seconds = 0.0
    for ledger in _runs(flow_folder):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            caught_up = ledger.rate() or (0.0, 0.0)
            size, seconds = size + caught_up[0], seconds + caught_up[1]
        try:
            results = [attempt.result for attempt in ledger.attempts() if attempt.result.bytes > 0]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        size += sum(result.bytes for result in results)
        seconds += max((result.seconds for result in results), default=0.0)
    return size / seconds if size and seconds else None


def overhead_seconds(ledger: Path) -> float | None:
    """Return the median time that a run spends on anything but copying; None if no run recorded it.

    ``ledger`` is the folder of all flows. Only the first flow of a run waits for Spark, so the runs of all flows count.
    """
    found = []
    for folder in _folders(ledger):
        for run in _runs(folder):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                found.append(run.overhead())
    valid = [seconds for seconds in found if seconds is not None and 0 <= seconds < float("inf")]
    return statistics.median(valid) if valid else None


def _folders(ledger: Path) -> list[Path]:
    try:
        return [folder for folder in ledger.iterdir() if folder.is_dir()]
    except OSError:
        return []


def _runs(flow_folder: Path) -> list[Ledger]:
    try:
        return [Ledger(run) for run in sorted(flow_folder.iterdir()) if run.is_dir()]
    except OSError:
        return []
