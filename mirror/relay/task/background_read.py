"""A read that waits for a cluster, while the task goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


class BackgroundRead(Generic[T]):
    """One call at a time, in a thread. Used on the task's thread."""

    def __init__(self, submit: Callable[..., Future[Any]], wake: Callable[[], None], failed: str) -> None:
        """``submit`` runs a call in a thread that may wait; ``wake`` is called once it is done.

        ``failed`` is logged with the error of a call that fails; once as long as it fails in the same way.
        """
        self._submit: Final = submit
        self._wake: Final = wake
        self._failed: Final = failed
        self._call: Future[T] | None = None
        self._reported = ""

    @property
    def in_progress(self) -> bool:
        """Whether a call has begun whose result was not taken."""
        return self._call is not None

    def begin(self, call: Callable[..., T], *arguments: Any) -> None:
        """Begin ``call``; it may raise MirrorError."""
        self._call = self._submit(call, *arguments)
        self._call.add_done_callback(lambda _: self._wake())

    def take(self) -> T | None:
        """Return the result, once; None before, and if the call has failed, which is logged."""
        call = self._call
        if call is None or not call.done():
            return None
        self._call = None
        if (error := call.exception()) is not None:
            if self._reported != str(error):
                _log.warning("%s: %s", self._failed, error)
            self._reported = str(error)
            return None
        self._reported = ""
        return call.result()
