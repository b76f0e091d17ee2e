"""Plain batches behind a fence: a transaction without data, whose marker refuses every older attempt of its id.

Every case on the fake and on real brokers, for both transaction protocols; the ones that kill brokers on real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing

import pytest

from mirror.client import Admin, Consumer, Producer, TopicPartition
from mirror.errors import Fenced
from mirror.producer.batch.queue import ProducerId
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.encode import BatchBuilder
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from mirror.wire.records import Batch
from tests import jvm
from tests.conformance.conftest import QUICK_DEATH, NewConsumer
from tests.conformance.raw_brokers import RawProducer, RealWire, Wire, create_topic, log_of, shape
from tests.conformance.topics import read
from tests.fakes.record_batches import build, values_of
from tests.polling import eventually

_OK, _OUT_OF_ORDER, _FENCED = 0, 45, 47
_VERSIONS = (9, 11, 12)
"""Of Produce: before and after the ones in which brokers add partitions to transactions."""


class Attempt:
    """One attempt of a transactional id at partitions, each with the next sequence."""

    def __init__(self, wire: Wire, name: str, *tps: TopicPartition) -> None:
        self.wire = wire
        self.who = RawProducer(wire, name).fence(*tps)
        for tp in tps:
            wire.until(lambda tp=tp: ("commit", self.who.epoch) in shape(wire, tp))  # type: ignore[misc]

    def batch(self, sequence: int, *values: bytes) -> bytearray:
        """A plain batch: without the transactional bit."""
        return build(
            values,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.epoch,
            base_sequence=sequence,
            timestamp=self.wire.unix_ms(),
        )

    def send(self, tp: TopicPartition, sequence: int, *values: bytes, version: int = 11) -> tuple[int, int]:
        """(error code, base offset) of a batch."""
        return produce(self.wire, {tp: self.batch(sequence, *values)}, version=version)[tp]


def produce(
    wire: Wire, sent: Mapping[TopicPartition, bytearray], *, version: int = 11
) -> dict[TopicPartition, tuple[int, int]]:
    """One Produce without a transactional id; (error code, base offset) of each partition."""
    topics: dict[str, list[ProducePartition]] = {}
    for tp, data in sent.items():
        topics.setdefault(tp.topic, []).append(ProducePartition(tp.partition, Records.of((data,))))
    asked = tuple(ProduceTopic(name, None, tuple(parts)) for name, parts in topics.items())
    reply = wire.ask(Api.PRODUCE, version, ProduceRequest(-1, 10_000, asked, None))
    return {
        TopicPartition(topic.name, part.index): (part.error_code, part.base_offset)
        for topic in reply.responses
        for part in topic.partition_responses
    }


def _values(wire: Wire, tp: TopicPartition) -> list[bytes]:
    """What a reader of committed records sees."""
    batches, stable = log_of(wire, tp)
    return [
        value for one in batches if not one.is_control and one.base_offset < stable for value in values_of(one.view)
    ]


def test_same_batch_twice_is_appended_once(wire: Wire, unique: Callable[[str], str]) -> None:
    """Also on another connection's version; a batch that skips ahead is refused, and changes nothing."""
    (tp,) = create_topic(wire, unique("orders"))
    attempt = Attempt(wire, unique("txn"), tp)
    sent = {0: (b"a", b"b"), 2: (b"c",), 3: (b"d", b"e")}
    offsets = {sequence: attempt.send(tp, sequence, *values) for sequence, values in sent.items()}
    assert offsets == {0: (_OK, 1), 2: (_OK, 3), 3: (_OK, 4)}
    for version in _VERSIONS:
        assert {s: attempt.send(tp, s, *values, version=version) for s, values in sent.items()} == offsets
        assert attempt.send(tp, 9, b"ahead", version=version)[0] == _OUT_OF_ORDER
    assert _values(wire, tp) == [b"a", b"b", b"c", b"d", b"e"]
    assert attempt.send(tp, 5, b"f") == (_OK, 6)


def test_older_attempt_is_refused_after_the_fence(wire: Wire, unique: Callable[[str], str]) -> None:
    """Any batch of it: the next one, the first one, one it has written before, whether the newer has written or not."""
    (tp,) = create_topic(wire, unique("orders"))
    name = unique("txn")
    old = Attempt(wire, name, tp)
    assert old.send(tp, 0, b"old")[0] == _OK
    new = Attempt(wire, name, tp)
    assert new.who.producer_id == old.who.producer_id
    for sequence in range(2):
        late = [old.send(tp, s, b"late", version=v)[0] for s in (0, 1, 2, 1_000) for v in _VERSIONS]
        assert set(late) == {_FENCED}
        assert new.send(tp, sequence, b"new")[0] == _OK
    assert _values(wire, tp) == [b"old", b"new", b"new"]


def test_many_producer_ids_share_a_request(wire: Wire, unique: Callable[[str], str]) -> None:
    """What one partition's identity is refused for is no other one's affair."""
    tps = create_topic(wire, unique("orders"), 3)
    name = unique("txn")
    attempts = {tp: Attempt(wire, f"{name}-{tp.partition}", tp) for tp in tps}
    assert len({attempt.who.producer_id for attempt in attempts.values()}) == 3
    for sequence in range(2):
        reply = produce(wire, {tp: attempt.batch(sequence, b"x") for tp, attempt in attempts.items()})
        assert reply == dict.fromkeys(tps, (_OK, sequence + 1))
    Attempt(wire, f"{name}-1", tps[1])
    reply = produce(wire, {tp: attempt.batch(2, b"x") for tp, attempt in attempts.items()})
    assert [reply[tp][0] for tp in tps] == [_OK, _FENCED, _OK]


def test_a_fence_covers_all_its_partitions_and_no_other(wire: Wire, unique: Callable[[str], str]) -> None:
    first, second, other = create_topic(wire, unique("orders"), 3)
    name = unique("txn")
    old = Attempt(wire, name, first, second, other)
    new = Attempt(wire, name, first, second)
    assert [old.send(tp, 0, b"old")[0] for tp in (first, second, other)] == [_FENCED, _FENCED, _OK]
    assert [new.send(tp, 0, b"new")[0] for tp in (first, second)] == [_OK, _OK]


def test_an_id_goes_from_plain_batches_to_a_transaction_and_back(wire: Wire, unique: Callable[[str], str]) -> None:
    """Each change by another attempt: a new epoch, in which sequences begin at 0."""
    (tp,) = create_topic(wire, unique("orders"))
    name = unique("txn")
    first = Attempt(wire, name, tp)
    assert [first.send(tp, s, b"plain")[0] for s in range(2)] == [_OK, _OK]
    raw = RawProducer(wire, name)
    who = raw.init()
    assert first.send(tp, 2, b"plain")[0] == _OK, "not fenced yet: only a marker does that"
    raw.write(who, tp)
    assert first.send(tp, 3, b"plain")[0] == _FENCED
    assert log_of(wire, tp)[1] == 4
    assert raw.end(who, commit=True).error_code == 0
    wire.until(lambda: len(shape(wire, tp)) == 6)
    last = Attempt(wire, name, tp)
    assert [first.send(tp, 3, b"plain")[0], last.send(tp, 0, b"plain again")[0]] == [_FENCED, _OK]
    assert _values(wire, tp) == [*[b"plain"] * 3, b"value", b"plain again"]
    assert [kind for kind, _ in shape(wire, tp)] == ["commit", *["data"] * 4, "commit", "commit", "data"]


# --- our own producers, on real brokers


def _batch(*values: bytes) -> Batch:
    builder = BatchBuilder("none", 100_000)
    for value in values:
        builder.append(None, value, (), int(time.time() * 1_000))
    return builder.build()


def _identity_of_fence(servers: str, name: str, *tps: TopicPartition) -> ProducerId:
    """What the relay does when it opens partitions."""
    with Producer({"bootstrap.servers": servers, "transactional.id": name}) as producer:
        producer.init_transactions(60_000)
        producer.begin_transaction()
        producer.add_partitions(tps)
        producer.send_offsets_to_transaction({tps[0]: 7}, f"progress-{name}")
        producer.commit_transaction(60_000)
        identity = producer.identity
    assert identity is not None
    with Admin({"bootstrap.servers": servers}) as admin:
        # The coordinator answers before its markers are in the logs.
        eventually(lambda: all(identity in _identities(admin, tp) for tp in tps), what=f"the markers of {name}")
    return identity


def _identities(admin: Admin, tp: TopicPartition) -> set[tuple[int, int]]:
    """The producer ids and epochs that the leader knows."""
    return {(state.producer_id, state.producer_epoch) for state in admin.describe_producers([tp])[tp]}


@pytest.mark.brokers
def test_a_shared_producer_sends_each_partition_under_the_identity_of_its_fence(
    leveled: Cluster, unique: Callable[[str], str], new_consumer: NewConsumer
) -> None:
    """Twenty of them; then half are fenced by another process, and the other half goes on."""
    servers, name = leveled.bootstrap_servers, unique("txn")
    with closing(RealWire(servers, 0)) as wire:
        tps = create_topic(wire, unique("orders"), 20)
    with Producer({"bootstrap.servers": servers}) as shared:
        for tp in tps:
            shared.adopt(tp, _identity_of_fence(servers, f"{name}-{tp.partition}", tp), 1)
        sent = [(tp, shared.send_batch(tp, _batch(b"%d" % n), chain=1)) for n in range(50) for tp in tps]
        assert [future.result(60).base_offset for tp, future in sent if tp == tps[3]] == list(range(1, 51))
        fenced = tps[:10]
        for tp in fenced:
            _identity_of_fence(servers, f"{name}-{tp.partition}", tp)
        last = {tp: shared.send_batch(tp, _batch(b"50"), chain=1) for tp in tps}
        for tp, future in last.items():
            if tp in fenced:
                with pytest.raises(Fenced):
                    future.result(60)
            else:
                assert future.result(60).base_offset == 51
        assert shared.producer_id == -1, "no producer id was requested"
    consumer: Consumer = new_consumer(servers, **{"isolation.level": "read_committed"})
    for tp in (tps[0], tps[19]):
        consumer.assign([tp])
        count = 50 if tp in fenced else 51
        assert [value for _, value in read(consumer, count)] == [b"%d" % number for number in range(count)]


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("level", "kills"),
    [(2, 1), *(pytest.param(level, 2, marks=pytest.mark.cluster) for level in (1, 2))],
)
def test_older_attempt_is_refused_after_the_fence_also_by_a_broker_that_was_killed(
    level: int, kills: int, unique: Callable[[str], str], new_consumer: NewConsumer
) -> None:
    """And the same batch twice is appended once there, too, also where the producer itself repeats it."""
    name = unique("txn")
    features = {"transaction.version": level}
    with Cluster(features=features, properties=QUICK_DEATH, heap=jvm.BROKER) as cluster, ExitStack() as wires:
        servers = cluster.bootstrap_servers
        wire = wires.enter_context(closing(RealWire(servers, level)))
        tp, shared_tp = create_topic(wire, unique("orders"), 2)
        old = Attempt(wire, name, tp)
        assert old.send(tp, 0, b"old")[0] == _OK
        new = Attempt(wire, name, tp)
        assert new.send(tp, 0, b"a", b"b") == (_OK, 3)
        with Producer({"bootstrap.servers": servers}) as zombie, Producer({"bootstrap.servers": servers}) as shared:
            zombie.adopt(tp, ProducerId(old.who.producer_id, old.who.epoch), 1)
            shared.adopt(shared_tp, _identity_of_fence(servers, f"{name}-shared", shared_tp), 1)
            for turn in range(kills):
                shared.send_batch(shared_tp, _batch(b"%d" % turn), chain=1).result(60)
                pending = [shared.send_batch(shared_tp, _batch(b"pending"), chain=1) for _ in range(3)]
                cluster.kill(1)
                cluster.restart(1)
                wire = old.wire = new.wire = wires.enter_context(closing(RealWire(servers, level)))
                _await_leader(new, tp)
                assert new.send(tp, 0, b"a", b"b") == (_OK, 3)
                assert new.send(tp, 7, b"ahead")[0] == _OUT_OF_ORDER
                assert {old.send(tp, s, b"late", version=v)[0] for s in (0, 1, 2) for v in _VERSIONS} == {_FENCED}
                for future in pending:
                    future.result(60)
            with pytest.raises(Fenced):
                zombie.send_batch(tp, _batch(b"zombie"), chain=1).result(60)
        consumer: Consumer = new_consumer(servers, **{"isolation.level": "read_committed"})
        turns = [value for turn in range(kills) for value in (b"%d" % turn, *[b"pending"] * 3)]
        wanted = {tp: [b"old", b"a", b"b"], shared_tp: turns}
        for one, values in wanted.items():
            consumer.assign([one])
            assert [value for _, value in read(consumer, len(values))] == values
            # Not the end offset: a coordinator that was killed before its transaction was complete repeats the marker.
            assert _values(new.wire, one) == values


def _await_leader(attempt: Attempt, tp: TopicPartition) -> None:
    """Until the broker leads the partition again: a batch that it has already changes nothing."""
    attempt.wire.until(lambda: attempt.send(tp, 0, b"a", b"b")[0] == _OK)
