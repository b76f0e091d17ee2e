"""Any mixture of faults, against what the log must hold in the end (a Hypothesis state machine).

Every acknowledged record is in the log exactly once and in order, at the offset that was reported; what was called not
written is not there; every future has an answer, in time; every buffer comes back; the loop never spins; and when the
faults are over, everything goes on.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mirror.cluster.types import TopicPartition
from mirror.errors import DeliveryTimeout, KafkaError, RecordTooLarge
from mirror.producer.batch.batches import RecordMetadata
from mirror.producer.batch.queue import LAST_EPOCH, ProducerId
from mirror.wire.api import Api
from tests.examples import examples
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster, FakeTopic
from tests.fakes.record_batches import values_of
from tests.producer.faults import (
    LOST,
    NODES,
    PARTITIONS,
    PRODUCE,
    REFUSED_FOR_LONG,
    TOPIC,
    Fault,
    Knobs,
    action,
    fault,
    for_a_while,
)

_DELIVERY_MS, _REQUEST_MS = 12_000, 3_000
_TIGHT_BYTES = 80
"""Room for a batch of one record, and not for one of two."""
_MS = st.sampled_from([0, 1, 10, 90, 250, 1_000, 4_000])
_partitions = st.integers(0, PARTITIONS - 1)
_nodes = st.integers(1, NODES)
_in_ms = st.sampled_from([0, 1, 50, 500, 3_000])
_BURSTS = st.tuples(_partitions, st.sampled_from([1, 1, 2, 4, 7]), st.sampled_from([1, 1, 2, 3]), st.booleans())
"""Of which partition, how many batches, of how many records, and whether they still take records."""
_FAULTS: st.SearchStrategy[Fault] = st.one_of(
    fault("leader_moves", partition=_partitions, node=_nodes, later=_in_ms),
    fault("leader_flaps", partition=_partitions),
    fault("connections_break", node=_nodes, later=_in_ms),
    fault("broker_restarts", node=_nodes, ms=st.sampled_from([1, 300, 3_000, 13_000])),
    fault("produce_fares_badly", knobs=PRODUCE, times=st.integers(1, 3)),
    fault("produce_is_refused_for_a_while", knobs=REFUSED_FOR_LONG, ms=st.sampled_from([1_000, _DELIVERY_MS])),
    fault("another_request_fares_badly", api=st.sampled_from([Api.METADATA, Api.INIT_PRODUCER_ID]), knobs=LOST),
    fault("what_was_sent_on_broken_connections_comes_late", ms=st.sampled_from([None, 0, 10, 700, 5_000, 15_000])),
    fault("the_topic_takes_only_small_batches"),
    fault("the_topic_takes_all_batches"),
    fault("the_topic_is_made_again", later=_in_ms),
)


@dataclass(slots=True)
class _Record:
    """``future`` is the record's own, or its batch's, in which it is the record number ``within``."""

    value: bytes
    future: Future[RecordMetadata]
    within: int
    created_ms: int


class ProducerModel(RuleBasedStateMachine):
    """The real core, session and loop; brokers that check sequences as real ones do."""

    @initialize(
        in_flight=st.integers(1, 5),
        seed=st.integers(0, 2**16),
        linger_ms=st.sampled_from([0, 20]),
        sequence=st.sampled_from([None, 2**31 - 3, 2**31 - 1]),
        epoch=st.sampled_from([0, LAST_EPOCH - 1]),
    )
    def begin(self, in_flight: int, seed: int, linger_ms: int, sequence: int | None, epoch: int) -> None:
        self.cluster = FakeCluster(NODES)
        self.topics = [self.cluster.add_topic(TOPIC, PARTITIONS)]
        self.producer = FakeProducer(
            self.cluster,
            seed=seed,
            **{
                "max.in.flight.requests.per.connection": in_flight,
                "delivery.timeout.ms": _DELIVERY_MS,
                "request.timeout.ms": _REQUEST_MS,
                "linger.ms": linger_ms,
                "socket.connection.setup.timeout.ms": 1_000,
            },
        )
        self.sent: list[list[_Record]] = [[] for _ in range(PARTITIONS)]
        self.tight = False
        if sequence is not None:
            self._wrote_much(sequence, epoch)

    def _wrote_much(self, sequence: int, epoch: int) -> None:
        """As if a great many batches had been written before, and many epochs used up."""
        for partition in range(PARTITIONS):
            self.send(partition, 1, opened=False)
        self.producer.run_for(50)
        for partition in range(PARTITIONS):
            queue = self.producer.queue(TopicPartition(TOPIC, partition))
            ((producer_id, state),) = self.cluster.log(TOPIC, partition).producers.items()
            queue.identity, queue.next_sequence = ProducerId(producer_id, epoch), sequence
            state.epoch = epoch
            state.recent.clear()
            state.recent.append((sequence - 1, sequence - 1, 0))

    # --- what happens

    @rule(faults=st.lists(_FAULTS, max_size=2), bursts=st.lists(_BURSTS, min_size=1, max_size=4), ms=_MS)
    def faults_and_load(self, faults: list[Fault], bursts: list[tuple[int, int, int, bool]], ms: int) -> None:
        for name, arguments in faults:
            getattr(self, name)(**arguments)
        for partition, batches, records, opened in bursts:
            for _ in range(batches):
                self.send(partition, records, opened=opened)
        self.producer.run_for(ms)

    @rule(ms=_MS)
    def time_passes(self, ms: int) -> None:
        self.producer.run_for(ms)

    @rule()
    def flush(self) -> None:
        self.producer.flush()

    def send(self, partition: int, records: int, *, opened: bool) -> None:
        producer, mine, tp = self.producer, self.sent[partition], TopicPartition(TOPIC, partition)
        values = [b"%d/%d" % (partition, len(mine) + n) for n in range(records)]
        if opened:
            made, futures = producer.prepare_open(tp, *values)
            own = [(future, 0) for future in futures]
        else:
            made = producer.prepare(tp, *values)
            own = [(made.future, n) for n in range(records)]
        producer.send_batch(made)
        for value, (future, within) in zip(values, own, strict=True):
            mine.append(_Record(value, future, within, producer.now))

    # --- faults, by name

    def leader_moves(self, partition: int, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.move(TOPIC, partition, node))

    def leader_flaps(self, partition: int) -> None:
        for turn in range(6):
            self.leader_moves(partition, turn % 2 + 1, 40 * turn)

    def connections_break(self, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.disconnect(node))

    def broker_restarts(self, node: int, ms: int) -> None:
        self.cluster.kill(node)
        self.cluster.after(ms, lambda: self.cluster.start(node))

    def produce_fares_badly(self, knobs: Knobs, times: int) -> None:
        for _ in range(times):
            self.cluster.control.on(Api.PRODUCE, action(knobs))

    def produce_is_refused_for_a_while(self, knobs: Knobs, ms: int) -> None:
        for_a_while(self.cluster, Api.PRODUCE, knobs, ms)

    def another_request_fares_badly(self, api: Api, knobs: Knobs) -> None:
        self.cluster.control.on(api, action(knobs))

    def what_was_sent_on_broken_connections_comes_late(self, ms: int | None) -> None:
        self.cluster.works_off_ms = ms

    def the_topic_takes_only_small_batches(self) -> None:
        self.tight = True
        self.cluster.topics[TOPIC].configs["max.message.bytes"] = str(_TIGHT_BYTES)

    def the_topic_takes_all_batches(self) -> None:
        self.cluster.topics[TOPIC].configs.clear()

    def the_topic_is_made_again(self, later: int) -> None:
        """Under another id, and empty. What was acknowledged before is gone, and rightly so."""
        self.cluster.after(later, lambda: self.topics.append(self.cluster.add_topic(TOPIC, PARTITIONS)))

    # --- what must hold

    @invariant()
    def nothing_is_in_a_log_twice_or_out_of_order(self) -> None:
        for partition, mine in enumerate(getattr(self, "sent", ())):
            order = {record.value: place for place, record in enumerate(mine)}
            leave_gap = {record.value for record in mine if record.future.done() and record.future.exception(0)}
            for topic in self.topics:
                log = _values(topic, partition)
                assert len(log) == len(set(log)), f"partition {partition}: {log}"
                # No later epoch shuts out those of a producer id that is used up: what was given up may come late.
                loose = leave_gap - set(_values(topic, partition, self._producer_id(partition)))
                positions = [order[value] for value in log if value not in loose]
                assert positions == sorted(positions), f"partition {partition}: {log}"

    @invariant()
    def nobody_waits_longer_than_the_delivery_timeout(self) -> None:
        for mine in getattr(self, "sent", ()):
            for record in mine:
                result = self.producer.answered_ms.get(record.future, self.producer.now)
                assert result <= record.created_ms + _DELIVERY_MS

    @invariant()
    def the_loop_never_spins(self) -> None:
        if hasattr(self, "sent"):
            producer = self.producer
            reasons = len(self.cluster.received) + sum(map(len, self.sent)) + len(producer.network.attempts)
            assert producer.turns <= 100 + 20 * reasons + producer.now // 20

    def _producer_id(self, partition: int) -> int | None:
        queue = self.producer.core.batches._queues.get(TopicPartition(TOPIC, partition))
        return queue.identity.producer_id if queue is not None and queue.identity is not None else None

    def teardown(self) -> None:
        if not hasattr(self, "sent"):
            return
        self.cluster.control.clear()
        self.producer.run_for(_DELIVERY_MS + _REQUEST_MS + 2_000)
        for partition, mine in enumerate(self.sent):
            assert all(record.future.done() for record in mine), "every future has an answer"
            self._check_answers(mine, [_values(topic, partition) for topic in self.topics])
        self._everything_goes_on()
        self.nothing_is_in_a_log_twice_or_out_of_order()
        assert self.producer.released == self.producer.taken
        assert not self.producer.core.batches.busy

    def _check_answers(self, mine: list[_Record], logs: list[list[bytes]]) -> None:
        for record in mine:
            error = record.future.exception(0)
            offsets = [log.index(record.value) for log in logs if record.value in log]
            if error is None:
                metadata = record.future.result(0)
                assert offsets, f"{record.value!r} was acknowledged, and the logs have {logs}"
                assert metadata.base_offset < 0 or metadata.offset + record.within in offsets
                continue
            assert isinstance(error, DeliveryTimeout) or (self.tight and isinstance(error, RecordTooLarge)), error
            assert isinstance(error, KafkaError)
            assert error.may_have_been_written or not offsets, "what was called not written is written"

    def _everything_goes_on(self) -> None:
        self.the_topic_takes_all_batches()
        for partition in range(PARTITIONS):
            self.send(partition, 1, opened=False)
            self.producer.finish(self.sent[partition][-1].future, within_ms=5_000)


def _values(topic: FakeTopic, partition: int, by: int | None = None) -> list[bytes]:
    """The values in a log; with ``by``, those of this producer id."""
    batches = topic.partitions[partition].batches()
    return [value for one in batches if by in {None, one.producer_id} for value in values_of(one.view)]


TestProducerModel = ProducerModel.TestCase
TestProducerModel.settings = settings(max_examples=examples(15, 40), stateful_step_count=20, deadline=None)
