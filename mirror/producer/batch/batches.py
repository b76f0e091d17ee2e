"""A batch of the producer, from ``send`` to its outcome. No I/O."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import CorruptBatch, KafkaError
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import BatchBuilder
from mirror.wire.header_names import Headers
from mirror.wire.integers import INT32_MAX
from mirror.wire.records import Batch


class RecordMetadata(NamedTuple):
    """The place of an acknowledged batch, or of one of its records, in the log."""

    tp: TopicPartition
    base_offset: int
    """-1 where the broker only reports that it already had the batch."""
    record: int = 0
    """The index of the record within the batch."""
    throttle_ms: int = 0
    """The throttle time of the acknowledging response: a quota was exceeded, and the broker wants no more requests
    on that connection for so long (KIP-219)."""

    @property
    def offset(self) -> int:
        """The offset of the record; -1 where it is unknown."""
        return self.base_offset + self.record if self.base_offset >= 0 else -1


Callback = Callable[[RecordMetadata | KafkaError], None]
"""Called once with the outcome of a batch. It must neither wait nor send: it runs on the network thread or, if the
batch could not be handed over to that, within the call that sends it."""

_log: Final = logging.getLogger(__name__)


def promise() -> Future[RecordMetadata]:
    """Return a future that cannot be cancelled: a batch that was handed over is sent in any case."""
    future: Future[RecordMetadata] = Future()
    future.set_running_or_notify_cancel()
    return future


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """One batch from ``send`` to its outcome. Times in ms, sizes in bytes."""

    tp: TopicPartition
    batch: Batch | None
    """The encoded batch; None while ``open`` still accepts records, and after :meth:`release_payload`."""
    created_ms: int
    """When its ``delivery.timeout.ms`` started."""
    size: int
    """Bytes of ``buffer.memory`` that it holds."""
    open: RecordAccumulation | None = None
    callback: Callback | None = None
    """Called with the outcome instead of completing ``future``, which does not exist then: a future takes a lock for
    every state query and every callback."""
    future: Future[RecordMetadata] = field(init=False)
    on_completed: Callable[[], None] | None = None
    """Called once after the callers have their outcome, whatever their callbacks raise. It is no callback of
    ``future``: a caller may keep that, and with it everything that its callbacks refer to."""
    expires_ms: int = 0
    log_end: int = 0
    """The log is known to reach to this offset: an acknowledgement below it fails the batch."""
    chain: int | None = None
    """Once a batch of this chain is lost, later ones of the same chain and partition are not sent; None: no chain."""
    sequence: int | None = None
    """Assigned by the first drain, and kept over retries (KIP-185)."""
    attempts: int = 0
    in_doubt: bool = False
    """The outcome of some attempt is unknown: the batch may be in the log."""
    last_error: KafkaError | None = None
    in_flight_ms: int = 0
    """How long its finished attempts were in flight."""
    completed: bool = False
    """The caller has its outcome, or will get it from the parts that this batch was split into."""
    _sent_ms: int | None = None
    _was_in_doubt: bool = False
    _parts_left: int = 0
    _records: RecordAccumulation | None = None

    def __post_init__(self) -> None:
        self._records = self.open  # their futures are completed also after the payload is released
        if self.callback is None:
            self.future = promise()

    def seal(self) -> Batch:
        """Return the encoded batch; no record can be added afterwards."""
        if self.batch is None:
            assert self.open is not None  # noqa: S101 - either it came ready-made, or it takes records
            self.batch = self.open.seal()
        return self.batch

    def is_damaged(self) -> bool:
        """Whether its bytes do not match its CRC-32C any more: to send them again is in vain."""
        try:
            self.seal().verify()
        except CorruptBatch:
            return True
        return False

    @property
    def count(self) -> int:
        """The number of records so far."""
        if self.batch is not None:
            return int(self.batch.count)
        return self.open.count if self.open is not None else 0

    def release_payload(self) -> None:
        """Drop the bytes, as it is not sent again. A caller that keeps the future does not keep them."""
        self.batch = self.open = None

    @property
    def complete(self) -> bool:
        """Whether it accepts no more records: encoded by the caller, sealed or full."""
        return self.batch is not None or (self.open is not None and self.open.full)

    def split_into(self, parts: list[ProducerBatch]) -> None:
        """Complete this batch when the last of ``parts``, which are sent instead, is completed."""
        self.completed, self._parts_left = True, len(parts)
        for part in parts:
            part.on_completed = self._part_completed

    def _part_completed(self) -> None:
        self._parts_left -= 1
        if not self._parts_left:
            self._complete(RecordMetadata(self.tp, -1))

    def sent(self, now: int) -> None:
        """Start an attempt. Until its response the outcome is unknown."""
        self.attempts += 1
        self._sent_ms = now
        self._was_in_doubt, self.in_doubt = self.in_doubt, True

    def attempt_ended(self, now: int) -> None:
        """End the attempt, with a response or without."""
        if self._sent_ms is not None:
            self.in_flight_ms += now - self._sent_ms
            self._sent_ms = None

    def refused(self) -> None:
        """The broker has not written this attempt. Earlier attempts without a response stay in doubt."""
        self.in_doubt = self._was_in_doubt

    def time_in_flight_ms(self, now: int) -> int:
        """Milliseconds in flight, over all attempts."""
        return self.in_flight_ms + (now - self._sent_ms if self._sent_ms is not None else 0)

    def succeed(self, base_offset: int, throttle_ms: int = 0) -> None:
        """Complete the caller's future or callback, unless that has happened."""
        if not self.completed:
            self._complete(RecordMetadata(self.tp, base_offset, 0, throttle_ms))

    def fail(self, error: KafkaError) -> None:
        """Fail the caller's future or callback, unless it is completed.

        The error says if the batch may be in the log.
        """
        if self.completed:
            return
        # Invariant: A batch that may have been written is never reported as plainly failed.
        # Test: tests/producer/test_unresolved.py::test_unknown_is_never_reported_as_plain_failure
        if self.in_doubt and not error.may_have_been_written:
            cause = error
            error = copy.copy(cause)
            error.args = (f"{cause}; it may have been written all the same", *cause.args[1:])
            error.__cause__ = cause.__cause__
            error.may_have_been_written = True
        self._complete(error)

    def _complete(self, outcome: RecordMetadata | KafkaError) -> None:
        """Run the application's callbacks. If one raises (``sys.exit``), the others are still called."""
        self.completed = True  # instead of future.done(), which takes a lock: this is read in every turn of the loop
        records, self._records = self._records, None
        on_completed, self.on_completed = self.on_completed, None
        callback, self.callback = self.callback, None  # it may refer to the bytes, and a gap keeps this object
        try:
            if callback is not None:
                self._call(callback, outcome)
            elif isinstance(outcome, RecordMetadata):
                self.future.set_result(outcome)
            else:
                self.future.set_exception(outcome)
        finally:
            try:
                if records is not None:
                    records.complete_all(outcome)
            finally:
                if on_completed is not None:
                    on_completed()

    def _call(self, callback: Callback, outcome: RecordMetadata | KafkaError) -> None:
        try:
            callback(outcome)
        except Exception:  # noqa: BLE001 - logged, as a future does: it must not end the network thread
            _log.exception("%s: a callback failed; the other callbacks are still called", self.tp)


def copy_of_error(error: BaseException) -> BaseException:
    """Return a copy of ``error`` for one more caller: an exception raised repeatedly collects all their tracebacks."""
    again = copy.copy(error)
    again.__cause__, again.__traceback__ = error.__cause__, None
    return again


class RecordAccumulation:
    """An open batch: records of one partition, each with a future of its own.

    ``limit`` is the memory that it holds of ``buffer.memory``, in bytes: the limit of the builder, or more if its first
    record is larger. ``lock`` guards it: application threads append while the network thread seals, splits and
    completes it.
    """

    __slots__ = ("_batch", "_builder", "_closed", "_codec", "_futures", "_lock", "count", "limit", "tp")

    def __init__(
        self, tp: TopicPartition, builder: BatchBuilder, limit: int, lock: AbstractContextManager[Any]
    ) -> None:
        self.tp: Final = tp
        self.limit: Final = limit
        self.count = 0
        self._codec = builder.codec
        self._builder: BatchBuilder | None = builder
        self._lock = lock
        self._batch: Batch | None = None
        self._closed = False
        self._futures: list[Future[RecordMetadata]] = []

    @property
    def full(self) -> bool:
        """Whether no record can be appended: it has no room, is sealed, or is completed."""
        return self._closed

    @property
    def size(self) -> int:
        """Bytes: before compression so far, or as encoded once sealed."""
        with self._lock:
            if self._batch is not None:
                return self._batch.size
            return self._builder.size if self._builder is not None else 0

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
    ) -> Future[RecordMetadata] | None:
        """Append a record and return its future; None if there is no room, and another batch has to be begun.

        Once a record was refused, all later ones are: otherwise a smaller one would overtake it. The future cannot be
        cancelled: an appended record is sent.
        """
        with self._lock:
            if self._closed or self._builder is None:
                return None
            if not self._builder.append(key, value, headers, timestamp_ms):
                self._closed = True
                return None
            self.count += 1
            if self._builder.size >= self._builder.limit:
                self._closed = True
            future = promise()
            self._futures.append(future)
            return future

    def close(self) -> None:
        """Refuse further records: they must not overtake batches that were sent meanwhile."""
        with self._lock:
            self._closed = True

    def seal(self) -> Batch:
        """Encode and return the batch, the same one at each call. It must have at least one record."""
        with self._lock:
            return self._sealed()

    def seal_early(self) -> None:
        """Encode on the thread that filled the batch, unless it has been completed meanwhile."""
        with self._lock:
            if self._builder is not None:
                self._sealed()

    def _sealed(self) -> Batch:
        self._closed = True
        if self._batch is None:
            assert self._builder is not None  # noqa: S101 - it is dropped when the batch is encoded
            self._batch = self._builder.build()
            self._builder = None
        return self._batch

    def complete_all(self, outcome: RecordMetadata | KafkaError) -> None:
        """Complete the future of every record with the outcome of the batch.

        Closes the batch, as the future of a later record would never be completed, and drops its bytes. If callbacks of
        the futures raise (``sys.exit`` does), all futures are completed first; then the first exception is raised.
        """
        with self._lock:
            self._closed = True
            self._builder = self._batch = None
            futures, self._futures = self._futures, []
        raised: list[BaseException] = []
        for index, future in enumerate(futures):
            try:
                if isinstance(outcome, RecordMetadata):
                    future.set_result(outcome._replace(record=outcome.record + index))
                else:
                    future.set_exception(copy_of_error(outcome))
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)
        if raised:
            raise raised[0]

    def split(self) -> list[RecordAccumulation]:
        """Return its records as two sealed batches after a broker refused it as too large.

        [] if it has only one record.

        The halves share ``limit`` and take over the futures of the records: this batch has none left to complete.
        """
        batch = self.seal()
        if batch.count < 2:  # noqa: PLR2004 - a single record cannot be split
            return []
        records = list(records_of(batch))
        with self._lock:
            futures, self._futures = self._futures, []
            self._batch = None
        middle = len(records) // 2
        share = max(1, self.limit // 2)
        return [
            self._part(records[:middle], futures[:middle], share),
            self._part(records[middle:], futures[middle:], self.limit - share),
        ]

    def _part(self, records: list[Record], futures: list[Future[RecordMetadata]], limit: int) -> RecordAccumulation:
        # Without a limit, since all of them fitted before.
        builder = BatchBuilder(self._codec, INT32_MAX)
        for record in records:
            builder.append(record.key, record.value, record.headers, record.timestamp_ms)
        part = RecordAccumulation(self.tp, builder, limit, self._lock)
        part.count, part._futures = builder.count, futures
        part.seal()
        return part
