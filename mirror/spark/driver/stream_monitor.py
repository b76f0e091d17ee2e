"""What is repeated beside the copies of one flow, each in a thread."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from mirror.backoff import Backoff
from mirror.errors import MirrorError
from mirror.relay.progress.control import POLL_INTERVAL_MS
from mirror.runtime.clock import process_rng

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.driver.rounds.outages import Outages

    Work = Callable[[threading.Event], None]

_JOIN_S: Final = 5.0
"""How long the end of a stream waits for the threads: one may be waiting for a cluster that does not answer."""
_MAX_BACKOFF_MS: Final = 30_000
"""Work on topics that fails each time is tried this often: a listing of all topics is not free for the brokers."""


@dataclass(slots=True)
class _Task:
    """What one thread does until the end."""

    subject: str
    """What it does, for people."""
    run: Callable[[], None]
    backoff: Backoff
    failures: int = 0
    """How often it has failed in a row."""
    reported: str = ""
    """The last error, until it succeeds."""

    def succeed(self) -> None:
        """Have the next failure count as the first, and its error be reported."""
        self.reported, self.failures = "", 0


class StreamMonitor:
    """Threads for one flow."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        warn: Callable[[str], None],
        *,
        others: Mapping[str, Work] = MappingProxyType({}),
        outages: Outages | None = None,
    ) -> None:
        """``others`` is what is repeated until the event that it waits for, each in a thread, by its subject.

        ``warn`` is called from all threads.
        """
        self._config: Final = config
        self._flow: Final = flow
        self._warn: Final = warn
        self._outages: Final = outages
        self._ended: Final = threading.Event()
        rng = process_rng()
        self._tasks: Final = [
            *(
                _Task(subject, partial(self._work, work), Backoff(POLL_INTERVAL_MS, _MAX_BACKOFF_MS, rng))
                for subject, work in others.items()
            ),
        ]
        self._threads: Final = [
            threading.Thread(target=self._repeat, args=(task,), name=f"mirror-watch-{flow.name}", daemon=True)
            for task in self._tasks
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        until_s = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _repeat(self, task: _Task) -> None:
        """Run ``task`` until the end, after failures less and less often (KIP-580).

        An error is reported once, by whichever thread meets it first, until another one occurs or the task succeeds.
        """
        while not self._ended.is_set():
            try:
                task.run()
                self._succeeded(task)
            except Exception as error:  # noqa: BLE001 - without this thread nothing could end the stream in order
                line = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
                away = self._outages is not None and self._outages.failed(task.subject, error)
                if not away and line not in {each.reported for each in self._tasks}:
                    self._warn(line)
                task.reported = line
                task.failures += 1
                self._ended.wait(task.backoff.after(task.failures) / 1000)

    def _succeeded(self, task: _Task) -> None:
        task.succeed()
        if self._outages is not None:
            self._outages.recovered(task.subject)

    def _work(self, work: Work) -> None:
        work(self._ended)
