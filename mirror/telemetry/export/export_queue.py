"""A bounded queue with a thread behind it: what goes to a backend never waits for one, whatever the backend does.

OpenTelemetry's own BatchSpanProcessor waits in ``force_flush`` for as long as the exporter takes, and does not tell
what it dropped (opentelemetry-python #4568, #4555).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


class ExportQueue(Generic[T]):
    """Hands what it is given to ``export``, in batches, from a thread of its own.

    ``export`` says whether the backend has taken a batch; it may wait, and raise. ``dropped`` counts what did not get
    there: the queue was full, the backend refused, or the time at the end was up. Start it after a fork only.
    """

    def __init__(
        self, name: str, export: Callable[[Sequence[T]], bool], *, queue_size: int, batch_size: int, delay_ms: int
    ) -> None:
        self.dropped = 0
        self._name: Final = name
        self._export: Final = export
        self._queue_size: Final = queue_size
        self._batch_size: Final = batch_size
        self._delay_s: Final = delay_ms / 1000
        self._queue: deque[T] = deque()
        self._under_way = 0
        self._closing = self._in_a_hurry = self._failing = False
        self._changed: Final = threading.Condition()
        self._thread: Final = threading.Thread(target=self._run, name=f"mirror-{name}", daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Returns at once. What comes last is dropped where there is no room: what is there tells how it began."""
        with self._changed:
            if self._closing or len(self._queue) >= self._queue_size:
                self.dropped += 1
                return
            self._queue.append(item)
            if len(self._queue) in {1, self._batch_size}:
                self._changed.notify_all()

    def flush(self, timeout_ms: int) -> bool:
        """Have all that is queued exported now; whether that was done within ``timeout_ms``.

        A backend that did not take the last batch is not waited for.
        """
        with self._changed:
            if self._failing:
                return False
            self._in_a_hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failing or self._empty, timeout_ms / 1000)
            self._in_a_hurry = False
            return self._empty and not self._failing

    @property
    def _empty(self) -> bool:
        return not self._queue and not self._under_way

    def close(self, timeout_ms: int) -> None:
        """Flush, and let go of what is left by then."""
        self.flush(timeout_ms)
        with self._changed:
            self._closing = True
            self.dropped += len(self._queue)
            self._queue.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            taken = self._try(batch)
            with self._changed:
                self._under_way = 0
                self._failing = not taken
                self.dropped += 0 if taken else len(batch)
                self._changed.notify_all()

    def _next(self) -> list[T] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(self._is_due, self._delay_s)
            if self._closing:
                return None
            batch = [self._queue.popleft() for _ in range(min(self._batch_size, len(self._queue)))]
            self._under_way = len(batch)
            return batch

    def _is_due(self) -> bool:
        return self._closing or self._in_a_hurry or len(self._queue) >= self._batch_size

    def _try(self, batch: Sequence[T]) -> bool:
        try:
            return self._export(batch)
        except Exception as error:  # noqa: BLE001 - a backend's trouble is no reason for a copy to end
            _log.debug("%s: not exported: %s", self._name, error)
            return False
