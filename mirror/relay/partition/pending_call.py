"""The one answer that a copy waits for."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from mirror.relay.futures import as_mirror_error

if TYPE_CHECKING:
    from mirror.relay.partition.context import CopyContext
    from mirror.relay.partition.machine import PartitionCopy


class PendingCall:
    """Has the copy stepped when it is there; what was awaited before, and is no more, is left to itself."""

    def __init__(self, site: CopyContext, copy: PartitionCopy) -> None:
        self._site: Final = site
        self._copy: Final = copy
        self._pending: Future[Any] | None = None

    def begin(self, future: Future[Any]) -> None:
        """Wait for this one."""
        self._pending = future
        self._site.watch(self._copy, future)

    def done(self) -> Future[Any] | None:
        """What was awaited, once it is done; handed out once."""
        future = self._pending
        if future is None or not future.done():
            return None
        self._pending = None
        return future


def result_of(future: Future[Any]) -> Any:
    """Raises MirrorError, whatever went wrong: it ends one copy, not its neighbours."""
    error = future.exception()
    if error is not None:
        raise as_mirror_error(error)
    return future.result()
