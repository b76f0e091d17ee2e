"""Monitor one flow of a stream while its tasks copy: follow control commands."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from mirror.backoff import Backoff
from mirror.client import Admin
from mirror.errors import MirrorError
from mirror.relay.progress.control import POLL_INTERVAL_MS
from mirror.runtime.clock import process_rng
from mirror.spark.run_control import RunControlClient, takeover_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.control import RunControl
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.run_control import RunRecord
    from mirror.takeover.watch import MirrorMakerWatch

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
    """Threads for one flow: nothing delays control commands."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        warn: Callable[[str], None],
        report: Callable[[str], None],
        *,
        record: RunRecord,
        others: Mapping[str, Work] = MappingProxyType({}),
        outages: Outages | None = None,
        watch: MirrorMakerWatch | None = None,
    ) -> None:
        """``warn`` is called from all threads, ``report`` with a line from some.

        ``record`` is what this run wants its control record to say. ``others`` is what else is repeated until the event
        that it waits for, each in a thread, by its subject. ``watch`` is that of the MirrorMaker 2 that the flow was
        taken over from: once it copies again, this run is to end.
        """
        self.fenced_by: RunControl | None = None
        """The control record of another run that has taken over."""
        self.stop_requested = False
        """Whether this run is to end, by :meth:`stop` or by a command of another process."""
        self._config: Final = config
        self._flow: Final = flow
        self._warn: Final = warn
        self._report: Final = report
        self._record: Final = record
        self._outages: Final = outages
        self._mirrormaker: Final = watch
        self._ended: Final = threading.Event()
        rng = process_rng()
        # Its waits do not grow: a stream that is to stop, or is fenced, must notice soon after the target is back.
        self._control: Final = _Task(
            "commands to this run", self._follow_control, Backoff(POLL_INTERVAL_MS, POLL_INTERVAL_MS, rng)
        )
        self._tasks: Final = [
            self._control,
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

    def stop(self) -> None:
        """Request that the tasks end in order. The target receives the command as soon as it answers."""
        self.stop_requested = True

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

    # --- control commands

    def _follow_control(self) -> None:
        with Admin(self._config.clusters[self._flow.target].client_options()) as target:
            client = RunControlClient(target, self._flow.name, record=self._record)
            while not self._ended.is_set():
                self.follow(client)
                self._succeeded(self._control)
                self._stop_if_resumed()
                self._ended.wait(POLL_INTERVAL_MS / 1000)

    def follow(self, client: RunControlClient) -> None:
        """Read the control record with ``client``, and write what this run wants there. Raises KafkaError."""
        if self.stop_requested:
            self._record.want(stop=True)
        decision = client.sync()
        self.fenced_by = decision.fenced_by or self.fenced_by
        self.stop_requested = self.stop_requested or decision.stop
        if decision.took_over is not None:
            self._warn(takeover_message(decision.took_over))

    def _stop_if_resumed(self) -> None:
        if self._mirrormaker is None or self.stop_requested:
            return
        if self._mirrormaker.read() is not None:
            self._report("MirrorMaker 2 copies again: this flow ends")
            self.stop()

    def _work(self, work: Work) -> None:
        work(self._ended)
