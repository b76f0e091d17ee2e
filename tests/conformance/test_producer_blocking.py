"""Behaviours 29 to 34 (KIP-912): how long ``send`` blocks, on a real broker behind the proxy."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import Producer, TopicPartition
from mirror.errors import ClientClosed, DeliveryPhase, DeliveryTimeout, KafkaTimeout
from mirror.wire.api import Api
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.client_state import memory, pending
from tests.conformance.topics import Topics
from tests.faults.proxy import Action, Fault, Proxy
from tests.polling import eventually
from tests.stalls import Stalls, Timed

pytestmark = pytest.mark.brokers

NewProducer = Callable[..., Producer]
SPLIT = {"max.block.ms.include.metadata": False}
ONE_BATCH = {"batch.size": 1_000, "buffer.memory": 1_000}
"""The first record takes all the memory there is."""
NO_ANSWER = Fault(action=Action.SILENCE, api=Api.PRODUCE)
METADATA_TAKES_MS = 2_300


@pytest.fixture
def new_producer(proxy: Proxy) -> Iterator[NewProducer]:
    """``new_producer(**{dotted keys})``, through the proxy; closed at the end without waiting."""
    producers: list[Producer] = []

    def make(**options: object) -> Producer:
        producers.append(Producer({"bootstrap.servers": proxy.bootstrap_servers, **options}))
        return producers[-1]

    yield make
    for producer in producers:
        producer.close(timeout_ms=0)


def _slow_metadata(delay_ms: int) -> Fault:
    return Fault(action=Action.DELAY, api=Api.METADATA, delay_ms=delay_ms, times=1)


def _fails(action: Callable[[], object], kind: type[Exception] = KafkaTimeout) -> str:
    with pytest.raises(kind) as failed:
        action()
    return str(failed.value)


def _in_thread(action: Callable[[], object]) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001 - handed to who looks at the future
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _batch(*values: bytes) -> Batch:
    builder = BatchBuilder("none", 10_000)
    for value in values:
        builder.append(None, value, (), 1_700_000_000_000)
    return builder.build()


FIVE_CASES: dict[int, tuple[dict[str, object], bool]] = {
    1: ({"max.block.ms": 10_000}, True),
    2: ({"max.block.ms": 1_000}, False),
    3: ({"max.block.ms": 10_000, **SPLIT, "max.block.metadata.ms": 60_000}, True),
    4: ({"max.block.ms": 1_000, **SPLIT, "max.block.metadata.ms": 5_000}, True),
    5: ({"max.block.ms": 1_000, **SPLIT, "max.block.metadata.ms": 1_000}, False),
}
"""The document's: its numbers, and whether the record is sent where metadata takes between 2 and 5 s."""


def test_the_five_cases(proxy: Proxy, topics: Topics, new_producer: NewProducer, stalls: Stalls) -> None:
    """Side by side, each with metadata and a network thread of its own."""
    (tp,) = topics.create()
    proxy.fault(Fault(action=Action.DELAY, api=Api.METADATA, delay_ms=METADATA_TAKES_MS, times=len(FIVE_CASES)))
    producers = {
        case: new_producer(**{"client.id": f"case-{case}"}, **options) for case, (options, _) in FIVE_CASES.items()
    }
    assert len({producer.network_thread for producer in producers.values()}) == len(FIVE_CASES)
    ended = {case: _in_thread(lambda made=made: _sent(made, tp, stalls)) for case, made in producers.items()}  # type: ignore[misc]
    offsets = set()
    for case, (options, sent) in FIVE_CASES.items():
        took, outcome = ended[case].result(30)
        if sent:
            assert isinstance(outcome, Future), f"case {case}: {outcome}"
            # What the broker takes, to be connected to as well, is in it.
            assert METADATA_TAKES_MS * 0.9 <= took.ms < 5_000, f"case {case}: {took}"
            offsets.add(outcome.result(30).offset)
            with stalls.timing() as again:
                producers[case].send(*tp, value=b"two")
            assert again.running_ms < 100, "it is known now"
        else:
            assert isinstance(outcome, KafkaTimeout), f"case {case}: {outcome}"
            assert took.ms >= 990
            assert took.running_ms < 1_500
            limit = "max.block.metadata.ms (1000)" if len(options) > 1 else "max.block.ms (1000)"
            assert str(outcome).startswith(f"{tp}: no metadata of it within {limit}")
    assert len(offsets) == 3


def _sent(producer: Producer, tp: TopicPartition, stalls: Stalls) -> tuple[Timed, object]:
    """How long ``send`` took, and what it returned or raised."""
    with stalls.timing() as took:
        try:
            outcome: object = producer.send(*tp, value=b"one")
        except KafkaTimeout as error:
            outcome = error
    return took, outcome


@pytest.mark.parametrize("split", [False, True])
def test_the_wait_for_memory_after_the_wait_for_metadata(
    split: bool, proxy: Proxy, topics: Topics, new_producer: NewProducer, stalls: Stalls
) -> None:
    """default_counts_metadata_wait_in_max_block, split_gives_the_append_its_full_max_block."""
    (first,), (second,) = topics.create(), topics.create()
    producer = new_producer(**ONE_BATCH, **{"max.block.ms": 3_000}, **(SPLIT if split else {}))
    producer.send(*first, value=b"").result(30)
    proxy.fault(NO_ANSWER, _slow_metadata(1_000))
    producer.send(*first, value=b"takes all the memory")
    since = proxy.now()
    with stalls.timing() as took:
        text = _fails(lambda: producer.send(*second, value=b""))
    known_ms = max(one.answered_ms for one in proxy.requests(Api.METADATA, since=since)) - since
    assert str(second) in text
    assert "buffer.memory (1000)" in text
    assert f"{first} holds most (1000 bytes)" in text
    if split:
        assert took.ms >= known_ms + 2_990
        assert took.running_ms < known_ms + 3_500
        assert "metadata took" not in text
    else:
        assert took.ms >= 2_990
        assert took.running_ms < 3_500
        (completed_ms,) = re.findall(r"max\.block\.ms \(3000\), of which metadata took (\d+)", text)
        assert 990 <= int(completed_ms) < 3_000


def test_metadata_timeout_for_a_missing_topic_names_it(
    topics: Topics, new_producer: NewProducer, stalls: Stalls
) -> None:
    (tp,) = topics.create()
    producer = new_producer(**{"max.block.ms": 2_000})
    # The others' beside the first: time enough for each to hear of the brokers what is wrong.
    others = [
        _in_thread(lambda where=where: _fails(lambda: producer.send(*where, value=b"")))  # type: ignore[misc]
        for where in (("missing-topic", 0), (tp.topic, 1))
    ]
    with stalls.timing() as took:
        _fails(lambda: producer.send("missing-topic", 0, value=b""))
    assert took.ms >= 1_990
    assert took.running_ms < 2_600
    missing, beyond = (other.result(30) for other in others)
    assert "missing-topic-0" in missing
    assert "max.block.ms (2000)" in missing
    assert "does not exist" in missing
    assert f"{tp.topic}-1" in beyond
    assert "has 1 partition" in beyond
    assert producer.send(*tp, value=b"").result(30).offset == 0, "no other caller is affected"


def test_a_topic_that_comes_while_it_is_waited_for(topics: Topics, new_producer: NewProducer) -> None:
    producer = new_producer()
    name = "comes-" + topics.unique("later")
    topics.unique = lambda _: name
    sent = _in_thread(lambda: producer.send(name, 0, value=b"early").result(30))
    eventually(lambda: len(pending(producer)), what="a waiter")
    topics.create()
    assert sent.result(60).offset == 0


def test_buffer_timeout_releases_waiter_and_memory(
    proxy: Proxy, topics: Topics, new_producer: NewProducer, stalls: Stalls
) -> None:
    sick, healthy = topics.create(2)
    producer = new_producer(**ONE_BATCH, **SPLIT, **{"max.block.ms": 300, "request.timeout.ms": 1_000})
    for tp in (sick, healthy):
        producer.send(*tp, value=b"").result(30)
    proxy.fault(NO_ANSWER)
    stuck = producer.send(*sick, value=b"stuck")
    with stalls.timing() as took:
        _fails(lambda: producer.send(*healthy, value=b""))
    assert took.ms >= 290
    assert took.running_ms < 800
    assert _fails(lambda: producer.send_batch(healthy, _batch(b""), block=False)).startswith(str(healthy))
    proxy.heal()
    assert stuck.result(30).offset == 1, "retried after its request timed out, and not written twice"
    assert producer.send(*healthy, value=b"").result(30).offset == 1
    eventually(lambda: memory(producer).memory.free == 1_000, what="all the memory")
    assert not memory(producer).memory.waiting


def test_close_unblocks_both_waits(proxy: Proxy, topics: Topics, new_producer: NewProducer, stalls: Stalls) -> None:
    first, second = topics.create(2)
    producer = new_producer(**ONE_BATCH)
    for tp in (first, second):
        producer.send(*tp, value=b"").result(30)
    proxy.fault(NO_ANSWER)
    stuck = producer.send(*first, value=b"stuck")
    waits = [
        _in_thread(lambda: producer.send(*second, value=b"")),
        _in_thread(lambda: producer.send("missing-topic", 0, value=b"")),
        _in_thread(lambda: producer.send_batch(TopicPartition("missing-topic", 1), _batch(b""))),
    ]
    eventually(lambda: memory(producer).memory.waiting and len(pending(producer)) == 2, what="three waiters")
    with stalls.timing() as took:
        closing = _in_thread(lambda: producer.close(timeout_ms=5_000))
        assert [type(wait.exception(30)) for wait in waits] == [ClientClosed] * 3
    assert took.running_ms < 1_000, "not only when what was sent is settled"
    assert not stuck.done()
    closing.result(30)
    assert isinstance(stuck.exception(0), ClientClosed)
    for call in (lambda: producer.send(*second, value=b""), lambda: producer.send_batch(second, _batch(b""))):
        _fails(call, ClientClosed)


# --- the delivery clock of a batch that came into being elsewhere


def test_a_batch_whose_time_is_over_before_there_is_memory(
    proxy: Proxy, topics: Topics, new_producer: NewProducer, stalls: Stalls
) -> None:
    first, second = topics.create(2)
    timeouts = {"delivery.timeout.ms": 5_000, "request.timeout.ms": 4_000}
    producer = new_producer(**ONE_BATCH, **timeouts)
    for tp in (first, second):
        producer.send(*tp, value=b"").result(30)
    proxy.fault(NO_ANSWER)
    producer.send(*first, value=b"takes all the memory")
    with stalls.timing() as took, pytest.raises(DeliveryTimeout) as late:
        producer.send_batch(second, _batch(b"a", b"b"), created_ms=int(time.time() * 1_000) - 4_000)
    assert took.ms >= 990
    assert took.running_ms < 1_500
    error = late.value
    assert (error.topic, error.partition, error.record_count) == (*second, 2)
    assert (error.phase, error.attempts, error.may_have_been_written) == (DeliveryPhase.MEMORY, 0, False)
    assert 5_000 <= error.age_ms <= 4_000 + took.ms + 10
    assert isinstance(error.__cause__, KafkaTimeout)


def test_a_batch_whose_time_is_over_before_its_topic_is_known(new_producer: NewProducer, stalls: Stalls) -> None:
    producer = new_producer()
    with stalls.timing() as took, pytest.raises(DeliveryTimeout) as late:
        producer.send_batch(
            TopicPartition("missing-topic", 0), _batch(b"a"), created_ms=int(time.time() * 1_000) - 119_000
        )
    assert took.ms >= 990
    assert took.running_ms < 1_600
    assert late.value.phase is DeliveryPhase.METADATA
    assert "missing-topic" in str(late.value)


def test_a_batch_that_does_not_block_leaves_metadata_to_its_delivery(new_producer: NewProducer, stalls: Stalls) -> None:
    producer = new_producer(**{"delivery.timeout.ms": 1_500, "request.timeout.ms": 1_000})
    with stalls.timing() as took:
        future = producer.send_batch(TopicPartition("missing-topic", 0), _batch(b"a"), block=False)
    assert took.running_ms < 100
    error = future.exception(30)
    assert isinstance(error, DeliveryTimeout)
    assert error.phase is DeliveryPhase.METADATA
