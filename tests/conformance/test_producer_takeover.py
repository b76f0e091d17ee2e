"""Transactional producers that are dropped at any moment, and their successors in the same process, on real brokers."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.client import Admin, BufferMemory, OffsetAndMetadata, Producer, TopicPartition
from mirror.errors import ClientClosed, KafkaError, KafkaTimeout
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.conformance.topics import Topics
from tests.faults.proxy import Action, Fault, On, Proxy
from tests.polling import eventually

pytestmark = pytest.mark.brokers

_log = logging.getLogger(__name__)

_ROUNDS = 12
_SHARED = {"request.timeout.ms": 15_000, "default.api.timeout.ms": 60_000}
_TIMES = {**_SHARED, "delivery.timeout.ms": 30_000}
_SLOW = (
    Api.PRODUCE,
    Api.END_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.INIT_PRODUCER_ID,
)


@pytest.fixture
def admin(leveled: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": leveled.bootstrap_servers, **_SHARED}) as admin:
        yield admin


@pytest.fixture
def topics(leveled: Cluster, unique: Callable[[str], str]) -> Topics:
    return Topics(leveled.bootstrap_servers, unique)


def _batch(*values: bytes) -> Batch:
    builder = BatchBuilder("none", 100_000)
    for value in values:
        builder.append(None, value, (), int(time.time() * 1_000))
    return builder.build()


def _committed(cluster: Cluster, tp: TopicPartition) -> list[bytes]:
    """All that readers of committed records see of ``tp``, as librdkafka reads it."""
    options = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    reader = ConfluentConsumer({**options, "isolation.level": "read_committed"})
    try:
        reader.assign([ConfluentPartition(tp.topic, tp.partition, 0)])
        found: list[bytes] = []
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for message in reader.consume(1_000, timeout=0.5):
                error = message.error()
                if error is not None:
                    assert error.code() == ConfluentError._PARTITION_EOF, error
                    return found
                found.append(message.value() or b"")
        raise AssertionError("the partition did not end within 60 s")
    finally:
        reader.close()


def _troubles(rng: random.Random) -> list[Fault]:
    """Some requests and answers are late, and some connections break."""
    faults = []
    for api in _SLOW:
        on, late = rng.choice([On.REQUEST, On.ANSWER]), rng.choice([5, 40, 300, 900])
        if rng.random() < 0.1:
            faults.append(Fault(action=Action.CUT, api=api, on=on, times=1))
        elif rng.random() < 0.5:
            faults.append(Fault(action=Action.DELAY, api=api, on=on, delay_ms=late, times=rng.randrange(1, 4)))
    return faults


class _Copy:
    """One partition's copy, as the relay makes it: after any trouble another producer of the same id."""

    def __init__(
        self, servers: str, admin: Admin, memory: BufferMemory, tp: TopicPartition, rng: random.Random
    ) -> None:
        self._options = {"bootstrap.servers": servers, **_TIMES, "transactional.id": f"copy-{tp.topic}"}
        self._admin = admin
        self._memory = memory
        self._tp = tp
        self._rng = rng
        self.group = f"progress-{tp.topic}"
        self.left: list[Future[None]] = []

    def progress(self, *, stable: bool = True) -> int:
        result = self._admin.group_offsets(self.group, [self._tp], timeout_ms=90_000, require_stable=stable)
        return result[self._tp].offset if result else 0

    def go_on(self, until: int | None) -> None:
        """To ``until``, or to a random moment; then the producer is dropped, whatever it is at."""
        producer = Producer(self._options, memory=self._memory)
        try:
            producer.init_transactions_async().result(60)
            offset = self.progress()
            drop_in = self._rng.randrange(1, 5)
            while offset < (until or offset + 1):
                drop_in -= until is None
                offset, done = self._transaction(producer, offset)
                if not drop_in:
                    time.sleep(self._rng.choice([0, 0.003, 0.03, 0.3]))  # a moment like any other
                    return
                done.result(60)
        except KafkaError:
            if until is not None:
                raise
        finally:
            self.left.append(producer.close_async())

    def _transaction(self, producer: Producer, offset: int) -> tuple[int, Future[None]]:
        producer.begin_transaction()
        for _ in range(self._rng.randrange(1, 4)):
            values = [b"%d" % number for number in range(offset, offset + self._rng.randrange(1, 20))]
            producer.send_batch(self._tp, _batch(*values), block=False)
            offset += len(values)
        producer.send_offsets_to_transaction_async({self._tp: OffsetAndMetadata(offset)}, self.group)
        return offset, producer.commit_transaction_async()


@pytest.mark.timeout(600)
def test_who_takes_over_has_nothing_mixed_up_with_the_dropped_one(
    leveled: Cluster, leveled_proxy: Proxy, admin: Admin, topics: Topics
) -> None:
    (tp,) = topics.create()
    seed = random.randrange(2**32)
    _log.warning("seed %d", seed)  # shown where it fails
    rng = random.Random(seed)
    memory = BufferMemory(1_000_000)
    copy = _Copy(leveled_proxy.bootstrap_servers, admin, memory, tp, rng)
    with Admin({"bootstrap.servers": leveled_proxy.bootstrap_servers, **_SHARED}):  # the copies share its connections
        for _ in range(_ROUNDS):
            leveled_proxy.fault(*_troubles(rng))
            copy.go_on(until=None)
        leveled_proxy.heal()
        # The last one is not fenced yet: what it left pending stays so until then, or for its time-out.
        end = copy.progress(stable=False) + 50
        copy.go_on(until=end)
        assert [future.result(60) for future in copy.left] == [None] * (_ROUNDS + 1)
        eventually(lambda: memory.free == memory.size, what="all the memory")
    assert copy.progress() >= end
    assert _committed(leveled, tp) == [b"%d" % number for number in range(copy.progress())]


def test_a_dropped_producers_transaction_is_its_successors_to_abort(
    leveled: Cluster, topics: Topics, unique: Callable[[str], str]
) -> None:
    """Nothing is waited for, nor asked of a coordinator, when it is dropped."""
    (tp,) = topics.create()
    options = {"bootstrap.servers": leveled.bootstrap_servers, "transactional.id": unique("copier"), **_TIMES}
    with Admin({"bootstrap.servers": leveled.bootstrap_servers, **_SHARED}):  # keeps the thread and its connections
        for number in range(5):
            producer = Producer(options)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_batch(tp, _batch(b"dropped %d" % number)).result(60)
            producer.send_batch(tp, _batch(b"perhaps sent %d" % number), block=False)
            producer.close(0)
            with pytest.raises(ClientClosed):
                producer.commit_transaction_async()
        with Producer(options) as last:
            last.init_transactions()
            last.begin_transaction()
            last.send_batch(tp, _batch(b"kept")).result(60)
            last.commit_transaction()
    assert _committed(leveled, tp) == [b"kept"]


def test_progress_of_one_partition_does_not_wait_for_anothers_transaction(
    leveled: Cluster, admin: Admin, topics: Topics, unique: Callable[[str], str]
) -> None:
    """Of one group, as copies of many partitions share it: only the partitions that are asked for count."""
    busy, idle, new = topics.create(3)
    group = unique("progress")
    admin.commit_group_offsets(group, {busy: OffsetAndMetadata(1), idle: OffsetAndMetadata(2)})
    options = {"bootstrap.servers": leveled.bootstrap_servers, "transactional.id": unique("copier"), **_TIMES}
    with Producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({busy: OffsetAndMetadata(10, 3, "where")}, group)
        asked = admin.group_offsets_async(group, [busy], 4_000)
        assert admin.group_offsets_async(group, [idle]).result(30) == {idle: OffsetAndMetadata(2)}
        assert admin.group_offsets_async(group, [new]).result(30) == {}
        assert not asked.done()
        both = admin.group_offsets_async(group, [busy, idle], 3_000)
        for waiting in (asked, both):
            error = waiting.exception(60)
            assert isinstance(error, KafkaTimeout)
            assert "UNSTABLE_OFFSET_COMMIT" in str(error)
        asked = admin.group_offsets_async(group, [busy])
        producer.commit_transaction()
        assert asked.result(60) == {busy: OffsetAndMetadata(10, 3, "where")}
