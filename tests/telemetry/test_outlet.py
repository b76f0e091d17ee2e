"""What goes to a backend waits for none."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mirror.telemetry.export.export_queue import ExportQueue
from tests.polling import eventually

NEVER_MS = 3_600_000


class Backend:
    """Takes batches when it may."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []
        self.may = threading.Event()
        self.may.set()
        self.asked = threading.Event()
        self.refuses = self.raises = False

    def export(self, batch: Sequence[int]) -> bool:
        self.asked.set()
        assert self.may.wait(30)
        if self.raises:
            raise OSError("no route")
        if self.refuses:
            return False
        self.taken.append(list(batch))
        return True


def outlet(backend: Backend, **more: int) -> ExportQueue[int]:
    values = {"queue_size": 10, "batch_size": 3, "delay_ms": NEVER_MS, **more}
    return ExportQueue("test", backend.export, **values)


def test_a_full_batch_goes_out_by_itself() -> None:
    backend = Backend()
    one = outlet(backend)
    for number in range(3):
        one.put(number)
    eventually(lambda: backend.taken == [[0, 1, 2]])
    assert one.dropped == 0
    one.close(1_000)


def test_what_waits_goes_out_after_the_delay() -> None:
    backend = Backend()
    one = outlet(backend, delay_ms=10)
    one.put(1)
    eventually(lambda: backend.taken == [[1]])
    one.close(1_000)


def test_a_flush_sends_all_and_says_so() -> None:
    backend = Backend()
    one = outlet(backend)
    assert one.flush(1_000), "there is nothing to wait for"
    for number in range(5):
        one.put(number)
    assert one.flush(10_000)
    assert [each for batch in backend.taken for each in batch] == [0, 1, 2, 3, 4]
    one.close(1_000)


def test_a_backend_that_hangs_holds_up_nobody_and_what_has_no_room_is_counted() -> None:
    backend = Backend()
    backend.may.clear()
    one = outlet(backend)
    for number in range(3):
        one.put(number)
    assert backend.asked.wait(30)
    for number in range(12):
        one.put(number)
    assert one.dropped == 2, "ten may wait"
    assert not one.flush(1)
    one.close(1)
    assert one.dropped == 12
    backend.may.set()


def test_a_backend_that_refuses_is_not_waited_for() -> None:
    backend = Backend()
    backend.refuses = True
    one = outlet(backend)
    one.put(1)
    assert not one.flush(60_000)
    assert one.dropped == 1
    assert not one.flush(60_000), "at once: the last batch was not taken, either"
    backend.refuses, backend.raises = False, True
    for number in range(3):
        one.put(number)
    eventually(lambda: one.dropped == 4, what="a backend that raises")
    backend.raises = False
    for number in range(3):
        one.put(number)
    eventually(lambda: backend.taken == [[0, 1, 2]], what="it is back")
    assert one.flush(1_000)
    one.close(1_000)


def test_after_the_end_nothing_is_taken() -> None:
    backend = Backend()
    one = outlet(backend)
    one.close(1_000)
    one.put(1)
    assert (one.dropped, backend.taken) == (1, [])
