"""A run says now and then that it goes on, so that others can tell it from one that has died."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, Self

from mirror.errors import KafkaError
from mirror.relay.progress.control import SEEN_EVERY_MS

if TYPE_CHECKING:
    from types import TracebackType

    from mirror.spark.run_control import RunControlClient

_JOIN_S: Final = 2.0


class Heartbeat:
    """While the block runs, ``orders`` of this run say every :data:`SEEN_EVERY_MS` that it goes on.

    In a thread of its own; a target that does not answer is asked again the next time.
    """

    def __init__(self, orders: RunControlClient, *, every_ms: int = SEEN_EVERY_MS) -> None:
        self._orders: Final = orders
        self._every_s: Final = every_ms / 1000
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._go_on, name="mirror-sign-of-life", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Say nothing more. Before the run says that it has ended: a renewal under way would take that back."""
        self._over.set()
        self._thread.join(_JOIN_S)

    def _go_on(self) -> None:
        while not self._over.wait(self._every_s):
            with contextlib.suppress(KafkaError):
                self._orders.renew()
