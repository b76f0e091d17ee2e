"""A batch that still takes records: from the first ``send`` into it to the answer for each of its records."""

from __future__ import annotations

import copy
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import RecordMetadata, promise
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import BatchBuilder, Headers
from mirror.wire.records import Batch


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
