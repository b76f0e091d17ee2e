"""The calls of a transactional producer on a real broker: what they allow, wait for and leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

from mirror.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from mirror.errors import ClientClosed, ConfigError, Fenced, InvalidArgument, KafkaTimeout, NeedsAbort, WrongState
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.conformance.conftest import NewConsumer
from tests.conformance.topics import Topics, read
from tests.faults.proxy import Action, Fault, Proxy
from tests.stalls import Stalls

pytestmark = pytest.mark.brokers

NewProducer = Callable[..., Producer]


@pytest.fixture
def new_producer(proxy: Proxy, unique: Callable[[str], str]) -> Iterator[NewProducer]:
    """``new_producer(**{dotted keys})``, through the proxy; closed at the end without waiting."""
    producers: list[Producer] = []

    def make(**options: object) -> Producer:
        given = {"bootstrap.servers": proxy.bootstrap_servers, "transactional.id": unique("transactions")}
        producers.append(Producer({**given, **options}))
        return producers[-1]

    yield make
    for producer in producers:
        producer.close(timeout_ms=0)


@pytest.fixture
def committed(broker: Cluster, new_consumer: NewConsumer) -> Callable[[TopicPartition, int], list[bytes]]:
    """``committed(tp, count)``: the values of the first ``count`` records that readers of committed ones see."""

    def values(tp: TopicPartition, count: int) -> list[bytes]:
        consumer: Consumer = new_consumer(broker.bootstrap_servers, **{"isolation.level": "read_committed"})
        consumer.assign([tp])
        return [value for _, value in read(consumer, count)]

    return values


Committed = Callable[[TopicPartition, int], list[bytes]]


def _wrong(call: Callable[[], object]) -> str:
    with pytest.raises(WrongState) as wrong:
        call()
    return str(wrong.value)


def test_committed_is_seen_and_aborted_is_not(topics: Topics, new_producer: NewProducer, committed: Committed) -> None:
    tps = topics.create(2)
    producer = new_producer()
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for tp in tps:
            producer.send(*tp, value=b"%d" % number)
        producer.abort_transaction() if number % 2 else producer.commit_transaction()
    for tp in tps:
        assert committed(tp, 3) == [b"0", b"2", b"4"]


def test_offsets_are_committed_with_the_transaction_and_only_with_it(
    broker: Cluster, topics: Topics, new_producer: NewProducer, unique: Callable[[str], str]
) -> None:
    first, second = topics.create(2)
    group = unique("group")
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({first: 5}, group)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({second: OffsetAndMetadata(7, 0, "note")}, group)
    producer.send_offsets_to_transaction({}, group)
    producer.commit_transaction()
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert admin.group_offsets(group) == {second: OffsetAndMetadata(7, 0, "note")}


def test_calls_that_the_state_does_not_allow(topics: Topics, new_producer: NewProducer) -> None:
    (tp,) = topics.create()
    producer = new_producer()
    not_yet = (producer.begin_transaction, lambda: producer.send(*tp), producer.commit_transaction)
    for call in (*not_yet, producer.abort_transaction, lambda: producer.send_offsets_to_transaction({tp: 1}, "g")):
        assert "init_transactions() first" in _wrong(call)
    producer.init_transactions()
    outside = (lambda: producer.send(*tp), producer.commit_transaction, producer.abort_transaction)
    for call in (*outside, lambda: producer.send_offsets_to_transaction({tp: 1}, "g")):
        assert "begin_transaction() first" in _wrong(call)
    assert "initialized already" in _wrong(producer.init_transactions)
    producer.begin_transaction()
    assert "in a transaction" in _wrong(producer.begin_transaction)
    for wrong in ({tp: -1}, {"t": 1}, [tp]):
        with pytest.raises(InvalidArgument):
            producer.send_offsets_to_transaction(wrong, "g")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="group"):
        producer.send_offsets_to_transaction({tp: 1}, "")
    assert producer.send(*tp, value=b"").result(30).offset == 0, "nothing of it did any harm"
    producer.commit_transaction()


def test_without_an_id_there_are_no_transactions(broker: Cluster, topics: Topics) -> None:
    (tp,) = topics.create()
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        calls: list[Callable[[], object]] = [
            producer.init_transactions,
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction({tp: 1}, "g"),
            producer.init_transactions_async,
            producer.commit_transaction_async,
            producer.abort_transaction_async,
        ]
        for call in calls:
            assert "no transactional.id" in _wrong(call)
        assert producer.send(*tp, value=b"").result(30).offset == 0


def test_one_thread_leads_many_producers(topics: Topics, new_producer: NewProducer, committed: Committed) -> None:
    tps = topics.create(20)
    producers = [new_producer() for _ in tps]
    _all(producer.init_transactions_async() for producer in producers)
    for round_ in range(3):
        for producer, tp in zip(producers, tps, strict=True):
            producer.begin_transaction()
            producer.send(*tp, value=b"%d" % round_)
        _all(
            producer.send_offsets_to_transaction_async({tp: round_}, "async")
            for producer, tp in zip(producers, tps, strict=True)
        )
        _all(
            producer.abort_transaction_async() if round_ == 1 else producer.commit_transaction_async()
            for producer in producers
        )
    for tp in (tps[0], tps[-1]):
        assert committed(tp, 2) == [b"0", b"2"]


def _all(futures: Any) -> None:
    done = wait(list(futures), timeout=60)
    assert not done.not_done
    assert [future.exception(0) for future in done.done if future.exception(0)] == []


def test_a_commit_that_ran_out_of_time_goes_on_and_is_joined(
    proxy: Proxy, topics: Topics, new_producer: NewProducer, committed: Committed, stalls: Stalls
) -> None:
    (tp,) = topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*tp, value=b"late").result(30)
    proxy.fault(Fault(action=Action.DELAY, api=Api.END_TXN, delay_ms=3_000, times=1))
    said = r"call commit_transaction\(\) again for its outcome"
    with stalls.timing() as took, pytest.raises(KafkaTimeout, match=said):
        producer.commit_transaction(300)
    assert took.ms >= 290
    assert took.running_ms < 1_000
    assert "call commit_transaction() again" in _wrong(producer.begin_transaction)
    assert "committing" in _wrong(lambda: producer.send(*tp))
    _wrong(lambda: producer.abort_transaction(100))
    assert "committing" in _wrong(producer.begin_transaction), "a call that was refused changes nothing"
    producer.commit_transaction(60_000)
    producer.begin_transaction()
    producer.send(*tp, value=b"next")
    producer.commit_transaction()
    assert committed(tp, 2) == [b"late", b"next"]


def test_an_outcome_that_came_while_nobody_waited(proxy: Proxy, topics: Topics, new_producer: NewProducer) -> None:
    (tp,) = topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*tp, value=b"").result(30)
    proxy.fault(Fault(action=Action.DELAY, api=Api.END_TXN, delay_ms=400, times=1))
    with pytest.raises(KafkaTimeout):
        producer.commit_transaction(50)
    other = new_producer()
    other.init_transactions()  # takes its time, on the same network thread
    other.begin_transaction()
    other.send(*tp, value=b"").result(30)
    other.commit_transaction()
    producer.commit_transaction()
    producer.begin_transaction()


def test_a_newer_producer_fences_an_older_one(topics: Topics, new_producer: NewProducer, committed: Committed) -> None:
    (tp,) = topics.create()
    older = new_producer()
    newer = new_producer(**{"transactional.id": older._transactional_id})
    older.init_transactions()
    older.begin_transaction()
    older.send(*tp, value=b"zombie").result(30)
    newer.init_transactions()
    for _ in range(2):
        with pytest.raises(Fenced):
            older.commit_transaction()
    with pytest.raises(Fenced):
        older.begin_transaction()
    with pytest.raises(Fenced):
        older.send(*tp, value=b"zombie")
    newer.begin_transaction()
    newer.send(*tp, value=b"alive")
    newer.commit_transaction()
    assert committed(tp, 1) == [b"alive"]


def test_a_failure_is_raised_afresh_each_time(topics: Topics, new_producer: NewProducer) -> None:
    (tp,) = topics.create()
    older = new_producer()
    older.init_transactions()
    older.begin_transaction()
    older.send(*tp, value=b"").result(30)
    new_producer(**{"transactional.id": older._transactional_id}).init_transactions()
    lengths = set()
    for _ in range(5):
        with pytest.raises(Fenced) as fenced:
            older.commit_transaction()
        lengths.add(len(fenced.traceback))
    assert len(lengths) == 1, "the traces of earlier calls gather"


def test_a_lost_record_can_only_be_aborted(topics: Topics, new_producer: NewProducer, committed: Committed) -> None:
    small, large = topics.create(config={"max.message.bytes": "2000"}) + topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*large, value=b"first")
    lost = producer.send(*small, value=b"x" * 5_000)
    for _ in range(2):
        with pytest.raises(NeedsAbort):
            producer.commit_transaction()
    assert lost.exception(0) is not None
    assert isinstance(producer.send(*large, value=b"").exception(30), NeedsAbort)
    assert "call abort_transaction() first" in _wrong(producer.begin_transaction)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(*large, value=b"second")
    producer.commit_transaction()
    assert committed(large, 1) == [b"second"]


def test_closing_in_a_transaction_aborts_it(topics: Topics, new_producer: NewProducer, committed: Committed) -> None:
    (tp,) = topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*tp, value=b"never").result(30)
    producer.close()
    for call in (producer.begin_transaction, producer.commit_transaction_async, lambda: producer.send(*tp)):
        with pytest.raises(ClientClosed):
            call()
    topics.fill(tp, 1)
    assert committed(tp, 1) == [b"0"], "what comes behind an open transaction would not be seen"


def test_closing_waits_for_a_commit_that_is_under_way(
    proxy: Proxy, topics: Topics, new_producer: NewProducer, committed: Committed
) -> None:
    (tp,) = topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*tp, value=b"kept").result(30)
    proxy.fault(Fault(action=Action.DELAY, api=Api.END_TXN, delay_ms=500, times=1))
    commit = producer.commit_transaction_async()
    producer.close()
    commit.result(0)
    assert committed(tp, 1) == [b"kept"]


def test_a_commit_that_waits_for_records_can_be_aborted(
    proxy: Proxy, topics: Topics, new_producer: NewProducer, committed: Committed
) -> None:
    (tp,) = topics.create()
    producer = new_producer(**{"request.timeout.ms": 1_000})
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*tp, value=b"first").result(30)
    proxy.fault(Fault(action=Action.SILENCE, api=Api.PRODUCE))
    stuck = producer.send(*tp, value=b"stuck")
    commit = producer.commit_transaction_async()
    producer.abort_transaction(60_000)
    assert isinstance(commit.exception(0), NeedsAbort)
    assert isinstance(stuck.exception(0), NeedsAbort)
    proxy.heal()
    producer.begin_transaction()
    producer.send(*tp, value=b"next")
    producer.commit_transaction()
    assert committed(tp, 1) == [b"next"]


def test_closing_takes_the_time_it_was_given_and_not_twice(
    proxy: Proxy, topics: Topics, new_producer: NewProducer, stalls: Stalls
) -> None:
    """It waits for a commit that runs out of time, and then joins it in what is left."""
    (tp,) = topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(*tp, value=b"").result(30)
    proxy.fault(Fault(action=Action.SILENCE, api=Api.END_TXN))
    commit = producer.commit_transaction_async(1_200)
    with stalls.timing() as took:
        producer.close(1_500)
    assert took.ms >= 1_490
    assert took.running_ms < 2_200
    assert isinstance(commit.exception(0), KafkaTimeout)


def test_a_callback_may_ask_and_not_wait(topics: Topics, new_producer: NewProducer, committed: Committed) -> None:
    """On the network thread: what waits says so at once and has asked nothing; no other caller is delayed."""
    (tp,) = topics.create()
    producer = new_producer()
    producer.init_transactions()
    producer.begin_transaction()
    result: Future[Future[None]] = Future()

    def commit(_: object) -> None:
        try:
            producer.commit_transaction()
        except WrongState:
            result.set_result(producer.commit_transaction_async())

    producer.send(*tp, value=b"one").add_done_callback(commit)
    result.result(30).result(30)
    producer.begin_transaction()
    producer.abort_transaction()
    assert committed(tp, 1) == [b"one"]


def test_a_timeout_that_brokers_do_not_allow(new_producer: NewProducer) -> None:
    producer = new_producer(**{"transaction.timeout.ms": 901_000})
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms = 901000: .*transaction\.max\.timeout\.ms"):
        producer.init_transactions()
