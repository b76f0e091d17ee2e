"""The points that an attempt passes, and the product's writers, extended to report them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, Final

from mirror.client import Admin, RecordMetadata, TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import Callback
from mirror.producer.batch.queue import ProducerId
from mirror.relay.partition.writers import fence, sequence_writer, target_writer
from mirror.relay.partition.writers.fence import PartitionTransactions
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.position import FoundPosition
from mirror.relay.task import writers
from mirror.wire.records import Batch

POINTS: Final = (
    "opening",  # no request was sent
    "initializing",  # InitProducerId is on its way
    "reading",  # the progress is about to be read; in transactions, and to acquire, InitProducerId was answered
    "read",  # the progress is there
    "fencing",  # the transaction without data is about to begin
    "fenced",  # that transaction is committed
    "found",  # the exact position is known, and the partition acquired
    "sending",  # a batch is about to be produced
    "acked",  # a batch is in the target's log: between produce and commit
    "committing",  # the commit is about to be requested
    "commit-asked",  # the request for the commit is sent, or by sequences about to be
    "offsets-kept",  # the coordinator has the progress; the end of the transaction is not requested yet
    "ended",  # the transaction is committed
    "committed",  # the relay has not processed the commit yet: before the result
    "dropped",  # the writer is closed
)
HELD: Final = "held"


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

    def then_at(self, future: Future[Any], point: str) -> None:
        """Report ``point`` when ``future`` succeeds, before what is called next."""

        def record(done: Future[Any]) -> None:
            if done.exception() is None:
                self.at(point)

        future.add_done_callback(record)

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


def watch(reporter: PointReporter) -> None:
    """Have the copies of this process report their points."""
    read = fence.read_latest_progress

    def read_progress(
        admin: Admin, flow: str, tp: TopicPartition, timeout_ms: int, **options: Any
    ) -> Future[Progress | None]:
        reporter.at("reading")
        return read(admin, flow, tp, timeout_ms, **options)

    transactions = _watched_transactions(reporter)
    for module in (target_writer, sequence_writer):
        module.read_latest_progress = read_progress  # type: ignore[attr-defined]
        module.PartitionTransactions = transactions  # type: ignore[attr-defined]
    writers.ExactlyOnceWriter = _watched_writer(target_writer.ExactlyOnceWriter, reporter)  # type: ignore[attr-defined]
    writers.SequenceWriter = _watched_writer(sequence_writer.SequenceWriter, reporter)  # type: ignore[attr-defined]


def _watched_transactions(reporter: PointReporter) -> type[PartitionTransactions]:
    class Watched(PartitionTransactions):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            producer: Any = self.producer
            producer.send_offsets_to_transaction_async = _then(producer.send_offsets_to_transaction_async, at_kept)
            producer.commit_transaction_async = _then(producer.commit_transaction_async, at_end)
            producer.init_transactions_async = _then(
                producer.init_transactions_async, lambda _: reporter.at("initializing")
            )

        def fence(self, claim: Progress, timeout_ms: int) -> Future[ProducerId]:
            reporter.at("fencing")
            fenced = super().fence(claim, timeout_ms)
            reporter.then_at(fenced, "fenced")
            return fenced

    def at_kept(future: Future[None]) -> None:
        reporter.then_at(future, "offsets-kept")

    def at_end(future: Future[None]) -> None:
        reporter.then_at(future, "ended")

    return Watched


def _then(call: Callable[..., Future[None]], record: Callable[[Future[None]], None]) -> Callable[..., Future[None]]:
    def watched_call(*arguments: Any) -> Future[None]:
        future = call(*arguments)
        record(future)
        return future

    return watched_call


def _watched_writer(writer: Any, reporter: PointReporter) -> Any:
    """Return a class of the product's writers, extended to report its steps."""

    class Watched(writer):  # type: ignore[misc]
        def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
            reporter.at("opening")
            opened: Future[Progress | None] = super().open(timeout_ms, planned)
            reporter.then_at(opened, "read")
            return opened

        def acquire(self, *arguments: Any, **options: Any) -> Future[FoundPosition]:
            acquired: Future[FoundPosition] = super().acquire(*arguments, **options)
            reporter.then_at(acquired, "found")
            return acquired

        def send(self, batch: Batch, callback: Callback, log_end: int) -> None:
            reporter.at("sending")
            super().send(batch, _reporting(reporter, callback), log_end)

        def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
            reporter.at("committing")
            committed: Future[None] = super().commit(progress, timeout_ms)
            reporter.at("commit-asked")
            reporter.then_at(committed, "committed")
            return committed

        def close(self, timeout_ms: int) -> Future[None]:
            closed: Future[None] = super().close(timeout_ms)
            reporter.then_at(closed, "dropped")
            return closed

    return Watched


def _reporting(reporter: PointReporter, callback: Callback) -> Callback:
    """Return a callback that reports the point before it calls ``callback``."""

    def record(outcome: RecordMetadata | KafkaError) -> None:
        if isinstance(outcome, RecordMetadata):
            reporter.at("acked")
        callback(outcome)

    return record
