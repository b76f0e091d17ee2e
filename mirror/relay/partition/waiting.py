"""What a copy waits for: one call at a time, and what its result says of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from mirror.relay.futures import as_mirror_error
from mirror.relay.model.timeline import CopyPhase

ENDED: Final = "the task ended before it was complete"
_AWAITED: Final = {
    CopyPhase.FENCING: "the target's transaction coordinator",
    CopyPhase.RESOLVING_PROGRESS: "the leader of the target partition",
    CopyPhase.FETCHING: "the source",
    CopyPhase.MEMORY: "room in buffer.memory",
    CopyPhase.PRODUCING: "the target's acknowledgements",
    CopyPhase.COMMITTING: "the end of its transaction",
    CopyPhase.CHECKING_SOURCE: "the source, to learn why it does not have what comes next",
}
"""What a copy waits for in a phase; the other phases wait for the copy itself."""
_TARGET_PHASES: Final = frozenset(
    {CopyPhase.FENCING, CopyPhase.RESOLVING_PROGRESS, CopyPhase.MEMORY, CopyPhase.PRODUCING, CopyPhase.COMMITTING}
)
"""The phases in which a copy waits for the target."""


def awaited_text(phase: CopyPhase, no_leader_reason: str) -> str:
    """Return what a copy waits for in ``phase``, or ``''``; a target without leader is named as the reason."""
    reason = no_leader_reason if phase in _TARGET_PHASES else ""
    return f"it waited for {_AWAITED[phase]}{reason}" if phase in _AWAITED else ""


def unfinished(reason: str) -> str:
    """Return the error of a copy that was not complete at the end of its task; ``reason`` may be empty."""
    return f"{ENDED}: {reason}" if reason else ENDED


class PendingCall:
    """The only call whose result a copy waits for; a newer call replaces an older one, whose result is ignored."""

    def __init__(self, step_when_done: Callable[[Future[Any]], None]) -> None:
        self._step_when_done: Final = step_when_done
        self._future: Future[Any] | None = None

    def begin(self, future: Future[Any]) -> None:
        """Wait for ``future``, and have the copy stepped when it is done."""
        self._future = future
        self._step_when_done(future)

    def pop_done(self) -> Future[Any] | None:
        """Return the future once, when it is done; None before and afterwards."""
        future = self._future
        if future is None or not future.done():
            return None
        self._future = None
        return future


def result_of(future: Future[Any]) -> Any:
    """Return the result of ``future``. Raises MirrorError for any error: it ends this copy, and no other."""
    error = future.exception()
    if error is not None:
        raise as_mirror_error(error)
    return future.result()
