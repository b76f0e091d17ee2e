"""The thread in which a task's batches are decoded and encoded again: one, and its partitions take turns."""

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
    most: int = 0


class Encoder:
    """What is encoded takes one processor's time at most, however many partitions need it.

    ``spare`` bytes are for jobs that are interrupted, beside the largest of them.
    """

    def __init__(self, spare: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock`` gives seconds."""
        self._turns: Final = EncodingSchedule[_Job](spare)
        self._clock: Final = clock
        self._changed: Final = threading.Condition()
        self._jobs: Final = set[_Job]()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, key: Hashable, begin: Callable[[], Steps]) -> Future[ReencodeResult]:
        """The end of the steps that ``begin`` gives, which may be called again, for the partition ``key``.

        A future that is cancelled ends its job at the next step.
        """
        future = Future[ReencodeResult]()
        job = _Job(key=key, begin=begin, future=future)
        with self._changed:
            if self._closed:
                future.cancel()
                return future
            self._jobs.add(job)
            self._turns.add(job)
            if self._thread is None:
                # Not before there is something to do, which is after Spark's fork.
                self._thread = threading.Thread(target=self._run, name="mirror-deep", daemon=True)
                self._thread.start()
            self._changed.notify()
        return future

    def close(self) -> None:
        """What was not done is cancelled; the thread ends after the step that it is in."""
        for future in self._left():
            future.cancel()

    def _left(self) -> list[Future[ReencodeResult]]:
        """From now on nothing is taken up; the futures that have no answer."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            return [job.future for job in self._jobs]

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._turn(job)
        except BaseException as error:  # noqa: BLE001 - it is logged, and every waiting call gets it
            _log.exception("nothing is encoded any more")  # a fault of ours
            for future in self._left():
                if not future.done():
                    future.set_exception(error)

    def _next(self) -> _Job | None:
        with self._changed:
            while not self._closed:
                job = self._turns.next()
                if job is not None:
                    return job
                self._changed.wait()
        return None

    def _turn(self, job: _Job) -> None:
        began_s = self._clock()
        if job.steps is None:
            job.steps = job.begin()
        try:
            while not job.future.cancelled():
                held = next(job.steps)
                job.most = max(job.most, held)
                if not self._goes_on(job, self._clock() - began_s, held):
                    return
        except StopIteration as end:
            self._ended(job)
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - it is the job's, and its future has it
            self._ended(job)
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
        else:
            job.steps.close()
            self._ended(job)

    def _goes_on(self, job: _Job, ran_s: float, held: int) -> bool:
        with self._changed:
            verdict = self._turns.on_ran(job, ran_s * 1000, held)
        if verdict is TurnOutcome.RESTART and job.steps is not None:
            job.steps.close()
            job.steps = None
        return verdict is TurnOutcome.CONTINUE

    def _ended(self, job: _Job) -> None:
        job.steps = None
        with self._changed:
            self._turns.on_ended(job, job.most)
            self._jobs.discard(job)
