"""Writes heartbeats to a flow's source, which the flow copies: they show MirrorMaker 2's users that it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Protocol, Self

from mirror.client import Producer
from mirror.closing import Closing
from mirror.errors import ClientClosed
from mirror.mirrormaker.names import HEARTBEATS
from mirror.mirrormaker.records import Heartbeat
from mirror.runtime.clock import SystemClock
from mirror.timing import Clock

INTERVAL_MS: Final = 1_000
"""As MirrorMaker 2's ``emit.heartbeats.interval.seconds``."""
_PARTITION: Final = 0
"""Readers read no other one."""
_MAX_BLOCK_MS: Final = 10_000
_JOIN_S: Final = 5.0
_SUBJECT: Final = "heartbeats"


class OutageReporter(Protocol):
    """Reports once, for all of a flow, that a cluster does not answer."""

    def failed(self, subject: str, error: BaseException) -> bool:
        """Note that ``subject`` has failed; return whether that is because a cluster is away, and is reported."""
        ...

    def recovered(self, subject: str) -> bool:
        """Note that ``subject`` has succeeded; return whether it has waited."""
        ...


class HeartbeatWriter(Closing):
    """Writes the heartbeats of one flow, one at a time."""

    def __init__(
        self, source_options: Mapping[str, object], *, source: str, target: str, clock: Clock | None = None
    ) -> None:
        """``source`` and ``target`` are the names of the flow's clusters, and ``source_options`` the source's keys.

        Raises ConfigError.
        """
        # The cluster where a heartbeat is written is its target: for MirrorMaker 2, that of the opposite direction.
        self._source, self._target = target, source
        self._clock: Final = clock or SystemClock()
        self._producer: Final = Producer({**source_options, "max.block.ms": _MAX_BLOCK_MS})

    def write(self) -> None:
        """Write a heartbeat, and wait for its acknowledgement. Raises KafkaError, ClientClosed after a close."""
        now_ms = self._clock.unix_ms()
        heartbeat = Heartbeat(self._source, self._target, now_ms)
        future = self._producer.send(
            HEARTBEATS, _PARTITION, key=heartbeat.key(), value=heartbeat.value(), timestamp_ms=now_ms
        )
        future.result()

    def close(self) -> None:
        """Close without waiting; a :meth:`write` that waits in another thread fails."""
        self._producer.close(timeout_ms=0)


class Heartbeats:
    """Writes a heartbeat every second while the block runs, in a thread of its own.

    If the source does not answer, there is none until it does. Failures have no backoff: a refused heartbeat is not
    repeated, and the next one costs the source no more than one that is written.
    """

    def __init__(
        self,
        writer: HeartbeatWriter,
        warn: Callable[[str], None],
        *,
        interval_ms: int = INTERVAL_MS,
        outages: OutageReporter | None = None,
    ) -> None:
        """``writer`` is closed at the end. ``warn`` is called from the thread, once for each new error.

        ``outages`` reports instead that the cluster does not answer.
        """
        self._outages: Final = outages
        self._writer: Final = writer
        self._warn: Final = warn
        self._interval_s: Final = interval_ms / 1000
        self._stopped: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="mirror-heartbeats", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end(error)
        self._writer.close()
        self._thread.join(_JOIN_S)

    def end(self, error: BaseException | None) -> None:
        """Have it end, which the end of the block waits for; ``error`` is what ends the block."""
        del error
        self._stopped.set()

    def _run(self) -> None:
        reported = ""
        while not self._stopped.is_set():
            try:
                self._writer.write()
                if self._outages is not None:
                    self._outages.recovered(_SUBJECT)
                reported = ""
            except ClientClosed:
                return
            except Exception as error:  # noqa: BLE001 - without this thread there would be no more heartbeats
                line = not_written(error)
                away = self._outages is not None and self._outages.failed(_SUBJECT, error)
                if not away and line != reported:
                    self._warn(line)
                reported = line
            self._stopped.wait(self._interval_s)


def not_written(error: Exception) -> str:
    """Return the line about a heartbeat that could not be written."""
    return f"no heartbeat could be written: {error}"
