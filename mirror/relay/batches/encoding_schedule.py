"""Schedules the encoding jobs of a task: partitions take turns, each for a bounded time, in bounded memory. Pure.

::

    add ──► queue ──next──► runs ──on_ran──► CONTINUE
              ▲                     ├──────► YIELD      to the end of the queue; the job keeps what it has encoded
              └── when memory allows ◄─────  RESTART    the job drops what it has encoded, and starts again later

A batch of 1 MB can decompress to 128 MB of records, and keep the encoder busy for 20 s. Interrupted jobs hold what they
have decompressed and encoded, so only one of them may be of any size (``_large``). The others share ``spare`` bytes; a
job that needs more waits until that much is free.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound="EncodingJob")

TURN_MS: Final = 20
_LARGE_FRACTION: Final = 4
"""A partition whose last job held more than this fraction of ``spare`` waits for memory before its next job starts."""


class TurnOutcome(enum.Enum):
    """What the running job does next."""

    CONTINUE = enum.auto()
    YIELD = enum.auto()
    RESTART = enum.auto()


@dataclass(slots=True, eq=False)
class EncodingJob:
    """A job of the partition ``key``."""

    key: Hashable
    held: int = 0
    """Bytes that it holds, or is expected to need if it has not started."""


# Invariant: A large batch does not hold up the encoding of other partitions: jobs take turns of 20 ms, and the memory
#   of interrupted ones is bounded.
# Test: tests/relay/batches/test_encoding_schedule.py::test_partitions_take_turns_however_many_jobs_wait
class EncodingSchedule(Generic[T]):
    """All jobs of a task. A job is queued, waits for memory, waits for its partition's previous job, or runs."""

    def __init__(self, spare: int) -> None:
        self._spare: Final = spare
        self._queue: Final = deque[T]()
        self._waiting_for_memory: Final = deque[T]()
        self._later: Final = dict[Hashable, deque[T]]()
        self._interrupted: Final = set[T]()
        self._large: T | None = None
        self._needed: Final = dict[Hashable, int]()

    def add(self, job: T) -> None:
        """Add a job. A partition has one job at a time; further ones wait for it."""
        if job.key in self._later:
            self._later[job.key].append(job)
        else:
            self._later[job.key] = deque()
            self._enqueue(job)

    def _enqueue(self, job: T) -> None:
        job.held = self._needed.get(job.key, 0)
        (self._waiting_for_memory if job.held > self._spare // _LARGE_FRACTION else self._queue).append(job)

    def next(self) -> T | None:
        """Remove and return the job to run; None if there is none."""
        self._admit()
        return self._queue.popleft() if self._queue else None

    def _admit(self) -> None:
        for job in list(self._waiting_for_memory):
            if self._fits(job):
                self._interrupted.add(job)
            elif self._large is None:
                self._large = job
            else:
                continue
            self._waiting_for_memory.remove(job)
            self._queue.append(job)

    def _fits(self, job: T) -> bool:
        others = sum(other.held for other in self._interrupted if other is not job)
        return others + job.held <= self._spare

    def on_ran(self, job: T, ran_ms: float, held: int) -> TurnOutcome:
        """Decide what ``job`` does next, which has run for ``ran_ms`` and holds ``held`` bytes."""
        job.held = held
        if ran_ms < TURN_MS:
            return TurnOutcome.CONTINUE
        self._admit()
        if not self._queue:
            return TurnOutcome.CONTINUE
        if job is not self._large:
            if self._fits(job):
                self._interrupted.add(job)
            elif self._large is None:
                self._interrupted.discard(job)
                self._large = job
            else:
                self._interrupted.discard(job)
                self._waiting_for_memory.append(job)
                return TurnOutcome.RESTART
        self._queue.append(job)
        return TurnOutcome.YIELD

    def on_ended(self, job: T, max_held: int) -> None:
        """Remove ``job``, which has ended and held at most ``max_held`` bytes; its partition's next job is queued."""
        self._interrupted.discard(job)
        if self._large is job:
            self._large = None
        if max_held > self._spare // _LARGE_FRACTION:
            self._needed[job.key] = max_held
        else:
            self._needed.pop(job.key, None)
        later = self._later[job.key]
        if later:
            self._enqueue(later.popleft())
        else:
            del self._later[job.key]
