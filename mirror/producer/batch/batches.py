"""A batch on its way: from ``send`` to its answer."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import BatchBuilder, Headers
from mirror.wire.records import Batch


class RecordMetadata(NamedTuple):
    """Where a batch landed, or one record of it; ``base_offset`` is -1 where the broker only says that it had it.

    ``record`` counts within the batch. ``throttle_ms`` is what the broker asked for by the answer that acknowledged it:
    for so long it wants nothing more on that connection, since a quota was exceeded (KIP-219); 0: for no time.
    """

    tp: TopicPartition
    base_offset: int
    record: int = 0
    throttle_ms: int = 0

    @property
    def offset(self) -> int:
        """The record's own offset; -1 where it is not known."""
        return self.base_offset + self.record if self.base_offset >= 0 else -1


Callback = Callable[[RecordMetadata | KafkaError], None]
"""Told once what became of a batch. It may neither wait nor send: it runs on the network thread, or, where the batch
could not be handed to that, within the call that sends it."""

_log: Final = logging.getLogger(__name__)


def promise() -> Future[RecordMetadata]:
    """A future that cannot be cancelled: what was handed over is sent, whoever has lost interest in it."""
    future: Future[RecordMetadata] = Future()
    future.set_running_or_notify_cancel()
    return future


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """One batch from ``send`` to its answer.

    ``created_ms`` is when its delivery clock started, ``expires_ms`` when its time is up; ``size`` are the bytes of
    ``buffer.memory`` that it holds; ``batch`` is None while ``open`` still takes records. ``sequence`` is assigned when
    it is first drained, and kept over retries (KIP-185). ``in_doubt``: some attempt's outcome is not known, so it may
    be in the log. ``told``: the caller has its answer, or will have it from the parts that this was cut into. Where
    there is a ``callback``, it is told instead of ``future``, which is not there then: a future takes a lock for each
    question, and for each who listens. ``on_told`` is called once, after the callers have their answers, whatever their
    callbacks raise; it is no callback of ``future``, which a caller may keep, and with it whatever hangs on it.
    ``chain``: once one with this number is lost in its partition, so is what comes behind it with the same number;
    None: of no chain.
    """

    tp: TopicPartition
    batch: Batch | None
    created_ms: int
    size: int
    open: RecordAccumulation | None = None
    callback: Callback | None = None
    future: Future[RecordMetadata] = field(init=False)
    on_told: Callable[[], None] | None = None
    expires_ms: int = 0
    chain: int | None = None
    sequence: int | None = None
    attempts: int = 0
    in_doubt: bool = False
    last_error: KafkaError | None = None
    in_flight_ms: int = 0
    told: bool = False
    _sent_ms: int | None = None
    _was_in_doubt: bool = False
    _parts_left: int = 0
    _records: RecordAccumulation | None = None

    def __post_init__(self) -> None:
        self._records = self.open  # to be answered for, also after their bytes were let go
        if self.callback is None:
            self.future = promise()

    def seal(self) -> Batch:
        """The batch as it will be sent; nothing can be added to it from here on."""
        if self.batch is None:
            assert self.open is not None  # noqa: S101 - either it came ready-made, or it takes records
            self.batch = self.open.seal()
        return self.batch

    @property
    def count(self) -> int:
        """Records, so far."""
        if self.batch is not None:
            return int(self.batch.count)
        return self.open.count if self.open is not None else 0

    def let_go(self) -> None:
        """Nobody will send it again: its bytes are not kept, whoever keeps the future."""
        self.batch = self.open = None

    @property
    def complete(self) -> bool:
        """Whether it takes no more records: ready-made, sealed or full."""
        return self.batch is not None or (self.open is not None and self.open.full)

    def cut_into(self, parts: list[ProducerBatch]) -> None:
        """Its parts go instead; who waits for this one waits for the last of them."""
        self.told, self._parts_left = True, len(parts)
        for part in parts:
            part.on_told = self._part_told

    def _part_told(self) -> None:
        self._parts_left -= 1
        if not self._parts_left:
            self._tell(RecordMetadata(self.tp, -1))

    def sent(self, now: int) -> None:
        """An attempt goes out: from here on only an answer tells what became of it."""
        self.attempts += 1
        self._sent_ms = now
        self._was_in_doubt, self.in_doubt = self.in_doubt, True

    def came_back(self, now: int) -> None:
        """The attempt has ended, with an answer or without."""
        if self._sent_ms is not None:
            self.in_flight_ms += now - self._sent_ms
            self._sent_ms = None

    def refused(self) -> None:
        """The broker said that it has not written this attempt; unanswered ones before are as unknown as they were."""
        self.in_doubt = self._was_in_doubt

    def time_in_flight_ms(self, now: int) -> int:
        """Milliseconds unanswered, over all attempts."""
        return self.in_flight_ms + (now - self._sent_ms if self._sent_ms is not None else 0)

    def succeed(self, base_offset: int, throttle_ms: int = 0) -> None:
        """Tell the caller, unless it has been told."""
        if not self.told:
            self._tell(RecordMetadata(self.tp, base_offset, 0, throttle_ms))

    def fail(self, error: KafkaError) -> None:
        """Tell the caller, unless it has been told; where the batch may be in the log, the error says so."""
        if self.told:
            return
        if self.in_doubt and not error.may_have_been_written:
            cause = error
            error = copy.copy(cause)
            error.args = (f"{cause}; it may have been written all the same", *cause.args[1:])
            error.__cause__ = cause.__cause__
            error.may_have_been_written = True
        self._tell(error)

    def _tell(self, outcome: RecordMetadata | KafkaError) -> None:
        """Callbacks of applications run here. One may raise (``sys.exit``): the others are told all the same."""
        self.told = True  # and not the future's done(), which takes a lock: it is asked in every turn
        records, self._records = self._records, None
        on_told, self.on_told = self.on_told, None
        callback, self.callback = self.callback, None  # it may keep the bytes, as long as a gap keeps this
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
                    records.settle(outcome)
            finally:
                if on_told is not None:
                    on_told()

    def _call(self, callback: Callback, outcome: RecordMetadata | KafkaError) -> None:
        try:
            callback(outcome)
        except Exception:  # noqa: BLE001 - logged, as a future does it: it is no end of the network thread
            _log.exception("%s: a callback failed; others are told all the same", self.tp)


def fresh(error: BaseException) -> BaseException:
    """A copy of ``error`` for one more caller: one exception raised again and again would gather all their traces."""
    again = copy.copy(error)
    again.__cause__, again.__traceback__ = error.__cause__, None
    return again


class RecordAccumulation:
    """Records of one partition, each with a future of its own.

    ``limit`` are the bytes of ``buffer.memory`` that it holds: the builder's limit, or more where its first record is
    larger than that. ``lock`` guards it: application threads append while the network thread seals, cuts and settles.
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
        """Whether nothing more will be appended: no room, sealed, or settled."""
        return self._closed

    @property
    def size(self) -> int:
        """Bytes: so far and before compression, or as sealed."""
        with self._lock:
            if self._batch is not None:
                return self._batch.size
            return self._builder.size if self._builder is not None else 0

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
    ) -> Future[RecordMetadata] | None:
        """Add a record; its future, or None where there is no room, or no more: begin another batch then.

        Once one record was refused all are, or a smaller one would overtake it. The future cannot be cancelled: what
        is appended will be sent.
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
        """Append nothing more: what comes next must not get before what was sent meanwhile."""
        with self._lock:
            self._closed = True

    def seal(self) -> Batch:
        """The batch to send, the same one each time; from here on nothing is appended. It has a record at least."""
        with self._lock:
            return self._sealed()

    def seal_early(self) -> None:
        """As :meth:`seal`, by who has filled it, and is not the one to send it: it may have been settled meanwhile."""
        with self._lock:
            if self._builder is not None:
                self._sealed()

    def _sealed(self) -> Batch:
        self._closed = True
        if self._batch is None:
            assert self._builder is not None  # noqa: S101 - it goes when the batch is there
            self._batch = self._builder.build()
            self._builder = None
        return self._batch

    def settle(self, outcome: RecordMetadata | KafkaError) -> None:
        """Answer for every record what ``outcome`` says of the whole batch.

        Closes the batch, for a record that came later would never be answered for, and lets go of its bytes. Raises
        the first that a record's callback raised, an exception as ``sys.exit`` makes them, once all are answered.
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
                    future.set_exception(fresh(outcome))
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)
        if raised:
            raise raised[0]

    def split(self) -> list[RecordAccumulation]:
        """Its records as two sealed batches, after a broker found the whole too large; [] where there is only one.

        The halves share ``limit``, and take the records' futures over: this batch has nothing left to settle.
        """
        batch = self.seal()
        if batch.count < 2:  # noqa: PLR2004 - what cannot be halved
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
        # The first of a batch always fits, and so must the others: they did before.
        builder = BatchBuilder(self._codec, _NO_LIMIT)
        for record in records:
            builder.append(record.key, record.value, record.headers, record.timestamp_ms)
        part = RecordAccumulation(self.tp, builder, limit, self._lock)
        part.count, part._futures = builder.count, futures
        part.seal()
        return part


_NO_LIMIT: Final = 2**31 - 1
"""The longest that a batch can be (its length is an int32)."""
