"""Single records: batched, compressed, in order, on a real broker; read back by another client."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.client import Producer, TopicPartition
from mirror.errors import InvalidArgument, NetworkThreadDied, RecordTooLarge
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.encode import CODECS, BatchBuilder
from tests.client_state import memory, unanswered
from tests.conformance.topics import Topics
from tests.faults.proxy import Proxy
from tests.polling import eventually
from tests.stalls import Stalls

pytestmark = pytest.mark.brokers


def _read(cluster: Cluster, tp: TopicPartition, count: int) -> list[Any]:
    """The messages of ``tp`` from its beginning, as librdkafka reads them."""
    reader = ConfluentConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "check.crcs": True}
    )
    try:
        reader.assign([ConfluentPartition(tp.topic, tp.partition, 0)])
        found: list[Any] = []
        until = time.monotonic() + 60
        while len(found) < count and time.monotonic() < until:
            found += reader.consume(count - len(found), timeout=0.5)
        assert [message.error() for message in found if message.error()] == []
        return found
    finally:
        reader.close()


def _produces(proxy: Proxy) -> int:
    return len(proxy.requests(Api.PRODUCE))


@pytest.mark.parametrize("codec", CODECS)
def test_another_client_reads_what_was_sent(codec: str, broker: Cluster, topics: Topics) -> None:
    (tp,) = topics.create()
    headers = [("name", b"\xff\x00"), ("name", b""), ("none", None)]
    options = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
    with Producer(options) as producer:
        sent = [
            producer.send(*tp, key=b"key", value=b"value" * 100, headers=headers, timestamp_ms=1_700_000_000_123),
            producer.send(*tp, key=None, value=None),
            producer.send(*tp, key=b"", value=bytearray(b"")),  # type: ignore[arg-type] # other bytes will do
            *(producer.send(*tp, value=b"%d" % number * 100) for number in range(200)),
        ]
        assert [future.result(30).offset for future in sent] == list(range(203))
    read = _read(broker, tp, 203)
    assert [message.offset() for message in read] == list(range(203))
    assert [(message.key(), message.value()) for message in read[:3]] == [
        (b"key", b"value" * 100),
        (None, None),
        (b"", b""),
    ]
    assert read[0].headers() == headers
    assert read[0].timestamp()[1] == 1_700_000_000_123
    assert abs(read[1].timestamp()[1] / 1_000 - time.time()) < 60
    assert [message.value() for message in read[3:]] == [b"%d" % number * 100 for number in range(200)]


def test_full_batches_leave_at_once_and_others_when_flushed(proxy: Proxy, topics: Topics) -> None:
    (tp,) = topics.create()
    options = {"bootstrap.servers": proxy.bootstrap_servers, "linger.ms": 60_000, "batch.size": 5_000}
    with Producer(options) as producer:
        sent = [producer.send(*tp, value=b"x" * 1_000) for _ in range(6)]
        assert [future.result(30).offset for future in sent[:4]] == [0, 1, 2, 3], "four fit a batch"
        assert not any(future.done() for future in sent[4:]), "these wait for more"
        producer.flush(30_000)
        assert [future.result(0).offset for future in sent[4:]] == [4, 5], "answered when flush returns"
        exact = producer.send(*tp, value=b"x" * 10_000)
        assert exact.result(30).offset == 6, "full with its first record"
    assert _produces(proxy) == 3


def test_a_batch_waits_for_linger_and_no_longer(proxy: Proxy, topics: Topics, stalls: Stalls) -> None:
    (tp,) = topics.create()
    with Producer({"bootstrap.servers": proxy.bootstrap_servers, "linger.ms": 500}) as producer:
        producer.send(*tp, value=b"warm").result(30)
        since = proxy.now()
        sent = [producer.send(*tp, value=b"x") for _ in range(10)]
        assert sent[-1].result(30).offset == 10
    _, came = proxy.requests(Api.PRODUCE)
    assert 490 <= came.at_ms - since < 700 + stalls.between(since, came.at_ms)


def test_who_waits_for_memory_does_not_wait_for_linger(broker: Cluster, topics: Topics) -> None:
    tps = topics.create(4)
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "linger.ms": 60_000,
        "batch.size": 4_000,
        "buffer.memory": 10_000,
    }
    began = time.monotonic()
    with Producer(options) as producer:
        sent = [producer.send(*tps[number % 4], value=b"x" * 100) for number in range(200)]
        producer.flush(30_000)
        assert all(future.result(0).offset >= 0 for future in sent)
    assert time.monotonic() - began < 50


def test_records_and_ready_made_batches_keep_their_order(broker: Cluster, topics: Topics) -> None:
    (tp,) = topics.create()
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20}) as producer:
        for number in range(0, 100, 2):
            producer.send(*tp, value=b"%d" % number)
            builder = BatchBuilder("none", 1_000)
            builder.append(None, b"%d" % (number + 1), (), 1_700_000_000_000)
            producer.send_batch(tp, builder.build())
    assert [message.value() for message in _read(broker, tp, 100)] == [b"%d" % number for number in range(100)]


def test_threads_share_batches_and_each_keeps_its_order(broker: Cluster, topics: Topics) -> None:
    tps = topics.create(2)
    futures: list[Any] = []
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 2, "batch.size": 2_000}) as producer:

        def work(name: int) -> None:
            for number in range(500):
                sent = producer.send(*tps[number % 2], key=b"%d" % name, value=b"%d" % number)
                futures.append(sent)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        producer.flush(30_000)
        result = sorted((future.result(0).tp, future.result(0).offset) for future in futures)
        assert result == [(tp, offset) for tp in tps for offset in range(1_000)]
        eventually(lambda: memory(producer).memory.free == memory(producer).memory.size, what="all the memory")
        assert not unanswered(producer)
    for index, tp in enumerate(tps):
        read = _read(broker, tp, 1_000)
        for name in range(4):
            mine = [int(message.value()) for message in read if message.key() == b"%d" % name]
            assert mine == list(range(index, 500, 2))


def test_records_that_are_too_large_together_are_sent_apart(broker: Cluster, topics: Topics) -> None:
    (tp,) = topics.create(config={"max.message.bytes": "3000"})
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50}) as producer:
        sent = [producer.send(*tp, value=b"%d" % number * 500) for number in range(10)]
        alone = producer.send(*tp, value=b"x" * 5_000)
        assert isinstance(alone.exception(60), RecordTooLarge)
        assert [future.result(30).offset for future in sent] == list(range(10))
    assert [message.value() for message in _read(broker, tp, 10)] == [b"%d" % number * 500 for number in range(10)]


def test_network_thread_death_fails_every_caller(broker: Cluster, topics: Topics) -> None:
    """In the middle of load: who sends, who waits for memory, who waits for an answer."""
    tps = topics.create(3)
    # Settings of its own, so that it shares its thread with no other test.
    options = {"bootstrap.servers": broker.bootstrap_servers, "client.id": tps[0].topic, "buffer.memory": 40_000}
    producer = Producer(options)
    futures: list[Any] = []
    ends: list[BaseException] = []

    def work(tp: TopicPartition) -> None:
        try:
            while True:
                futures.append(producer.send(*tp, value=b"x" * 3_000))
        except BaseException as error:  # noqa: BLE001 - looked at below
            ends.append(error)

    def run_once() -> None:
        raise RuntimeError("a bug in the loop")

    threads = [threading.Thread(target=work, args=(tps[number % 3],), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(futures) > 200, what="load")
    producer.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    eventually(lambda: len(ends) == 6, what="the end of every thread")
    assert {type(error) for error in ends} == {NetworkThreadDied}
    eventually(lambda: all(future.done() for future in futures), what="an answer for every record")
    assert {type(future.exception(0)) for future in futures} <= {type(None), NetworkThreadDied}
    producer.flush(1_000)
    producer.close()


def test_what_is_acknowledged_is_freed_though_its_futures_are_kept(broker: Cluster, topics: Topics) -> None:
    """By reference counts alone: the collector may come long after ``buffer.memory`` was given to somebody else."""
    tps = topics.create(2)
    batches = [_one() for _ in range(20)]
    made = [batch.view.obj for batch in batches]
    gc.collect()
    gc.disable()
    try:
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50}) as producer:
            sent = [producer.send_batch(tps[number % 2], batches.pop()) for number in range(20)]
            sent += [producer.send(*tps[number % 2], value=b"x") for number in range(20)]
            opened = [place.open for place in producer._partitions.values()]
            made += [one.seal().view.obj for one in opened if one is not None]
            del opened
            assert len(made) == 22
            producer.flush(30_000)
            assert all(future.result(0).offset >= 0 for future in sent)
            # The list's own, the loop's name for it, and the call's.
            eventually(lambda: max(sys.getrefcount(one) for one in made) == 3, what="no other holder of the bytes")
            assert all(place.open is None for place in producer._partitions.values())
    finally:
        gc.enable()


WRONG: dict[str, Callable[[Producer, TopicPartition], object]] = {
    "key": lambda producer, tp: producer.send(*tp, key="text"),  # type: ignore[arg-type]
    "value": lambda producer, tp: producer.send(*tp, value=5),  # type: ignore[arg-type]
    "a header": lambda producer, tp: producer.send(*tp, headers=["name"]),  # type: ignore[list-item]
    "a header's name": lambda producer, tp: producer.send(*tp, headers=[(b"name", b"")]),  # type: ignore[list-item]
    "header 'name'": lambda producer, tp: producer.send(*tp, headers={"name": "text"}),  # type: ignore[arg-type]
    "timestamp_ms": lambda producer, tp: producer.send(*tp, timestamp_ms=-1),
    "the partition": lambda producer, tp: producer.send(tp.topic, -1),
    "a topic name": lambda producer, tp: producer.send(5, tp.partition),  # type: ignore[arg-type]
    "created_ms": lambda producer, tp: producer.send_batch(tp, _one(), created_ms=-5),
    "a batch": lambda producer, tp: producer.send_batch(tp, b"bytes"),  # type: ignore[arg-type]
}


def _one() -> Any:
    builder = BatchBuilder("none", 1_000)
    builder.append(None, b"", (), 1_700_000_000_000)
    return builder.build()


def test_wrong_arguments_are_named_and_cost_nothing(broker: Cluster, topics: Topics) -> None:
    (tp,) = topics.create()
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 20_000}) as producer:
        producer.send(*tp, value=b"").result(30)
        for what, call in WRONG.items():
            with pytest.raises(InvalidArgument, match=what):
                call(producer, tp)
        with pytest.raises(RecordTooLarge, match=r"buffer\.memory \(20000\)"):
            producer.send(*tp, value=b"x" * 20_000)
        assert memory(producer).memory.free == 20_000
        assert producer.send(*tp, value=b"").result(30).offset == 1
