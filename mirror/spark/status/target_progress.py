"""Reads the progress on the target once, at the end of a run whose tasks did not all answer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.relay.progress.committed import read_progress
from mirror.spark.ledger.unanswered import TargetProgress, target_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.relay.model.ranges import Range

TIMEOUT_S: Final = 6.0
"""How long reading takes at most. A run that a signal ends has 20 s for all of its end."""
_CALL_TIMEOUT_MS: Final = 4_000
_REREAD_DELAY_S: Final = 0.3
"""The pause between two readings: the tasks of a run that is being ended may commit once more."""


def read_target_progress(
    options: Mapping[str, object], flow: str, ranges: Sequence[Range], *, timeout_s: float = TIMEOUT_S
) -> TargetProgress:
    """Read the progress of these ranges of a flow, with a client that has the target's ``options``.

    It is read until two readings agree. Returns within ``timeout_s`` seconds and raises nothing: if the target does
    not answer, the result has the error.
    """
    if not ranges:
        return TargetProgress()
    found = list[TargetProgress]()
    until_s = time.monotonic() + timeout_s
    # The thread is a daemon: neither this call nor the end of the process may wait for an unreachable target.
    arguments = (options, flow, ranges, until_s, found)
    thread = threading.Thread(target=_read, args=arguments, name=f"mirror-progress-{flow}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[-1] if found else TargetProgress(error=f"no answer within {timeout_s:g} s")


def _read(
    options: Mapping[str, object], flow: str, ranges: Sequence[Range], until_s: float, found: list[TargetProgress]
) -> None:
    targets = {target_partition(range_) for range_ in ranges}
    try:
        with Admin({**options, "default.api.timeout.ms": _CALL_TIMEOUT_MS}) as admin:
            while time.monotonic() < until_s:
                found.append(TargetProgress(read_progress(admin, flow, targets)))
                if len(found) > 1 and found[-1] == found[-2]:
                    return
                time.sleep(_REREAD_DELAY_S)
    except Exception as error:  # noqa: BLE001 - the result has it: raised in a thread, it would be lost
        if not found:
            found.append(TargetProgress(error=" ".join(str(error).split())))
