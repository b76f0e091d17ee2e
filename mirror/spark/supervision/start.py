"""One start of a supervised flow: a thread that checks the flow, opens a stream of it, and runs that to its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from mirror.spark.supervision.flow_states import Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.spark.supervision.flow_states import Event


class SupervisedStream(Protocol):
    """What copies a flow, once."""

    def run(self, announce: Callable[[Event], None]) -> Event:
        """Copy until the end, and return why it came; ``announce`` is called in the same thread meanwhile."""

    def stop(self) -> None:
        """Have :meth:`run` end in order. From another thread."""

    def cancel(self) -> None:
        """Have :meth:`run` end at once. From another thread."""


class Start:
    """There is one object for each start: what a late thread posts or opens counts only while its start is the last."""

    def __init__(
        self,
        flow: str,
        open_stream: Callable[[], SupervisedStream],
        use: Callable[[SupervisedStream], None],
        event_of: Callable[[BaseException], Event],
        post: Callable[[Start, Event], None],
    ) -> None:
        """``use`` gets what ``open_stream`` has opened, before it runs.

        Each event goes to ``post``, the last one is the end; ``event_of`` returns the event that an exception is.
        """
        self._open_stream: Final = open_stream
        self._use: Final = use
        self._event_of: Final = event_of
        self._post: Final = post
        self._lock: Final = threading.Lock()
        self._stream: SupervisedStream | None = None
        self._is_abandoned = False
        # A daemon: the end of the process must not wait for a cluster.
        self.thread: Final = threading.Thread(target=self._run, name=f"mirror-flow-{flow}", daemon=True)
        self.thread.start()

    def stop(self, *, at_once: bool = False) -> bool:
        """Have the stream end; return False if none has been opened yet: what is opened then is not run."""
        with self._lock:
            self._is_abandoned = self._stream is None
        if self._stream is not None:
            self._stream.cancel() if at_once else self._stream.stop()
        return not self._is_abandoned

    def _run(self) -> None:
        event: Event = Lost("its thread has ended")
        try:
            stream = self._open_stream()
            with self._lock:
                if self._is_abandoned:
                    return
                self._stream = stream
                self._use(stream)
            event = stream.run(lambda event: self._post(self, event))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor reports it
            if not self._is_abandoned:
                event = self._event_of(error)
        finally:
            self._post(self, event)
