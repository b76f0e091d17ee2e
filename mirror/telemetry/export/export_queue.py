"""A bounded queue that a thread of its own exports, so that a copy never waits for a telemetry backend.

OpenTelemetry's own BatchSpanProcessor waits in ``force_flush`` for as long as the exporter takes, and does not count
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


# Invariant: A backend that hangs delays the end of a task briefly and costs bounded memory; what is dropped is counted.
# Test: tests/telemetry/test_export.py::test_hanging_backend_delays_the_end_of_a_task_briefly
class ExportQueue(Generic[T]):
    """Passes items to ``export`` in batches, from its own thread.

    ``export`` returns whether the backend accepted the batch; it may block, and it may raise. ``dropped`` counts the
    items that were not exported: the queue was full, the backend refused them, or the timeout of the last flush passed.
    Create it after a fork, because a fork does not copy the thread.
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
        self._exporting = 0
        self._closing = self._flushing = self._failing = False
        self._changed: Final = threading.Condition()
        self._thread: Final = threading.Thread(target=self._run, name=f"mirror-{name}", daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Queue an item and return immediately.

        If the queue is full, drop the new item: the oldest spans show how the problem began.
        """
        with self._changed:
            if self._closing or len(self._queue) >= self._queue_size:
                self.dropped += 1
                return
            self._queue.append(item)
            if len(self._queue) in {1, self._batch_size}:
                self._changed.notify_all()

    def flush(self, timeout_ms: int, *, patient: bool = False) -> bool:
        """Export everything queued now; return whether the backend accepted all of it within ``timeout_ms``.

        This does not wait for a backend that refused the last batch, unless it is ``patient``.
        """

        def is_given_up() -> bool:
            return self._failing and not patient

        with self._changed:
            if is_given_up():
                return False
            self._flushing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: is_given_up() or self._empty, timeout_ms / 1000)
            self._flushing = False
            return self._empty and not self._failing

    @property
    def _empty(self) -> bool:
        return not self._queue and not self._exporting

    def close(self, timeout_ms: int, *, patient: bool = False) -> None:
        """Flush, then drop what is left."""
        self.flush(timeout_ms, patient=patient)
        with self._changed:
            self._closing = True
            self.dropped += len(self._queue)
            self._queue.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            accepted = self._try(batch)
            with self._changed:
                self._exporting = 0
                self._failing = not accepted
                self.dropped += 0 if accepted else len(batch)
                self._changed.notify_all()

    def _next(self) -> list[T] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(self._is_due, self._delay_s)
            if self._closing:
                return None
            batch = [self._queue.popleft() for _ in range(min(self._batch_size, len(self._queue)))]
            self._exporting = len(batch)
            return batch

    def _is_due(self) -> bool:
        return self._closing or self._flushing or len(self._queue) >= self._batch_size

    def _try(self, batch: Sequence[T]) -> bool:
        try:
            return self._export(batch)
        except Exception as error:  # noqa: BLE001 - a failing backend must not end a copy
            _log.debug("%s: not exported: %s", self._name, error)
            return False
