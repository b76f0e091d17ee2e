"""How a task reads back what its copies have committed, if the flow verifies it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mirror.relay.model.observer import TaskObserver
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.readback.reader import ReadBackObserver, TargetReadBack
from mirror.relay.task.writers import Clients

_GRACE_MS: Final = 10_000
"""How long the results wait at the end of the task for what is still to be read."""


def new_read_back(clients: Clients, policy: CopyPolicy, unix_ms: Callable[[], int]) -> TargetReadBack | None:
    """Return what reads the target back; None if the flow does not verify."""
    if clients.reading_back is None or policy.verify == "off":
        return None
    return TargetReadBack(
        clients.reading_back,
        policy.verify,
        exactly_once=policy.exactly_once,
        grace_ms=_GRACE_MS,
        bounds=clients.lookups.target_bounds,
        unix_ms=unix_ms,
    )


def read_back_observer(
    observer: TaskObserver, read_back: TargetReadBack | None, now: Callable[[], int]
) -> TaskObserver:
    """Return an observer that gets results once they are complete."""
    return observer if read_back is None else ReadBackObserver(observer, read_back, now)
