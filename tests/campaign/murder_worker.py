"""The victim: one attempt at some ranges, in a process of its own; it says where it is, and stops where it is told."""

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
from mirror.relay.partition import target_writer as carriers
from mirror.relay.partition.target_writer import ExactlyOnceWriter
from mirror.relay.progress.committed import Progress
from mirror.relay.task import task
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.wire.records import Batch

POINTS: Final = (
    "opening",  # nothing was asked yet
    "fencing",  # InitProducerId is on its way
    "reading",  # fenced; the progress is about to be read
    "read",  # and has come
    "sending",  # a batch is about to be handed over
    "acked",  # a batch is in the target's log: between produce and commit
    "committing",  # the commit is about to be asked
    "commit-asked",  # it is on its way
    "offsets-kept",  # the coordinator has the progress, but was not asked to end the transaction: it stays open
    "ended",  # the transaction is committed, and nothing was done after that
    "committed",  # the relay is about to hear of it: before the result
    "dropped",  # the way to the target is closed
)
HELD: Final = "held"
RESULTS: Final = "results"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to copy and how. ``hold`` is a point, and its how-manieth time, at which to stop until told to go on."""

    source: dict[str, Any]
    target: dict[str, Any]
    ranges: list[Range]
    policy: CopyPolicy
    hold: tuple[str, int] | None = None


class Signpost:
    """Tells of the points that are passed."""

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
        """Until the line is cut, with which this process ends: nobody is there any more to kill it."""
        try:
            while self._line.recv():
                self._release.set()
        finally:
            os._exit(1)


def told_at(signpost: Signpost, callback: Callback) -> Callback:
    """``callback``, with the signpost before it."""

    def tell(outcome: RecordMetadata | KafkaError) -> None:
        if isinstance(outcome, RecordMetadata):
            signpost.at("acked")
        callback(outcome)

    return tell


def watched(signpost: Signpost) -> type[ExactlyOnceWriter]:
    """The carrier as it is, with the signpost beside each of its steps."""

    def then_at(future: Future[Any], point: str) -> None:
        def tell(done: Future[Any]) -> None:
            if done.exception() is None:
                signpost.at(point)

        future.add_done_callback(tell)

    def watch(call: Callable[..., Future[None]], point: str) -> Callable[..., Future[None]]:
        def watched_call(*arguments: Any) -> Future[None]:
            future = call(*arguments)
            then_at(future, point)
            return future

        return watched_call

    class Watched(ExactlyOnceWriter):
        def open(self, timeout_ms: int) -> Future[Progress | None]:
            signpost.at("opening")
            producer: Any = self._producer
            producer.send_offsets_to_transaction_async = watch(
                producer.send_offsets_to_transaction_async, "offsets-kept"
            )
            producer.commit_transaction_async = watch(producer.commit_transaction_async, "ended")
            opened = super().open(timeout_ms)
            signpost.at("fencing")
            then_at(opened, "read")
            return opened

        def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
            signpost.at("sending")
            super().send(batch, created_ms, told_at(signpost, callback))

        def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
            signpost.at("committing")
            committed = super().commit(progress, timeout_ms)
            signpost.at("commit-asked")
            then_at(committed, "committed")
            return committed

        def close(self, timeout_ms: int) -> Future[None]:
            closed = super().close(timeout_ms)
            then_at(closed, "dropped")
            return closed

    return Watched


def attempt(order: Order, line: Connection[Any, Any]) -> None:
    """Do as ordered, and say on ``line`` what comes of it: the main function of a process."""
    signpost = Signpost(order.hold, line)
    threading.Thread(target=signpost.listen, daemon=True).start()
    read = carriers.read_progress

    def read_progress(admin: Admin, group: str, tp: TopicPartition, timeout_ms: int) -> Future[Progress | None]:
        signpost.at("reading")
        return read(admin, group, tp, timeout_ms)

    # In this process only.
    carriers.read_progress = read_progress
    task.ExactlyOnceWriter = watched(signpost)  # type: ignore[attr-defined]
    try:
        results = copy_ranges(
            order.ranges, source_options=order.source, target_options=order.target, policy=order.policy
        )
    except BaseException:
        signpost.say(FAILED, traceback.format_exc())
        raise
    signpost.say(RESULTS, results)
