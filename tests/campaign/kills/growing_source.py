"""A source that grows by batches of every kind, and the list of its records."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.e2e.broker_side import CODECS, FIRST_MS, Side
from tests.polling import eventually

WITHIN_S: Final = 60.0
SERIAL: Final = "serial"
"""The header that identifies a record."""
_YOUNG_MS: Final = 3_600_000
"""The usual age of the young records: a small part of the time for which brokers remember a producer (a day)."""
_AGE_CHANGES: Final = 0.02


@dataclass(frozen=True, slots=True)
class Record:
    """What a consumer receives of a record; ``headers`` begin with its serial number."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int

    @property
    def serial(self) -> int:
        (serial,) = (value for name, value in self.headers if name == SERIAL)
        return int(serial or b"")


_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True  # It would log every lost connection.
Truth = dict[int, Record]
"""All records that were ever committed, by source offset."""


class GrowingTopic:
    """A topic and its records; ``compacted``: the records have few keys, and some are tombstones.

    ``old`` is how many of the records are so old that they must go in transactions, from 0 to 1; ``young_ms`` is the
    age of the others.
    """

    def __init__(
        self,
        side: Side,
        topic: str,
        partitions: int,
        rng: random.Random,
        *,
        compacted: bool,
        old: float = 0,
        young_ms: int = _YOUNG_MS,
    ) -> None:
        self.topic: Final = topic
        self.compacted: Final = compacted
        self.old: Final = old
        self.truth: Final[list[Truth]] = [{} for _ in range(partitions)]
        self._young_ms: Final = young_ms
        self._side = side
        self._rng = rng
        self._serial = 0
        self._open: list[tuple[Producer, int, Truth]] = []

    def grow(self) -> None:
        """Write to every partition, rarely nothing, after open transactions are ended."""
        for producer, partition, pending in self._open:
            self._end(producer, partition, pending)
        self._open.clear()
        for partition in range(len(self.truth)):
            kind = self._rng.choice((self._small, self._large, self._huge, self._transactions, self._nothing))
            kind(partition)
        self._await_markers()

    def _await_markers(self) -> None:
        """Wait until consumers can read what was committed: brokers write the markers after the producer has returned.

        Otherwise a copy is ordered up to a last stable offset that rises after it.
        """
        left_open = {partition for _, partition, _ in self._open}
        ended = [TopicPartition(self.topic, n) for n in range(len(self.truth)) if n not in left_open]

        def ends(isolation: IsolationLevel) -> list[int]:
            asked = self._side.admin.list_offsets({tp: OffsetSpec.latest() for tp in ended}, isolation_level=isolation)  # type: ignore[no-untyped-call]
            return [int(asked[tp].result(WITHIN_S).offset) for tp in ended]

        eventually(
            lambda: not ended or ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
            within_s=WITHIN_S,
            what=f"the markers of {self.topic}",
        )

    def settle(self) -> None:
        """End all open transactions."""
        for producer, partition, pending in self._open:
            self._end(producer, partition, pending)
        self._open.clear()

    # --- kinds of batches

    def _nothing(self, _partition: int) -> None:
        """Leave the partition idle."""

    def _small(self, partition: int) -> None:
        producer = self._shared(linger_ms=0, batch_num_messages=2)
        self._write(producer, partition, self._rng.randint(5, 150), 100)

    def _large(self, partition: int) -> None:
        producer = self._shared(linger_ms=50, batch_size=1_000_000, batch_num_messages=10_000)
        self._write(producer, partition, self._rng.randint(500, 2_500), 400)

    def _huge(self, partition: int) -> None:
        producer = self._shared(linger_ms=0, batch_num_messages=2)
        self._write(producer, partition, self._rng.randint(1, 4), 600_000)

    def _transactions(self, partition: int) -> None:
        """Write transactions of two producers, record by record; sometimes leave one open."""
        both = [self._transactional(f"{self.topic}.{partition}.{n}") for n in range(2)]
        pending: list[Truth] = [{}, {}]
        for producer in both:
            producer.init_transactions(WITHIN_S)
            producer.begin_transaction()
        for _ in range(self._rng.randint(1, 4)):
            for producer, truth in zip(both, pending, strict=True):
                self._write(producer, partition, self._rng.randint(1, 40), 300, into=truth)
        self._end(both[0], partition, pending[0])
        if self._rng.random() < 0.3:
            self._open.append((both[1], partition, pending[1]))
        else:
            self._end(both[1], partition, pending[1])

    def _end(self, producer: Producer, partition: int, pending: Truth) -> None:
        if self._rng.random() < 0.4:
            producer.abort_transaction(WITHIN_S)
        else:
            producer.commit_transaction(WITHIN_S)
            self.truth[partition] |= pending

    # --- records

    def _shared(self, **options: object) -> Producer:
        """Return a producer for all partitions and rounds: its start takes longer than its writes."""
        return _shared(self._side, self._rng.choice(CODECS), tuple(options.items()))

    def _transactional(self, name: str) -> Producer:
        # A transaction may stay open for longer than the default of a minute.
        codec, most_ms = self._rng.choice(CODECS), 600_000
        return self._side.producer(
            compression_type=codec, transactional_id=name, transaction_timeout_ms=most_ms, linger_ms=0, logger=_SILENT
        )

    def _write(self, producer: Producer, partition: int, count: int, size: int, into: Truth | None = None) -> None:
        truth, failures = self.truth[partition] if into is None else into, list[str]()
        for record in self._records(count, size):
            while True:
                try:
                    producer.produce(
                        self.topic,
                        record.value,
                        record.key,
                        partition,
                        timestamp=record.time_ms,
                        headers=list(record.headers),
                        on_delivery=_into(truth, record, failures),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(WITHIN_S) == 0
        assert not failures, failures[0]

    def _records(self, count: int, size: int) -> Iterator[Record]:
        rng = self._rng
        young_ms = int(time.time() * 1_000) - self._young_ms
        first_ms = FIRST_MS if rng.random() < self.old else young_ms
        for _ in range(count):
            self._serial += 1
            if rng.random() < _AGE_CHANGES:
                first_ms = FIRST_MS if rng.random() < self.old else young_ms
            key = b"k%d" % rng.randrange(12) if self.compacted or rng.random() < 0.8 else None
            body = rng.randbytes(rng.randint(0, size // 2)) + bytes(rng.randint(0, size // 2))
            value = None if rng.random() < 0.05 else body
            more = ((("empty", b""), ("null", None)) if rng.random() < 0.1 else ())[: rng.randint(0, 2)]
            headers = ((SERIAL, b"%d" % self._serial), *more)
            yield Record(key, value, headers, first_ms + self._serial)


@functools.cache
def _shared(side: Side, codec: str, options: tuple[tuple[str, object], ...]) -> Producer:
    return side.producer(compression_type=codec, logger=_SILENT, **dict(options))


def _into(truth: Truth, record: Record, failures: list[str]) -> Callable[[Any, Any], None]:
    def note(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            truth[message.offset()] = record

    return note
