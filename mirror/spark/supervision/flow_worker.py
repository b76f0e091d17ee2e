"""The thread of one supervised flow: it runs one stream of the flow at a time, and polls what a waiting flow awaits."""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from mirror.spark.supervision.states import Event, JobEnded, Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[["FlowWorker", Event, bool], None]

IDLE_S: Final = 2.0
"""How often a flow that does not run polls: ``mirror stop`` waits for its answer."""


class Stream(Protocol):
    """One start of a flow."""

    def run(self, announce: Callable[[Event], None]) -> Event:
        """Copy until the end, and return why it came; ``announce`` is called in the same thread meanwhile."""

    def stop(self) -> None:
        """Have :meth:`run` end in order. From another thread."""

    def cancel(self) -> None:
        """Have :meth:`run` end at once. From another thread."""


class FlowWorker:
    """Each event goes to ``post`` with the worker, and with whether it comes from ``idle``."""

    def __init__(
        self,
        flow: str,
        post: Post,
        idle: Callable[[], Event | None],
        event_of: Callable[[BaseException], Event],
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        """``idle`` is called in the thread every ``idle_s`` seconds while no stream runs.

        ``event_of`` returns the event that an exception of a stream, or of its opening, is.
        """
        self._post: Final = post
        self._idle: Final = idle
        self._idle_s: Final = idle_s
        self._event_of: Final = event_of
        self._lock: Final = threading.Lock()
        self._inbox: Final[queue.SimpleQueue[Callable[[], Stream] | None]] = queue.SimpleQueue()
        self._last: Callable[[], object] = bool
        self._stream: Stream | None = None
        self._is_opening = False
        self._is_abandoned = False
        # A daemon: the end of the process must not wait for a cluster.
        self._thread: Final = threading.Thread(target=self._repeat, name=f"mirror-flow-{flow}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def run(self, open_stream: Callable[[], Stream]) -> None:
        """Open a stream and run it. Its end is an event."""
        with self._lock:
            self._is_opening = True
        self._inbox.put(open_stream)

    def stop(self, *, at_once: bool = False) -> bool:
        """Have the stream end; return False if none has been opened yet: what is opened then is not run."""
        with self._lock:
            stream, self._is_abandoned = self._stream, self._is_opening
        if stream is not None:
            stream.cancel() if at_once else stream.stop()
        return not self._is_abandoned

    def close(self, last: Callable[[], object] = bool) -> None:
        """Have the thread call ``last`` and end, once it is idle."""
        self._last = last
        self._inbox.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    def _repeat(self) -> None:
        while True:
            try:
                open_stream = self._inbox.get(timeout=self._idle_s)
            except queue.Empty:
                if (event := self._guarded(self._idle)) is not None:
                    self._post(self, event, True)
                continue
            if open_stream is None:
                self._guarded(self._last)
                return
            self._post(self, self._guarded(partial(self._run, open_stream)) or Lost("its stream ended"), False)

    def _guarded(self, call: Callable[[], object]) -> Event | None:
        """Return the event that ``call`` returns, or that its exception is: the thread must not end unnoticed."""
        try:
            found = call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor reports it
            return self._event_of(error)
        return found if isinstance(found, Event) else None

    def _run(self, open_stream: Callable[[], Stream]) -> Event:
        try:
            stream = open_stream()
            with self._lock:
                self._is_opening = False
                if self._is_abandoned:
                    return JobEnded("in order")
                self._stream = stream
            return stream.run(lambda event: self._post(self, event, False))
        finally:
            with self._lock:
                self._stream, self._is_opening = None, False
