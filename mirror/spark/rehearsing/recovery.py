"""How long the copy of the rest would take: at the rate that runs of the flow have reported, never at a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.rehearsal.values import RecoveryTime
from mirror.spark.ledger.copy_rate import RUN_START_S

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.copy_rate import CopyRate


def recovery_time(
    flow: FlowConfig, measured: CopyRate | None, size_bytes: int | None, *, is_running: bool
) -> RecoveryTime:
    """Return how long a run takes to copy ``size_bytes``; None if that is not known.

    Unless the flow ``is_running``, the time includes what a run needs to start.
    """
    if measured is None:
        return RecoveryTime()
    rate = measured.bytes_per_second
    rate = min(rate, flow.max_bytes_per_second) if flow.max_bytes_per_second else rate
    start = None if is_running else RUN_START_S
    seconds = None if size_bytes is None else size_bytes / rate + (start or 0.0 if size_bytes else 0.0)
    return RecoveryTime(seconds=seconds, bytes_per_second=rate, start_seconds=start)
