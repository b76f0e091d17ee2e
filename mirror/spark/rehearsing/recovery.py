"""How long the copy of the rest would take: at rates that runs of the flow have recorded, never at a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.rehearsal.values import RecoveryTime
from mirror.spark.planning.history import bytes_per_second, overhead_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig


def recovery_time(flow: FlowConfig, ledger: Path, size_bytes: int | None, *, is_running: bool) -> RecoveryTime:
    """Return how long a run takes to copy ``size_bytes``; None if that is not known.

    ``ledger`` is the folder of all flows, which may be missing. Unless the flow ``is_running``, the time includes what
    a run needs to start, if earlier ones have recorded that.
    """
    measured = bytes_per_second(ledger / flow.name)
    if measured is None:
        return RecoveryTime()
    rate = min(measured, flow.max_bytes_per_second) if flow.max_bytes_per_second else measured
    start = None if is_running else overhead_seconds(ledger)
    seconds = None if size_bytes is None else size_bytes / rate + (start or 0.0 if size_bytes else 0.0)
    return RecoveryTime(seconds=seconds, bytes_per_second=rate, start_seconds=start)
