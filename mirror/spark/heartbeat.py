"""The heartbeat of a run: other runs and ``mirror status`` see by it that the run is alive."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Self

from mirror.errors import KafkaError
from mirror.relay.progress.control import HEARTBEAT_INTERVAL_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mirror.spark.run_control import RunControlClient

_log: Final = logging.getLogger(__name__)

_JOIN_S: Final = 2.0


class Heartbeat:
    """Renews the run's control record every :data:`HEARTBEAT_INTERVAL_MS` while the block runs, in a thread of its own.

    What another process has overwritten in the record is committed again then. If the target does not answer, the
    next renewal tries again: without backoff, because others take a run for dead whose heartbeats are late.
    """

    def __init__(
        self,
        control: RunControlClient,
        *,
        every_ms: int = HEARTBEAT_INTERVAL_MS,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """``then`` is called in the thread after each renewal."""
        self._control: Final = control
        self._then: Final = then
        self._every_s: Final = every_ms / 1000
        self._stopped: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="mirror-sign-of-life", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop renewing."""
        self._stopped.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._control.sync()
                self._then()
            except KafkaError:
                pass
            except Exception:  # noqa: BLE001 - without this thread other runs would take this one for ended
                _log.exception("the run's control record was not renewed")
