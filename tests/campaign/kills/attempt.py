"""One attempt at some ranges in its own process, which reports the points that it passes, and waits at one of them."""

from __future__ import annotations

import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from mirror.client import Admin, RecordMetadata, TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import Callback
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.partition import takeover, target_writer
from mirror.relay.partition.target_writer import ExactlyOnceWriter
from mirror.relay.progress.committed import Progress
from mirror.relay.task import task
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.wire.records import Batch

POINTS: Final = (
    "opening",  # no request was sent
    "fencing",  # InitProducerId is on its way
    "reading",  # fenced; the progress is about to be read
    "read",  # the progress is there
    "sending",  # a batch is about to be produced
    "acked",  # a batch is in the target's log: between produce and commit
    "committing",  # the commit is about to be requested
    "commit-asked",  # the request for the commit is sent
    "offsets-kept",  # the coordinator has the progress; the end of the transaction is not requested yet
    "ended",  # the transaction is committed
    "committed",  # the relay has not processed the commit yet: before the result
    "dropped",  # the writer is closed
)
HELD: Final = "held"
RESULTS: Final = "results"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOrder:
    """What to copy and how. ``hold`` is a point, and how often it has to be passed, before the attempt waits there."""

    source: dict[str, Any]
    target: dict[str, Any]
    ranges: list[Range]
    policy: CopyPolicy
    hold: tuple[str, int] | None = None


class PointReporter:
    """Reports the points that the attempt passes, and waits at the one where it is held."""

    def __init__(self, hold: tuple[str, int] | None, line: Connection[Any, Any]) -> None:
        self._hold = hold
        self._line = line
        self._lock = threading.Lock()
        self._passed: Counter[str] = Counter()
        self._release = threading.Event()

    def at(self, point: str) -> None:
        with self._lock:
            self._passed[point] += 1
            here = (point, self._passed[point])
            self._line.send(here)
        if here == self._hold:
            self.say(HELD, None)
            self._release.wait()

    def say(self, what: str, about: object) -> None:
        with self._lock:
            self._line.send((what, about))

    def listen(self) -> None:
        """Read commands until the connection ends, and then end this process, which no other process would kill."""
        try:
            while self._line.recv():
                self._release.set()
        finally:
            os._exit(1)


def reporting(reporter: PointReporter, callback: Callback) -> Callback:
    """Return a callback that reports the point before it calls ``callback``."""

    def tell(outcome: RecordMetadata | KafkaError) -> None:
        if isinstance(outcome, RecordMetadata):
            reporter.at("acked")
        callback(outcome)

    return tell


def watched(reporter: PointReporter) -> type[ExactlyOnceWriter]:
    """Return the product's writer, extended to report each of its steps."""

    def then_at(future: Future[Any], point: str) -> None:
        def tell(done: Future[Any]) -> None:
            if done.exception() is None:
                reporter.at(point)

        future.add_done_callback(tell)

    def watch(call: Callable[..., Future[None]], point: str) -> Callable[..., Future[None]]:
        def watched_call(*arguments: Any) -> Future[None]:
            future = call(*arguments)
            then_at(future, point)
            return future

        return watched_call

    class Watched(ExactlyOnceWriter):
        def open(self, timeout_ms: int) -> Future[Progress | None]:
            reporter.at("opening")
            producer: Any = self._transactions.producer
            producer.send_offsets_to_transaction_async = watch(
                producer.send_offsets_to_transaction_async, "offsets-kept"
            )
            producer.commit_transaction_async = watch(producer.commit_transaction_async, "ended")
            opened = super().open(timeout_ms)
            reporter.at("fencing")
            then_at(opened, "read")
            return opened

        def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
            reporter.at("sending")
            super().send(batch, created_ms, reporting(reporter, callback))

        def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
            reporter.at("committing")
            committed = super().commit(progress, timeout_ms)
            reporter.at("commit-asked")
            then_at(committed, "committed")
            return committed

        def close(self, timeout_ms: int) -> Future[None]:
            closed = super().close(timeout_ms)
            then_at(closed, "dropped")
            return closed

    return Watched


def attempt(order: AttemptOrder, line: Connection[Any, Any]) -> None:
    """Execute ``order`` and send the results on ``line``: the main function of the process."""
    reporter = PointReporter(order.hold, line)
    threading.Thread(target=reporter.listen, daemon=True).start()
    read = takeover.read_latest_progress

    def read_progress(admin: Admin, flow: str, tp: TopicPartition, timeout_ms: int) -> Future[Progress | None]:
        reporter.at("reading")
        return read(admin, flow, tp, timeout_ms)

    # This affects only this process.
    target_writer.read_latest_progress = read_progress  # type: ignore[attr-defined]
    task.ExactlyOnceWriter = watched(reporter)  # type: ignore[attr-defined]
    try:
        results = copy_ranges(
            order.ranges, source_options=order.source, target_options=order.target, policy=order.policy
        )
    except BaseException:
        reporter.say(FAILED, traceback.format_exc())
        raise
    reporter.say(RESULTS, results)
