"""One partition's queue against a broker that checks sequences, step by step: no loop, no network, no frames.

Between a drain and its answer anything may come: expiries, lost answers, broken connections, late copies of what was
sent before, a broker that says too little. Sequences and epochs must carry all of it.
"""

from __future__ import annotations

import itertools
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror.cluster.connection.pools import Slot
from mirror.cluster.types import TopicPartition
from mirror.errors import ConnectionFailed, DeliveryTimeout
from mirror.producer.batch.batches import ProducerBatch, RecordMetadata
from mirror.producer.batch.queue import LAST_EPOCH, PartitionQueue, ProducerId
from mirror.wire.messages.produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic
from mirror.wire.records import Batch
from tests.examples import examples
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import values_of

_TP = TopicPartition("t", 0)
_DELIVERY_MS = 1_000
_UNWRITTEN = st.sampled_from([errors.NOT_ENOUGH_REPLICAS, errors.NOT_LEADER, errors.REQUEST_TIMED_OUT])
_WRITTEN = st.sampled_from(
    [errors.REQUEST_TIMED_OUT, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, errors.DUPLICATE_SEQUENCE]
)


@dataclass(slots=True, eq=False)
class _Attempt:
    """A batch on the wire, as it was when it left."""

    batch: ProducerBatch
    data: bytes
    answer: tuple[int, int] | None = None


class QueueModel(RuleBasedStateMachine):
    """The real accumulator, queue, identity and reader of answers, turned by hand."""

    @initialize(
        in_flight=st.integers(1, 5),
        sequence=st.sampled_from([0, 2**31 - 2]),
        epoch=st.sampled_from([0, LAST_EPOCH - 1]),
    )
    def begin(self, in_flight: int, sequence: int, epoch: int) -> None:
        cluster = FakeCluster()
        cluster.add_topic("t")
        self.log = cluster.log("t")
        self.producer = FakeProducer(
            cluster, **{"delivery.timeout.ms": _DELIVERY_MS, "request.timeout.ms": 500, "retry.backoff.ms": 1}
        )
        core = self.producer.core
        self.batches, self.answers, self.identity = core.batches, core._sender._responses, core._identity
        self.ids = itertools.count(1)
        self.in_flight = in_flight
        self.now = 0
        self.sent: list[tuple[list[bytes], ProducerBatch]] = []
        self.order: dict[bytes, int] = {}
        self.batch_of: dict[bytes, int] = {}
        self.wire: deque[_Attempt] = deque()
        self.late: deque[_Attempt] = deque()
        self.completed_ms: dict[Future[RecordMetadata], int] = {}
        self.send(1)
        self._settle()
        if sequence or epoch:
            self._wrote_much(sequence, epoch)

    def _wrote_much(self, sequence: int, epoch: int) -> None:
        ((producer_id, state),) = self.log.producers.items()
        queue = self.queue
        queue.identity, queue.next_sequence = ProducerId(producer_id, epoch), sequence
        state.epoch = epoch
        state.recent.clear()
        state.recent.append(((sequence - 1) % 2**31, (sequence - 1) % 2**31, 0))

    @property
    def queue(self) -> PartitionQueue:
        return self.batches.queue(_TP)

    # --- the application, and the sender

    @rule(records=st.integers(1, 3))
    def send(self, records: int) -> None:
        values = [b"%d" % (len(self.order) + n) for n in range(records)]
        made = self.producer.prepare(_TP, *values, created_ms=self.now)
        made.future.add_done_callback(lambda done: self.completed_ms.setdefault(done, self.now))
        self.batch_of |= dict.fromkeys(values, len(self.sent))
        self.order |= {value: len(self.order) + n for n, value in enumerate(values)}
        self.sent.append((values, made))
        self.batches.append(made)

    @rule(most=st.integers(1, 5))
    def drain(self, most: int = 1) -> None:
        for _ in range(most):
            if not self.queue.sendable(self.in_flight, self.now):
                return
            if not self.identity.may_send(self.queue):
                self.identity.identity = self.identity.identity or ProducerId(next(self.ids), 0)
                if not self.identity.may_send(self.queue):
                    return
            batch = self.queue.drain(Slot(1, 1), self.now, transactional=False)
            self.wire.append(_Attempt(batch, bytes(batch.seal().view)))

    @rule(ms=st.sampled_from([1, 100, 500, _DELIVERY_MS]))
    def time_passes(self, ms: int) -> None:
        next_ms = self.batches.expire(self.now)
        self.now += min(ms, next_ms)
        self.batches.expire(self.now)

    # --- the broker: handles in order, answers in order

    def _unhandled(self) -> _Attempt | None:
        return next((one for one in self.wire if one.answer is None), None)

    @rule()
    @precondition(lambda self: self._unhandled() is not None)
    def broker_handles(self) -> None:
        attempt = self._unhandled()
        assert attempt is not None
        attempt.answer = self.log.produce(attempt.data)

    @rule(code=_UNWRITTEN)
    @precondition(lambda self: self._unhandled() is not None)
    def broker_refuses(self, code: int) -> None:
        attempt = self._unhandled()
        assert attempt is not None
        attempt.answer = code, -1

    @rule(code=_WRITTEN)
    @precondition(lambda self: self._unhandled() is not None)
    def broker_writes_and_says_otherwise(self, code: int) -> None:
        attempt = self._unhandled()
        assert attempt is not None
        refused, _ = self.log.produce(attempt.data)
        attempt.answer = refused or code, -1

    @rule()
    @precondition(lambda self: self.wire and self.wire[0].answer is not None)
    def answer_comes(self) -> None:
        attempt = self.wire.popleft()
        assert attempt.answer is not None
        result = ProduceResponsePartition(0, *attempt.answer)
        response = ProduceResponse((ProduceResponseTopic("t", None, (result,)),))
        self.answers.on_response(response, [attempt.batch], self.now)

    @rule()
    @precondition(lambda self: self.wire)
    def connection_breaks(self) -> None:
        """What was not handled may be, later."""
        lost, self.wire = self.wire, deque()
        for attempt in lost:
            self.answers.on_failure(ConnectionFailed("broken"), [attempt.batch], self.now)
        self.late += [attempt for attempt in lost if attempt.answer is None]

    @rule()
    @precondition(lambda self: self.late)
    def late_copy_arrives(self) -> None:
        self.log.produce(self.late.popleft().data)

    @rule()
    @precondition(lambda self: self.late)
    def late_copy_is_lost(self) -> None:
        self.late.popleft()

    # --- what must hold

    def _values(self) -> list[bytes]:
        return [value for one in self.log.batches() for value in values_of(one.view)]

    @invariant()
    def the_log_is_in_order(self) -> None:
        if not hasattr(self, "log"):
            return
        assert len(self._values()) == len(set(self._values())), self._values()
        positions = [
            self.order[value] for one in self.log.batches() for value in values_of(one.view) if self._kept(one)
        ]
        assert positions == sorted(positions), self._values()

    def _kept(self, one: Batch) -> bool:
        """No later epoch shuts out those of a producer id that is used up: what was given up may come at any time."""
        _, made = self.sent[self.batch_of[values_of(one.view)[0]]]
        leave_gap = made.future.done() and made.future.exception(0) is not None
        assert self.queue.identity is not None
        return not (leave_gap and one.producer_id != self.queue.identity.producer_id)

    @invariant()
    def nobody_waits_longer_than_the_delivery_timeout(self) -> None:
        for _, made in getattr(self, "sent", ()):
            assert self.completed_ms.get(made.future, self.now) <= made.created_ms + _DELIVERY_MS

    def _settle(self) -> None:
        """A broker without faults: everything that waits is acknowledged, or expires (in doubt behind a gap)."""
        for _ in range(_DELIVERY_MS // 5):
            self.time_passes(10)
            self.drain(5)
            while self.wire:
                if self._unhandled() is not None:
                    self.broker_handles()
                self.answer_comes()
        assert not self.queue.waiting
        assert not self.queue.in_flight

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        self._settle()
        while self.late:
            self.late_copy_arrives()
        self.the_log_is_in_order()
        log = self._values()
        for values, made in self.sent:
            error = made.future.exception(0)
            if error is None:
                assert all(log.count(value) == 1 for value in values), f"{values} of {log}"
                assert made.future.result(0).base_offset in {-1, log.index(values[0])}
            else:
                assert isinstance(error, DeliveryTimeout), error
                assert error.may_have_been_written or not set(values) & set(log), f"{values} in {log}"


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=examples(60, 150), stateful_step_count=40, deadline=None)
