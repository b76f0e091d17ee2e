"""The queue in front of a backend never blocks its callers."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mirror.telemetry.export.export_queue import ExportQueue
from tests.polling import eventually

NEVER_MS = 3_600_000


class FakeBackend:
    """Accepts batches while it is allowed to."""

    def __init__(self) -> None:
        self.accepted: list[list[int]] = []
        self.allowed = threading.Event()
        self.allowed.set()
        self.called = threading.Event()
        self.refuses = self.raises = False

    def export(self, batch: Sequence[int]) -> bool:
        self.called.set()
        assert self.allowed.wait(30)
        if self.raises:
            raise OSError("no route")
        if self.refuses:
            return False
        self.accepted.append(list(batch))
        return True


def queue_to(backend: FakeBackend, **more: int) -> ExportQueue[int]:
    values = {"queue_size": 10, "batch_size": 3, "delay_ms": NEVER_MS, **more}
    return ExportQueue("test", backend.export, **values)


def test_full_batch_is_exported_immediately() -> None:
    backend = FakeBackend()
    queue = queue_to(backend)
    for number in range(3):
        queue.put(number)
    eventually(lambda: backend.accepted == [[0, 1, 2]])
    assert queue.dropped == 0
    queue.close(1_000)


def test_queued_items_are_exported_after_the_delay() -> None:
    backend = FakeBackend()
    queue = queue_to(backend, delay_ms=10)
    queue.put(1)
    eventually(lambda: backend.accepted == [[1]])
    queue.close(1_000)


def test_flush_exports_all_and_returns_true() -> None:
    backend = FakeBackend()
    queue = queue_to(backend)
    assert queue.flush(1_000), "there is nothing to wait for"
    for number in range(5):
        queue.put(number)
    assert queue.flush(10_000)
    assert [number for batch in backend.accepted for number in batch] == [0, 1, 2, 3, 4]
    queue.close(1_000)


def test_hanging_backend_blocks_no_caller_and_dropped_items_are_counted() -> None:
    backend = FakeBackend()
    backend.allowed.clear()
    queue = queue_to(backend)
    for number in range(3):
        queue.put(number)
    assert backend.called.wait(30)
    for number in range(12):
        queue.put(number)
    assert queue.dropped == 2, "ten may wait"
    assert not queue.flush(1)
    queue.close(1)
    assert queue.dropped == 12
    backend.allowed.set()


def test_flush_does_not_wait_for_a_refusing_backend() -> None:
    backend = FakeBackend()
    backend.refuses = True
    queue = queue_to(backend)
    queue.put(1)
    assert not queue.flush(60_000)
    assert queue.dropped == 1
    assert not queue.flush(60_000), "at once: the last batch was not taken, either"
    backend.refuses, backend.raises = False, True
    for number in range(3):
        queue.put(number)
    eventually(lambda: queue.dropped == 4, what="a backend that raises")
    backend.raises = False
    for number in range(3):
        queue.put(number)
    eventually(lambda: backend.accepted == [[0, 1, 2]], what="it is back")
    assert queue.flush(1_000)
    queue.close(1_000)


def test_closed_queue_accepts_nothing() -> None:
    backend = FakeBackend()
    queue = queue_to(backend)
    queue.close(1_000)
    queue.put(1)
    assert (queue.dropped, backend.accepted) == (1, [])
