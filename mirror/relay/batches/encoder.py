"""The thread that decodes and re-encodes a task's batches: a single one, in which the partitions take turns."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from mirror.relay.batches.encoding_schedule import EncodingJob, EncodingSchedule, TurnOutcome
from mirror.relay.batches.reencode import ReencodeResult, Steps

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class _Job(EncodingJob):
    begin: Callable[[], Steps]
    future: Future[ReencodeResult]
    steps: Steps | None = None
    max_held: int = 0


class Encoder:
    """Re-encodes with at most one CPU, however many partitions need it.

    ``spare`` bytes are for interrupted jobs, in addition to the largest of them.
    """

    def __init__(self, spare: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock`` returns seconds."""
        self._schedule: Final = EncodingSchedule[_Job](spare)
        self._clock: Final = clock
        self._changed: Final = threading.Condition()
        self._jobs: Final = set[_Job]()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, key: Hashable, begin: Callable[[], Steps]) -> Future[ReencodeResult]:
        """Run the steps that ``begin`` returns, for the partition ``key``; ``begin`` may be called more than once.

        Cancelling the future ends the job at its next step.
        """
        future = Future[ReencodeResult]()
        job = _Job(key=key, begin=begin, future=future)
        with self._changed:
            if self._closed:
                future.cancel()
                return future
            self._jobs.add(job)
            self._schedule.add(job)
            if self._thread is None:
                # The first job comes after Spark's fork, which would lose a thread that was started before.
                self._thread = threading.Thread(target=self._run, name="mirror-deep", daemon=True)
                self._thread.start()
            self._changed.notify()
        return future

    def close(self) -> None:
        """Cancel the unfinished jobs; the thread ends after its present step."""
        for future in self._stop():
            future.cancel()

    def _stop(self) -> list[Future[ReencodeResult]]:
        """Start no more jobs; return the futures that have no result."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            return [job.future for job in self._jobs]

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._run_turn(job)
        except BaseException as error:  # noqa: BLE001 - it is logged, and every waiting call gets it
            _log.exception("nothing is encoded any more")  # a bug
            for future in self._stop():
                if not future.done():
                    future.set_exception(error)

    def _next(self) -> _Job | None:
        with self._changed:
            while not self._closed:
                job = self._schedule.next()
                if job is not None:
                    return job
                self._changed.wait()
        return None

    def _run_turn(self, job: _Job) -> None:
        began_s = self._clock()
        if job.steps is None:
            job.steps = job.begin()
        try:
            while not job.future.cancelled():
                held = next(job.steps)
                job.max_held = max(job.max_held, held)
                if not self._continues(job, self._clock() - began_s, held):
                    return
        except StopIteration as end:
            self._on_ended(job)
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - the job's future gets it
            self._on_ended(job)
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
        else:
            job.steps.close()
            self._on_ended(job)

    def _continues(self, job: _Job, ran_s: float, held: int) -> bool:
        with self._changed:
            outcome = self._schedule.on_ran(job, ran_s * 1000, held)
        if outcome is TurnOutcome.RESTART and job.steps is not None:
            job.steps.close()
            job.steps = None
        return outcome is TurnOutcome.CONTINUE

    def _on_ended(self, job: _Job) -> None:
        job.steps = None
        with self._changed:
            self._schedule.on_ended(job, job.max_held)
            self._jobs.discard(job)
