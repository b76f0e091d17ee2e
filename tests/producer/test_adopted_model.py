"""Attempts that fence a partition one after the other, in two processes, under any mixture of faults (Hypothesis).

Whatever a former attempt still sends, and however late its batches arrive: the log has a prefix of each attempt's
chain, once and in order, and nothing of an attempt behind a later attempt's fence; what was acknowledged is there, at
its offset; every future has an answer, in time; every buffer comes back; and a last attempt can always write.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mirror.cluster.loop import LeaveEvent
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, ClientClosed, DeliveryTimeout, KafkaError
from mirror.producer.batch.batches import RecordMetadata
from mirror.producer.batch.queue import ProducerId
from mirror.wire.api import Api
from tests.examples import examples
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import values_of
from tests.producer.faults import LOST, NODES, PARTITIONS, PRODUCE, TOPIC, Fault, Knobs, action, fault

_DELIVERY_MS, _REQUEST_MS = 12_000, 3_000
_SENDERS = 2
_MS = st.sampled_from([0, 1, 10, 90, 250, 1_000, 4_000])
_partitions = st.integers(0, PARTITIONS - 1)
_nodes = st.integers(1, NODES)
_FAULTS: st.SearchStrategy[Fault] = st.one_of(
    fault("leader_moves", partition=_partitions, node=_nodes, later=st.sampled_from([0, 1, 50, 500])),
    fault("connections_break", node=_nodes, later=st.sampled_from([0, 1, 50, 500])),
    fault("produce_fares_badly", knobs=PRODUCE, times=st.integers(1, 3)),
    fault("transactions_fare_badly", api=st.sampled_from([Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN]), knobs=LOST),
    fault("what_was_sent_on_broken_connections_comes_late", ms=st.sampled_from([None, 0, 10, 700, 5_000, 15_000])),
)
_BURSTS = st.tuples(_partitions, st.integers(0, 2), st.sampled_from([1, 2, 4, 7]), st.sampled_from([1, 1, 3]))
"""Of which partition, by how old an attempt, how many batches, of how many records."""


@dataclass(slots=True, eq=False)
class _Attempt:
    """A chain of one partition, and what was sent in it: the values of each batch, with its future."""

    number: int
    producer: FakeProducer
    identity: ProducerId
    sent: list[tuple[list[bytes], Future[RecordMetadata], int]] = field(default_factory=list)


class AdoptionModel(RuleBasedStateMachine):
    """The real cores in one loop; brokers that check sequences and epochs as real ones do."""

    @initialize(in_flight=st.integers(1, 5), version=st.sampled_from([1, 2]), seed=st.integers(0, 2**16))
    def begin(self, in_flight: int, version: int, seed: int) -> None:
        self.cluster = FakeCluster(NODES)
        self.cluster.features["transaction.version"] = version
        self.cluster.add_topic(TOPIC, PARTITIONS)
        options = {
            "max.in.flight.requests.per.connection": in_flight,
            "delivery.timeout.ms": _DELIVERY_MS,
            "request.timeout.ms": _REQUEST_MS,
            "socket.connection.setup.timeout.ms": 1_000,
        }
        first = FakeProducer(self.cluster, seed=seed, **options)
        self.senders = [first, *(FakeProducer(self.cluster, first, **options) for _ in range(_SENDERS - 1))]
        self.loop = first
        self.attempts: list[list[_Attempt]] = [[] for _ in range(PARTITIONS)]
        for partition in range(PARTITIONS):
            self.open(partition, 0, release=False)

    # --- what happens

    @rule(partition=_partitions, sender=st.integers(0, _SENDERS - 1), release=st.booleans())
    def open(self, partition: int, sender: int, release: bool) -> None:
        """Another attempt: it fences, waits for its marker, and adopts; sometimes the last one has ended before."""
        mine, tp = self.attempts[partition], TopicPartition(TOPIC, partition)
        if release and mine:
            mine[-1].producer.release(tp)
        fence = FakeProducer(self.cluster, self.loop, **{"transactional.id": f"x{partition}"})
        fence.finish(fence.init_async(200_000))
        fence.begin()
        fence.add_partitions(tp)
        fence.finish(fence.commit(200_000))
        identity = fence.core.identity
        assert identity is not None
        fence.submit(None, LeaveEvent(fence.core, *fence.timer()))
        self.loop.run_until(lambda: self._known_epoch(partition, identity.producer_id) == identity.epoch)
        attempt = _Attempt(len(mine), self.senders[sender], identity)
        attempt.producer.adopt(tp, identity, attempt.number)
        mine.append(attempt)

    def _known_epoch(self, partition: int, producer_id: int) -> int:
        state = self.cluster.log(TOPIC, partition).producers.get(producer_id)
        return -1 if state is None else state.epoch

    @rule(faults=st.lists(_FAULTS, max_size=2), bursts=st.lists(_BURSTS, min_size=1, max_size=4), ms=_MS)
    def faults_and_load(self, faults: list[Fault], bursts: list[tuple[int, int, int, int]], ms: int) -> None:
        for name, arguments in faults:
            getattr(self, name)(**arguments)
        for partition, age, batches, records in bursts:
            mine = self.attempts[partition]
            for _ in range(batches):
                self.send(partition, mine[max(0, len(mine) - 1 - age)], records)
        self.loop.run_for(ms)

    def send(self, partition: int, attempt: _Attempt, records: int) -> Future[RecordMetadata]:
        first = sum(len(values) for values, _, _ in attempt.sent)
        values = [b"%d/%d/%d" % (partition, attempt.number, first + n) for n in range(records)]
        future = attempt.producer.send_in_chain(TopicPartition(TOPIC, partition), attempt.number, *values)
        attempt.sent.append((values, future, self.loop.now))
        return future

    # --- faults, by name

    def leader_moves(self, partition: int, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.move(TOPIC, partition, node))

    def connections_break(self, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.disconnect(node))

    def produce_fares_badly(self, knobs: Knobs, times: int) -> None:
        for _ in range(times):
            self.cluster.control.on(Api.PRODUCE, action(knobs))

    def transactions_fare_badly(self, api: Api, knobs: Knobs) -> None:
        self.cluster.control.on(api, action(knobs))

    def what_was_sent_on_broken_connections_comes_late(self, ms: int | None) -> None:
        self.cluster.works_off_ms = ms

    # --- what must hold

    @invariant()
    def the_log_has_a_prefix_of_each_chain_before_the_next_fence(self) -> None:
        for partition, mine in enumerate(getattr(self, "attempts", ())):
            log = _values(self.cluster, partition)
            assert [_number(value) for value in log] == sorted(map(_number, log)), log
            for attempt in mine:
                written = [value for value in log if _number(value) == attempt.number]
                wanted = [value for values, _, _ in attempt.sent for value in values]
                assert written == wanted[: len(written)], log

    @invariant()
    def batches_carry_the_identity_of_their_fence(self) -> None:
        for partition, mine in enumerate(getattr(self, "attempts", ())):
            for one in self.cluster.log(TOPIC, partition).batches():
                if not one.is_control:
                    identity = mine[_number(values_of(one.view)[0])].identity
                    assert (one.producer_id, one.producer_epoch) == identity
        if hasattr(self, "senders"):
            assert all(sender.core.producer_id == -1 for sender in self.senders), "no producer id was requested"

    def teardown(self) -> None:
        if not hasattr(self, "attempts"):
            return
        self.cluster.control.clear()
        self.loop.run_for(_DELIVERY_MS + _REQUEST_MS + 2_000)
        for partition, mine in enumerate(self.attempts):
            log = _offsets(self.cluster, partition)
            for attempt in mine:
                for sent in attempt.sent:
                    self._check_answer(attempt.producer, log, *sent)
            self.open(partition, partition % _SENDERS, release=True)
            mine[-1].producer.finish(self.send(partition, mine[-1], 1), within_ms=5_000)
        self.the_log_has_a_prefix_of_each_chain_before_the_next_fence()
        for sender in self.senders:
            assert sender.released == sender.taken
            assert not sender.core.batches.busy

    def _check_answer(
        self,
        producer: FakeProducer,
        log: dict[bytes, int],
        values: list[bytes],
        future: Future[RecordMetadata],
        sent_ms: int,
    ) -> None:
        assert future.done(), "every future has an answer"
        assert producer.answered_ms[future] <= sent_ms + _DELIVERY_MS
        error = future.exception(0)
        if error is None:
            offset = future.result(0).base_offset
            assert log[values[0]] == offset or offset < 0
            return
        assert isinstance(error, (DeliveryTimeout, ClientClosed, BrokerError)), error
        assert isinstance(error, KafkaError)
        assert error.may_have_been_written or values[0] not in log, "what was called not written is written"


def _number(value: bytes) -> int:
    """Of the attempt that wrote it."""
    return int(value.split(b"/")[1])


def _offsets(cluster: FakeCluster, partition: int) -> dict[bytes, int]:
    batches = [one for one in cluster.log(TOPIC, partition).batches() if not one.is_control]
    return {value: one.base_offset + n for one in batches for n, value in enumerate(values_of(one.view))}


def _values(cluster: FakeCluster, partition: int) -> list[bytes]:
    batches = cluster.log(TOPIC, partition).batches()
    return [value for one in batches if not one.is_control for value in values_of(one.view)]


TestAdoptionModel = AdoptionModel.TestCase
TestAdoptionModel.settings = settings(max_examples=examples(15, 40), stateful_step_count=20, deadline=None)
