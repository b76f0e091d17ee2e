"""Run control: the record that ends the tasks of a job, or has them read what was assigned to them meanwhile.

Tasks run on any host, and Spark has no message for them. So the control record is stored where the driver and the tasks
connect to anyway: as a committed offset on the target, in a group of its own for each flow. The offset is the first
job that may continue; the metadata names the run that it belongs to.

The record is advice only: the fencing of each partition's transactions keeps two runs from copying twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.progress.flow_topic import topic_of
from mirror.relay.progress.stored_record import decode, encode
from mirror.timing import FOREVER_MS

POLL_INTERVAL_MS: Final = 1_000
"""How often a task reads the control record."""
HEARTBEAT_INTERVAL_MS: Final = 10_000
"""How often a live run renews its control record."""
DEAD_AFTER_MS: Final = 60_000
"""A run that has not renewed its record for this long has died, or cannot reach the target."""


Attempts = tuple[tuple[int, int], ...]
"""Pairs of a task and the number of its newest attempt, in the order of the tasks."""


def newest_attempts(attempts: Iterable[tuple[int, int]]) -> Attempts:
    """Return the newest of ``attempts`` of each task, without those of tasks that were begun once."""
    return tuple({task: attempt for task, attempt in sorted(attempts) if attempt > 0}.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunControl:
    """The control record of a flow. The field names are keys of the status as JSON."""

    run: str
    host: str
    """Where the run is, for display."""
    since_ms: int
    """Since when the run exists (ms since 1970), for display."""
    job: int = 0
    """Earlier jobs of the run are to end."""
    version: int = 0
    """The version of the job's assignments that was announced (:mod:`mirror.relay.model.assignments`)."""
    stop: bool = False
    """All jobs of the run, present and future, are to end."""
    ended: bool = False
    """The run has ended."""
    seen_ms: int = 0
    """The run's last heartbeat, by its own clock; 0 if it is not known."""
    generation: int = 0
    """One more than that of the run whose record the claim of this run has found."""
    attempts: Attempts = ()
    """The newest attempt of each task that was begun again, in a run with one job: earlier attempts are to end.

    Spark may have lost an executor that lives: two attempts of a task would fence each other for ever.
    """

    @property
    def precedence(self) -> tuple[int, str]:
        """Of two runs, the one with the greater precedence has the flow: the later claim, whatever their clocks say."""
        return self.generation, self.run

    def silent_ms(self, unix_ms: int) -> int | None:
        """How long ago the last heartbeat was at ``unix_ms`` (ms since 1970); None if that is not known."""
        return max(0, unix_ms - self.seen_ms) if self.seen_ms else None

    def is_dead(self, unix_ms: int) -> bool:
        """Whether the last heartbeat is so long ago that the run cannot be alive."""
        return (self.silent_ms(unix_ms) or 0) >= DEAD_AFTER_MS

    def other_run_active(self, run: str) -> bool:
        """Whether another run than ``run`` copies this flow now."""
        return self.run != run and not self.ended

    def to_offset(self) -> OffsetAndMetadata:
        """Return the record as an offset to commit."""
        return OffsetAndMetadata(self.job, None, encode(self, {"job"}).decode())

    def stopped(self, *, ended: bool = False) -> RunControl:
        """Return a copy that stops the run."""
        return replace(self, stop=True, ended=ended or self.ended)


def control_partition(flow: str) -> tuple[str, TopicPartition]:
    """Return the group and the partition that the record is committed for: any copy may commit for that partition."""
    return f"mirror.{flow}.control", TopicPartition(topic_of(flow), 0)


def from_offset(committed: OffsetAndMetadata | None) -> RunControl | None:
    """Parse a committed offset; None if there is none, or another program committed it. Never raises."""
    if committed is None:
        return None
    found = decode(RunControl, committed.metadata, job=committed.offset)
    return replace(found, attempts=newest_attempts(found.attempts)) if found is not None and found.run else None


class StopReason(enum.StrEnum):
    """Why a task is to stop, for its log."""

    ASKED = "the run was asked to stop"
    JOB_ENDED = "its job was asked to end"
    OTHER_RUN = "another run of this flow took over"
    REPLACED = "a later attempt of this task has begun"
    DRIVER_LOST = f"its driver has not renewed the control record for {DEAD_AFTER_MS // 1000} s"


@dataclass(frozen=True, slots=True)
class Command:
    """What the control record tells a task."""

    stop: StopReason | None = None
    version: int = 0
    """The newest version of the assignments that was announced."""
    other: str = ""
    """The run that took over, and its host."""

    def reason(self) -> str:
        """Return why to stop, in one clause."""
        return f"{self.stop}: {self.other}" if self.other else str(self.stop)


# Invariant: The tasks of a driver that has died end by themselves after a minute of silence, in which a time without a
#   readable record counts little: the driver could not write either.
# Test: tests/relay/progress/test_control_record.py::test_a_task_ends_once_its_driver_has_been_silent_for_a_minute
# Test: tests/relay/progress/test_control_record.py::test_after_an_outage_the_driver_has_time_to_write
class ControlWatch:
    """Polls the control record every :data:`POLL_INTERVAL_MS` for one task of one job, without blocking.

    A task ends if its driver is silent: nothing else would stop it after the driver's death. The driver has written a
    time of its own clock, so only its changes count, by the task's clock, and only while the record can be read: the
    driver may be unable to write what the task cannot read. A read that fails ends nothing. Of the time between two
    reads that succeed at most :data:`HEARTBEAT_INTERVAL_MS` counts, so that the driver has time to write after an
    outage, and a read that fails now and then does not keep a task alive.
    """

    def __init__(
        self,
        read: Callable[[], Future[RunControl | None]],
        run: str,
        job: int,
        now: int,
        *,
        generation: int = 0,
        task: int = 0,
        attempt: int = 0,
    ) -> None:
        """``generation`` is that of ``run``; ``attempt`` is that of the ``task``."""
        self._task: Final = task, attempt
        self._read: Final = read
        self._run: Final = run
        self._job: Final = job
        self._precedence: Final = generation, run
        self._request: Future[RunControl | None] | None = None
        self._next_ms = self._asked_ms = self._known_ms = now
        """``_known_ms``: when the last request was sent that succeeded."""
        self._seen_ms = -1
        self._silent_ms = 0
        self.confirmed_ms = now
        """When the last request was sent whose response says that the job may continue; before, when it began."""

    def due_ms(self) -> int:
        """When to call :meth:`poll` next if no response arrives before."""
        return self._next_ms if self._request is None else FOREVER_MS

    def poll(self, now: int) -> Command | None:
        """Return the command of a response that has arrived.

        None if there is none, it failed, or it has no record of this run and of none that comes after it: a task that
        has begun continues, and one that has not begun waits.
        """
        if self._request is None and now >= self._next_ms:
            self._asked_ms, self._next_ms = now, now + POLL_INTERVAL_MS
            self._request = self._read()
        if (request := self._request) is None or not request.done():
            return None
        self._request = None
        if request.exception() is not None:
            return None
        command = self._command(request.result())
        if command is not None and command.stop is None:
            self.confirmed_ms = self._asked_ms
        return command

    def _command(self, record: RunControl | None) -> Command | None:
        own = record is not None and record.run == self._run
        if self._is_driver_lost(record.seen_ms if record is not None and own else None):
            return Command(StopReason.DRIVER_LOST)
        if record is None or (not own and record.precedence < self._precedence):
            return None  # an earlier run, which does not know yet that it was replaced, may have overwritten the record
        if not own:
            return Command(StopReason.OTHER_RUN, other=f"{record.run}, on {record.host}")
        if record.stop:
            return Command(StopReason.ASKED)
        if self._job < record.job:
            return Command(StopReason.JOB_ENDED, record.version)
        task, attempt = self._task
        replaced = dict(record.attempts).get(task, 0) > attempt
        return Command(StopReason.REPLACED if replaced else None, record.version)

    def _is_driver_lost(self, seen_ms: int | None) -> bool:
        """Count a read that succeeded; ``seen_ms`` is the heartbeat of the own run's record."""
        passed_ms, self._known_ms = self._asked_ms - self._known_ms, self._asked_ms
        if seen_ms is not None and seen_ms != self._seen_ms:
            self._seen_ms, self._silent_ms = seen_ms, 0
        else:
            self._silent_ms += min(passed_ms, HEARTBEAT_INTERVAL_MS)
        return self._silent_ms >= DEAD_AFTER_MS
