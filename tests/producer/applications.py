"""Applications that use transactions, and what became of each, for the model tests: the oracle's half."""

from __future__ import annotations

import enum
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaTimeout, NeedsAbort
from mirror.producer.batch.batches import RecordMetadata
from mirror.producer.batch.queue import ProducerId
from tests.fakes.client import FakeProducer

MOST = 100_000
"""More than one application writes: its offsets are its number times this, and what it has written so far."""


class Outcome(enum.Enum):
    OPEN = "not asked to commit: nothing of it may be seen"
    COMMITTED = "all of it must be seen"
    ABORTED = "nothing of it may be seen"
    UNKNOWN = "asked to commit, without an answer: all or nothing"


@dataclass(slots=True, eq=False)
class Txn:
    """``values`` are unique, and so are ``offsets``, each for a partition of its own in the application's group."""

    values: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    futures: list[Future[RecordMetadata]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    outcome: Outcome = Outcome.OPEN


class Phase(enum.Enum):
    NEW = "new"
    READY = "ready"
    OPEN = "in a transaction"
    ENDING = "ending it"
    DEAD = "dead"


class Application:
    """Uses a producer as the documentation says: aborts where it must, asks again where it ran out of time.

    ``died_of`` is the error after which it could only give up; ``name`` its transactional.id; ``number`` its own
    number; ``born_as`` the id and epoch that it was given first: a higher one of the same ``name`` has fenced it.
    """

    def __init__(self, producer: FakeProducer, name: str, number: int) -> None:
        self.producer = producer
        self.name = name
        self.number = number
        self.phase = Phase.NEW
        self.died_of: BaseException | None = None
        self.born_as: ProducerId | None = None
        self.txns: list[Txn] = []
        self.asked: list[Future[None]] = []
        self.created_ms: dict[Future[RecordMetadata], int] = {}
        self._call: Any = None
        self._pending: Future[None] | None = None
        self._written = 0
        self._ask(producer.init_async)

    # --- what it does next

    @property
    def waits(self) -> bool:
        """Whether a call is under way."""
        return self._pending is not None and not self._pending.done()

    @property
    def has_news(self) -> bool:
        """Whether an answer has come that it has not looked at."""
        return self._pending is not None and self._pending.done()

    def look(self) -> None:
        """Take note of an answer that has come."""
        if not self.has_news or self._pending is None:
            return
        pending, self._pending = self._pending, None
        error = pending.exception(0)
        if error is None:
            self._succeeded()
        elif isinstance(error, KafkaTimeout):
            self._ask(self._call)  # the same again joins it
        elif isinstance(error, NeedsAbort):
            self.abort()
        else:
            self.phase, self.died_of = Phase.DEAD, error

    def _succeeded(self) -> None:
        if self._call == self.producer.commit:
            self.txns[-1].outcome = Outcome.COMMITTED
        elif self._call == self.producer.abort:
            self.txns[-1].outcome = Outcome.ABORTED
        self.born_as = self.born_as or self.producer.core.transactions.identity
        self.phase = Phase.READY

    def begin(self) -> None:
        self.producer.begin()
        self.txns.append(Txn())
        self.phase = Phase.OPEN

    def send(self, tp: TopicPartition, records: int) -> None:
        txn = self.txns[-1]
        values = [f"{self.name}/{self.number}/{self._written + n}".encode() for n in range(records)]
        self._written += records
        txn.values += [(tp, value) for value in values]
        txn.futures.append(self.producer.send(tp, *values))
        self.created_ms[txn.futures[-1]] = self.producer.now

    def add_offsets(self, timeout_ms: int) -> None:
        """An application in doubt about them aborts, as the relay does."""
        self._written += 1
        offset = self.number * MOST + self._written
        partition = TopicPartition("source", len(self.txns[-1].offsets))
        self.txns[-1].offsets.append(offset)
        done = self.producer.add_offsets(self.group, {partition: offset}, timeout_ms)
        self.asked.append(done)

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    def commit(self, timeout_ms: int) -> None:
        self.txns[-1].outcome = Outcome.UNKNOWN
        self.phase = Phase.ENDING
        self._ask(self.producer.commit, timeout_ms)

    def abort(self, timeout_ms: int = 60_000) -> None:
        self.txns[-1].outcome = Outcome.ABORTED
        self.phase = Phase.ENDING
        self._ask(self.producer.abort, timeout_ms)

    def _ask(self, call: Any, timeout_ms: int = 60_000) -> None:
        self._call = call
        self._pending = call(timeout_ms)
        self.asked.append(self._pending)
