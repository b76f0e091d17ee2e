"""What goes on beside the copies ends at the same time."""

from __future__ import annotations

import threading
from typing import Self

import pytest

from mirror.errors import FlowHeld
from mirror.spark.driver.rounds.monitoring import monitoring


class Waiting:
    """Ends once all of them are to end, as if each waited for what the others wait for."""

    def __init__(self, all_end: threading.Barrier) -> None:
        self.ended_with: list[BaseException | None] = []
        self._all_end = all_end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()

    def end(self, error: BaseException | None) -> None:
        self.ended_with.append(error)
        self._over.set()

    def _run(self) -> None:
        assert self._over.wait(30)
        self._all_end.wait(20)


@pytest.mark.parametrize("error", [None, FlowHeld("held")])
def test_none_is_waited_for_before_all_are_to_end(error: FlowHeld | None) -> None:
    all_end = threading.Barrier(3)
    monitors = [Waiting(all_end) for _ in range(3)]

    def run() -> None:
        with monitoring(monitors):
            if error is not None:
                raise error

    if error is None:
        run()
    else:
        with pytest.raises(FlowHeld):
            run()
    assert [one.ended_with for one in monitors] == [[error]] * 3
    assert not all_end.broken
