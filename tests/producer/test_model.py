"""Any mixture of faults, against what the log must hold in the end (a Hypothesis state machine).

Every acknowledged batch is in the log exactly once and in order, at the offset that was told; every future has an
answer, in time; every buffer comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mirror.cluster.topics import TopicPartition
from mirror.errors import DeliveryTimeout
from mirror.producer.batches import ProducerBatch
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import values_of

_PARTITIONS, _NODES = 2, 3
_DELIVERY_MS, _REQUEST_MS = 12_000, 3_000
_partitions = st.integers(0, _PARTITIONS - 1)
_nodes = st.integers(1, _NODES)
_BEFORE_APPEND = [
    errors.NOT_ENOUGH_REPLICAS,
    errors.NOT_LEADER,
    errors.REQUEST_TIMED_OUT,
    errors.UNKNOWN_TOPIC_OR_PARTITION,
]
_AFTER_APPEND = [errors.REQUEST_TIMED_OUT, 20]
"""Answers that leave open whether the batch was written: it was."""


def _every(code: int) -> dict[TopicPartition | str, int]:
    return {TopicPartition("t", partition): code for partition in range(_PARTITIONS)}


_ACTIONS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"delay_ms": st.integers(1, 5_000)}),
    st.fixed_dictionaries({"stall_ms": st.integers(1, 5_000)}),
    st.fixed_dictionaries({"close": st.sampled_from(["before", "after"])}),
    st.fixed_dictionaries({"half": st.sampled_from(["silent", "close"])}),
    st.just({"silent": True}),
    st.fixed_dictionaries({"errors": st.sampled_from(_BEFORE_APPEND).map(_every)}),
    st.fixed_dictionaries({"errors": st.sampled_from(_AFTER_APPEND).map(_every), "handled": st.just(True)}),
    st.fixed_dictionaries({"errors": st.just(_every(errors.DUPLICATE_SEQUENCE)), "handled": st.just(True)}),
)


@dataclass(slots=True)
class _Sent:
    batch: ProducerBatch
    values: list[bytes]


class ProducerModel(RuleBasedStateMachine):
    """The real core, session and loop; brokers that check sequences as real ones do."""

    @initialize(in_flight=st.sampled_from([1, 2, 5]), seed=st.integers(0, 2**16), sequence=st.booleans())
    def begin(self, in_flight: int, seed: int, sequence: bool) -> None:
        self.cluster = FakeCluster(_NODES)
        self.cluster.add_topic("t", _PARTITIONS)
        self.producer = FakeProducer(
            self.cluster,
            seed=seed,
            **{
                "max.in.flight.requests.per.connection": in_flight,
                "delivery.timeout.ms": _DELIVERY_MS,
                "request.timeout.ms": _REQUEST_MS,
                "socket.connection.setup.timeout.ms": 1_000,
            },
        )
        self.sent: list[list[_Sent]] = [[] for _ in range(_PARTITIONS)]
        if sequence:
            self._go_near_the_wrap()

    def _go_near_the_wrap(self) -> None:
        """As if a great many batches had been written before."""
        for partition in range(_PARTITIONS):
            self.send(partition, 1)
        self.producer.run_for(1)
        for partition in range(_PARTITIONS):
            queue = self.producer.queue(TopicPartition("t", partition))
            state = next(iter(self.cluster.log("t", partition).producers.values()))
            queue.next_sequence = 2**31 - 3
            state.recent.clear()
            state.recent.append((2**31 - 4, 2**31 - 4, 0))

    @rule(partition=_partitions, records=st.integers(1, 3))
    def send(self, partition: int, records: int) -> None:
        mine = self.sent[partition]
        values = [b"%d/%d/%d" % (partition, len(mine), n) for n in range(records)]
        made = self.producer.prepare(TopicPartition("t", partition), *values)
        self.producer.send_batch(made)
        mine.append(_Sent(made, values))

    @rule(partition=_partitions, count=st.integers(2, 8))
    def send_many(self, partition: int, count: int) -> None:
        for _ in range(count):
            self.send(partition, 1)

    @rule(ms=st.sampled_from([1, 10, 90, 250, 1_000, 4_000]))
    def time_passes(self, ms: int) -> None:
        self.producer.run_for(ms)

    @rule(partition=_partitions, node=_nodes, later=st.integers(0, 500))
    def leader_moves(self, partition: int, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.move("t", partition, node))

    @rule(node=_nodes, later=st.integers(0, 500))
    def connections_break(self, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.disconnect(node))

    @rule(node=_nodes, ms=st.integers(1, 3_000))
    def broker_restarts(self, node: int, ms: int) -> None:
        self.cluster.kill(node)
        self.cluster.after(ms, lambda: self.cluster.start(node))

    @rule(action=_ACTIONS, times=st.integers(1, 3))
    def produce_fares_badly(self, action: dict[str, Any], times: int) -> None:
        for _ in range(times):
            self.cluster.control.on(Api.PRODUCE, Action(**action))

    @rule(api=st.sampled_from([Api.METADATA, Api.INIT_PRODUCER_ID]), close=st.sampled_from(["before", "after"]))
    def another_request_fares_badly(self, api: Api, close: Any) -> None:
        self.cluster.control.on(api, Action(close=close))

    @invariant()
    def nothing_is_in_a_log_twice_or_out_of_order(self) -> None:
        for partition, mine in enumerate(getattr(self, "sent", ())):
            values = self._log(partition)
            meant = [value for sent in mine for value in sent.values]
            positions = [meant.index(value) for value in values]
            assert positions == sorted(set(positions)), f"partition {partition}: {values}"

    @invariant()
    def nobody_waits_longer_than_the_delivery_timeout(self) -> None:
        for mine in getattr(self, "sent", ()):
            for sent in mine:
                told = self.producer._answered_ms.get(sent.batch.future, self.producer.now)
                assert told <= sent.batch.created_ms + _DELIVERY_MS

    def _log(self, partition: int) -> list[bytes]:
        return [value for one in self.cluster.log("t", partition).batches() for value in values_of(one.view)]

    def teardown(self) -> None:
        if not hasattr(self, "sent"):
            return
        self.cluster.control.clear()
        self.producer.run_for(_DELIVERY_MS + _REQUEST_MS + 2_000)
        for partition, mine in enumerate(self.sent):
            assert all(sent.batch.future.done() for sent in mine), "every future has an answer"
            self._check_acknowledged(partition, mine)
        self.nothing_is_in_a_log_twice_or_out_of_order()
        assert self.producer.released == self.producer.taken

    def _check_acknowledged(self, partition: int, mine: list[_Sent]) -> None:
        log = self._log(partition)
        for sent in mine:
            error = sent.batch.future.exception(0)
            if isinstance(error, DeliveryTimeout) and not error.may_have_been_written:
                assert not set(sent.values) & set(log), "what was called not written is written"
            if error is not None:
                continue
            assert all(log.count(value) == 1 for value in sent.values), f"{sent.values} in {log}"
            offset = sent.batch.future.result(0).base_offset
            assert offset in {-1, log.index(sent.values[0])}


TestProducerModel = ProducerModel.TestCase
TestProducerModel.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
