"""Partitions that adopt the identity of a fence: plain batches under its producer id and epoch, in one chain."""

from __future__ import annotations

import random

import pytest

from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.errors import (
    BrokerError,
    ClientClosed,
    DeliveryTimeout,
    Fenced,
    KafkaError,
    OutOfOrderSequence,
    RecordTooLarge,
    TopicRecreated,
    WrongState,
)
from mirror.producer.batch.queue import ProducerId
from mirror.producer.identity import IdempotentIdentity
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.producer.site import IN_FLIGHT, T0, T1, TIMES, attempts, batches, failure, finish, make_cluster, values

VERSIONS = pytest.mark.parametrize("version", [1, 2])
UNKNOWN_PRODUCER_ID = 59


def _fence(cluster: FakeCluster, *tps: TopicPartition, name: str = "x") -> ProducerId:
    """What an attempt does when it opens the partitions: the identity in the markers there."""
    producer = FakeProducer(cluster, **{"transactional.id": name})
    producer.init()
    producer.begin()
    producer.add_partitions(*tps)
    producer.finish(producer.commit())
    producer.run_for(50)
    identity = producer.core.identity
    assert identity is not None
    return identity


def _site(version: int = 2, **options: object) -> tuple[FakeCluster, FakeProducer, ProducerId]:
    """A producer in which T0 has adopted the identity of a fence, as chain 1."""
    cluster = make_cluster()
    cluster.features["transaction.version"] = version
    identity = _fence(cluster, T0)
    producer = FakeProducer(cluster, **options)
    producer.adopt(T0, identity, 1)
    return cluster, producer, identity


def _stamps(cluster: FakeCluster, partition: int = 0) -> list[tuple[int, int, int]]:
    """(producer id, epoch, first sequence) of each batch in the log."""
    logged = cluster.log("t", partition).batches()
    return [(one.producer_id, one.producer_epoch, one.base_sequence) for one in logged if not one.is_control]


def _inits(cluster: FakeCluster) -> list[str | None]:
    return [call.body.transactional_id for call in cluster.calls(Api.INIT_PRODUCER_ID)]


@VERSIONS
def test_batches_carry_the_adopted_identity_from_sequence_zero_and_no_id_is_requested(version: int) -> None:
    cluster, producer, identity = _site(version)
    finish(producer, *[producer.send_in_chain(T0, 1, b"a", b"b") for _ in range(3)])
    assert _stamps(cluster) == [(*identity, 0), (*identity, 2), (*identity, 4)]
    assert not any(one.is_transactional for one in cluster.log("t").batches() if not one.is_control)
    assert _inits(cluster) == ["x"]
    assert producer.core.identity is None
    assert producer.taken == producer.released


@VERSIONS
def test_older_attempt_is_refused_after_the_fence(version: int) -> None:
    """Its next batch, and every later one of its chain without being sent."""
    cluster, old, _ = _site(version)
    finish(old, old.send_in_chain(T0, 1, b"old"))
    new = FakeProducer(cluster)
    identity = _fence(cluster, T0)
    zombie = old.send_in_chain(T0, 1, b"zombie")
    new.adopt(T0, identity, 1)
    finish(new, new.send_in_chain(T0, 1, b"new"))
    assert isinstance(failure(old, zombie), Fenced)
    sent = len(cluster.calls(Api.PRODUCE))
    assert isinstance(failure(old, old.send_in_chain(T0, 1, b"zombie")), Fenced)
    finish(new, new.send_in_chain(T0, 1, b"newer"))
    assert len(cluster.calls(Api.PRODUCE)) == sent + 1
    assert values(cluster) == [b"old", b"new", b"newer"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errors.OUT_OF_ORDER_SEQUENCE, OutOfOrderSequence),
        (errors.INVALID_PRODUCER_EPOCH, Fenced),
        (UNKNOWN_PRODUCER_ID, BrokerError),
        (errors.INVALID_TXN_STATE, BrokerError),
        (errors.MESSAGE_TOO_LARGE, RecordTooLarge),
    ],
)
def test_a_refused_batch_ends_the_chain_and_never_bumps_the_epoch(code: int, kind: type[KafkaError]) -> None:
    cluster, producer, identity = _site(**{IN_FLIGHT: 2})
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    cluster.control.on(Api.PRODUCE, Action(errors={T0: code}))
    lost = [producer.send_in_chain(T0, 1, b"lost") for _ in range(4)]
    for future in [*lost, producer.send_in_chain(T0, 1, b"late")]:
        assert isinstance(failure(producer, future), kind)
    producer.run_for(10_000)
    late = producer.send_in_chain(T0, 1, b"later still")
    assert isinstance(failure(producer, late), kind)
    assert values(cluster) == [b"first"]
    assert {(one.producer_id, one.producer_epoch) for call in cluster.calls(Api.PRODUCE) for one in batches(call)} == {
        identity
    }
    assert _inits(cluster) == ["x"]
    assert producer.taken == producer.released


def test_a_retried_batch_keeps_id_epoch_and_sequence() -> None:
    cluster, producer, identity = _site()
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND}, handled=True), times=3)
    finish(producer, producer.send_in_chain(T0, 1, b"again"))
    assert attempts(cluster) == [[(identity.epoch, 0)], *[[(identity.epoch, 1)]] * 4]
    assert values(cluster) == [b"first", b"again"], "same_batch_twice_is_appended_once"


def test_an_expired_batch_ends_the_chain_though_it_is_written_late() -> None:
    cluster, producer, identity = _site(**TIMES)
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)
    lost = [producer.send_in_chain(T0, 1, b"%d" % number) for number in range(3)]
    for future in lost:
        assert isinstance(failure(producer, future), DeliveryTimeout)
    producer.run_for(20_000)
    assert isinstance(failure(producer, producer.send_in_chain(T0, 1, b"late")), DeliveryTimeout)
    assert _stamps(cluster)[0] == (*identity, 0)
    assert {stamp[:2] for stamp in _stamps(cluster)} == {identity}
    assert producer.taken == producer.released


# --- adoption and release


def test_adoption_abandons_what_was_queued_or_in_flight() -> None:
    """Its callers are answered at once; its memory is released when the request has ended."""
    cluster, producer, _ = _site()
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
    old = [producer.send_in_chain(T0, 1, b"old") for _ in range(12)]
    producer.run_until(lambda: len(cluster.calls(Api.PRODUCE)) > 1)
    identity = _fence(cluster, T0)
    producer.adopt(T0, identity, 2)
    producer.run_for(50)
    for future in old:
        error = failure(producer, future)
        assert isinstance(error, ClientClosed)
    in_flight = producer.taken - producer.released
    assert in_flight > 0
    finish(producer, producer.send_in_chain(T0, 2, b"new"))
    assert producer.taken - producer.released == in_flight
    held.release()
    producer.run_until(lambda: producer.taken == producer.released)
    assert isinstance(failure(producer, producer.send_in_chain(T0, 1, b"late")), ClientClosed)
    finish(producer, producer.send_in_chain(T0, 2, b"newer"))
    assert values(cluster) == [b"first", b"new", b"newer"]


def test_only_the_chain_that_adopted_may_send() -> None:
    cluster, producer, _ = _site()
    for refused in (producer.send(T0, b"no chain"), producer.send_in_chain(T0, 7, b"another chain")):
        assert "only chain 1 sends here" in str(failure(producer, refused))
    finish(producer, producer.send_in_chain(T0, 1, b"right"))
    assert values(cluster) == [b"right"]
    assert producer.taken == producer.released


def test_an_identity_is_adopted_once() -> None:
    """Its sequences from 0 would be taken for repetitions, and batches reported as written that are not."""
    cluster, producer, identity = _site()
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    for again in (False, True):
        if again:
            producer.release(T0)
        producer.adopt(T0, identity, 2)
        error = failure(producer, producer.send_in_chain(T0, 2, b"again"))
        assert isinstance(error, WrongState)
    producer.adopt(T0, _fence(cluster, T0), 3)
    finish(producer, producer.send_in_chain(T0, 3, b"second"))
    assert values(cluster) == [b"first", b"second"]


def test_a_released_partition_sends_under_the_producers_own_identity_again() -> None:
    """In another epoch, as the broker knows the sequences of the first one; the released chain is over."""
    cluster = make_cluster()
    producer = FakeProducer(cluster)
    finish(producer, producer.send(T0, b"own"))
    producer.adopt(T0, _fence(cluster, T0), 1)
    finish(producer, producer.send_in_chain(T0, 1, b"adopted"))
    cluster.control.on(Api.PRODUCE, Action(silent=True))
    abandoned = producer.send_in_chain(T0, 1, b"in flight")
    producer.run_until(lambda: len(cluster.calls(Api.PRODUCE)) == 3)
    producer.release(T0)
    producer.release(T0)
    producer.release(T1)
    assert isinstance(failure(producer, abandoned), ClientClosed)
    assert isinstance(failure(producer, producer.send_in_chain(T0, 1, b"late")), ClientClosed)
    finish(producer, producer.send(T0, b"own again"), producer.send_in_chain(T0, 2, b"and again"))
    own = producer.core.identity
    assert own is not None
    assert [stamp for stamp in _stamps(cluster) if stamp[0] == own.producer_id] == [
        (*own, 0),
        (*own._replace(epoch=1), 0),
        (*own._replace(epoch=1), 1),
    ]
    producer.run_for(60_000)
    assert producer.taken == producer.released


def test_a_released_chain_sends_nothing_more_though_nothing_of_it_was_lost() -> None:
    cluster, producer, _ = _site()
    finish(producer, producer.send_in_chain(T0, 1, b"adopted"))
    producer.release(T0)
    assert isinstance(failure(producer, producer.send_in_chain(T0, 1, b"late")), ClientClosed)
    assert values(cluster) == [b"adopted"]


def test_an_adopted_epoch_is_not_bumped_behind_a_gap() -> None:
    """The chain ends there anyway; this is what the queue itself ensures."""
    cluster, producer, identity = _site()
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    queue = producer.queue(T0)
    lost = producer.prepare(T0, b"lost")
    lost.sequence = 1
    queue.leave_gap(lost)
    own = IdempotentIdentity(producer.settings, random.Random(0))
    own.identity = ProducerId(7_777, 0)
    assert not own.may_send(queue)
    assert (queue.identity, queue.next_sequence) == (identity, 1)
    assert len(cluster.calls(Api.PRODUCE)) == 1


def test_a_producer_without_an_id_of_its_own_fails_its_own_batches_only() -> None:
    cluster, producer, _ = _site()
    cluster.control.on(Api.INIT_PRODUCER_ID, Action(errors={"InitProducerId": 31}), times=None)
    refused = producer.send(T1, b"own")
    assert isinstance(failure(producer, refused), BrokerError)
    finish(producer, producer.send_in_chain(T0, 1, b"adopted"))
    assert values(cluster) == [b"adopted"]


# --- order, leaders, requests


def test_one_batch_goes_alone_until_it_is_acknowledged() -> None:
    cluster, producer, identity = _site(**{IN_FLIGHT: 5})
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
    futures = [producer.send_in_chain(T0, 1, b"%d" % number) for number in range(6)]
    producer.run_for(1_000)
    assert len(producer.queue(T0).in_flight) == 1
    assert attempts(cluster) == [[(identity.epoch, 0)]]
    held.release()
    finish(producer, *futures)
    assert values(cluster) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("node", [1, 2])
def test_one_batch_goes_alone_to_a_new_leader(node: int) -> None:
    """Also where the same broker was elected again: it may lack what it had acknowledged (an unclean election)."""
    cluster = make_cluster(brokers=2)
    cluster.features["transaction.version"] = 2
    cluster.move("t", 0, 1)
    producer = FakeProducer(cluster, **{IN_FLIGHT: 5, "metadata.max.age.ms": 1_000})
    producer.adopt(T0, _fence(cluster, T0), 1)
    finish(producer, *[producer.send_in_chain(T0, 1, b"%d" % number) for number in range(2)])
    cluster.move("t", 0, node)
    producer.run_for(2_000)
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
    futures = [producer.send_in_chain(T0, 1, b"%d" % number) for number in range(2, 6)]
    producer.run_for(500)
    assert len(producer.queue(T0).in_flight) == 1
    held.release()
    finish(producer, *futures)
    assert values(cluster) == [b"%d" % number for number in range(6)]


def test_nothing_more_is_sent_to_a_leader_elected_again_before_it_has_answered() -> None:
    cluster, producer, _ = _site(**{IN_FLIGHT: 5})
    finish(producer, producer.send_in_chain(T0, 1, b"0"))
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
    first = producer.send_in_chain(T0, 1, b"1")
    producer.run_until(lambda: len(cluster.calls(Api.PRODUCE)) == 2)
    cluster.log("t").move(1)
    producer.loop.metadata.use_leader(T0, Leader(1, cluster.log("t").leader_epoch))  # another client has learnt of it
    second = producer.send_in_chain(T0, 1, b"2")
    producer.run_for(5)
    assert len(producer.queue(T0).in_flight) == 1
    held.release()
    finish(producer, first, second)
    assert values(cluster) == [b"0", b"1", b"2"]


def test_a_log_that_lost_acknowledged_batches_refuses_the_next_one() -> None:
    cluster, producer, _ = _site(**{IN_FLIGHT: 5})
    finish(producer, *[producer.send_in_chain(T0, 1, b"%d" % number) for number in range(3)])
    cluster.log("t").truncate(2)
    cluster.log("t").move(1)
    for future in [producer.send_in_chain(T0, 1, b"behind") for _ in range(3)]:
        assert isinstance(failure(producer, future), OutOfOrderSequence)
    assert values(cluster) == [b"0"]


def test_a_topic_that_was_created_again_ends_the_chain() -> None:
    """Its log does not know the identity, and would accept any sequence."""
    cluster, producer, _ = _site(**{"metadata.max.age.ms": 1_000})
    finish(producer, producer.send_in_chain(T0, 1, b"first"))
    del cluster.topics["t"]
    cluster.add_topic("t", 2)
    producer.run_for(2_000)
    for _ in range(2):
        assert isinstance(failure(producer, producer.send_in_chain(T0, 1, b"behind")), TopicRecreated)
    assert values(cluster) == []


def test_partitions_with_identities_of_their_own_share_requests_from_the_first_one_on() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 40)
    tps = [TopicPartition("t", number) for number in range(40)]
    identities = [_fence(cluster, tp, name=f"x{tp.partition}") for tp in tps]
    producer = FakeProducer(cluster)
    finish(producer, producer.send(tps[0], b"the metadata is known"))
    before = len(cluster.calls(Api.PRODUCE))
    for tp, identity in zip(tps, identities, strict=True):
        producer.adopt(tp, identity, 1)
    for _ in range(2):
        finish(producer, *[producer.send_in_chain(tp, 1, b"x") for tp in tps])
    calls = cluster.calls(Api.PRODUCE)[before:]
    assert [len(batches(call)) for call in calls] == [40, 40]
    for tp, identity in zip(tps, identities, strict=True):
        assert _stamps(cluster, tp.partition)[-2:] == [(*identity, 0), (*identity, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_adoptions_at_any_time_append_each_chains_prefix_once(seed: int) -> None:
    """Attempts that follow each other at random points, with lost answers: a prefix of each, in order, no double."""
    rng = random.Random(seed)
    cluster = make_cluster()
    cluster.features["transaction.version"] = rng.choice([1, 2])
    producer = FakeProducer(cluster, **{IN_FLIGHT: 5, **TIMES})
    for chain in range(8):
        producer.adopt(T0, _fence(cluster, T0), chain)
        if rng.random() < 0.5:
            cluster.control.on(Api.PRODUCE, Action(silent=True, stall_ms=rng.randrange(100)))
        for number in range(rng.randrange(1, 12)):
            producer.send_in_chain(T0, chain, b"%d/%d" % (chain, number))
            producer.run_for(rng.randrange(1, 30))
    producer.run_for(60_000)
    for chain in range(8):
        logged = [value for value in values(cluster) if value.startswith(b"%d/" % chain)]
        assert logged == [b"%d/%d" % (chain, number) for number in range(len(logged))]
    assert [int(value.split(b"/")[0]) for value in values(cluster)] == sorted(
        int(value.split(b"/")[0]) for value in values(cluster)
    )
    assert producer.taken == producer.released
