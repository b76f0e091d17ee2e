"""A follower that lags behind, and leads uncleanly: the fake, and real brokers of which one hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from mirror.cluster.types import TopicPartition
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.messages.epochs import EpochPartition, EpochTopic, OffsetForLeaderEpochRequest
from mirror.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.raw_brokers import (
    BY_NAME,
    FakeWire,
    RawProducer,
    RealWire,
    Wire,
    create_topic,
    high_watermark,
    known_producers,
    log_of,
)
from tests.conformance.topics import Topics
from tests.fakes.cluster import FakeCluster
from tests.polling import eventually


@dataclass(slots=True)
class Replicas:
    """Broker 1 leads ``tp`` and broker 2 follows, until it is stopped, is no longer in sync, and is elected."""

    leader: Wire
    follower: Wire
    tp: TopicPartition
    stop_follower: Callable[[], object]
    fall_behind: Callable[[], object]
    elect: Callable[[], object]


def _fake(level: int) -> Replicas:
    cluster = FakeCluster(2)
    cluster.features["transaction.version"] = level
    leader = FakeWire(cluster)
    (tp,) = create_topic(leader, "orders")
    log, replicated = cluster.log("orders"), 0

    def stop() -> None:
        nonlocal replicated
        replicated = log.replicated_to = log.end_offset

    def fall_behind() -> None:
        log.replicated_to = None

    def elect() -> None:
        cluster.elect_uncleanly("orders", 0, 2, replicated)

    return Replicas(leader, FakeWire(cluster, 2), tp, stop, fall_behind, elect)


def _real(trio: Cluster, unique: Callable[[str], str]) -> Iterator[Replicas]:
    # By way of broker 3: the other two will stand still.
    topics = Topics(trio.bootstrap_servers.split(",")[2], unique)
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    (tp,) = topics.create(assignment=[[1, 2]], config=unclean)

    def fall_behind() -> None:
        eventually(lambda: topics.in_sync(tp) == [1], within_s=60, what="broker 2 falls behind")

    def elect() -> None:
        trio.pause(1)
        trio.resume(2)
        eventually(lambda: topics.leader(tp) == 2, within_s=60, what="broker 2 leads, uncleanly")

    wires = [RealWire(address, 2) for address in trio.bootstrap_servers.split(",")[:2]]
    yield Replicas(wires[0], wires[1], tp, lambda: trio.pause(2), fall_behind, elect)
    for wire in wires:
        wire.close()
    for broker in (1, 2):
        trio.resume(broker)
    eventually(lambda: topics.in_sync(tp) == [1, 2], within_s=60, what="both are back")


@pytest.fixture(params=["fake-1", "fake-2", pytest.param("real", marks=pytest.mark.brokers)])
def replicas(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Iterator[Replicas]:
    if request.param == "real":
        yield from _real(request.getfixturevalue("trio"), unique)
    else:
        yield _fake(int(request.param[-1]))


def _epoch_end(wire: Wire, tp: TopicPartition, epoch: int) -> tuple[int, int]:
    body = OffsetForLeaderEpochRequest((EpochTopic(tp.topic, (EpochPartition(tp.partition, epoch),)),))
    reply = wire.ask(Api.OFFSET_FOR_LEADER_EPOCH, 4, body).topics[0].partitions[0]
    assert reply.error_code == 0
    return reply.leader_epoch, reply.end_offset


def _leader_epoch(wire: Wire, tp: TopicPartition) -> int:
    reply = wire.ask(Api.METADATA, BY_NAME, MetadataRequest((MetadataRequestTopic(tp.topic),))).topics[0]
    return int(reply.partitions[0].leader_epoch)


def test_follower_that_leads_uncleanly_knows_producers_by_its_own_log(
    replicas: Replicas, unique: Callable[[str], str]
) -> None:
    leader, follower, tp = replicas.leader, replicas.follower, replicas.tp
    producer, late = RawProducer(leader, unique("txn")), RawProducer(follower, "any")
    coordinated = _coordinated_by_1(producer, unique)
    who = coordinated.fence(tp)
    leader.until(lambda: known_producers(leader, tp).get(who.producer_id) == (who.epoch, -1))
    assert coordinated.append(who, tp, 0, 20) == (0, 1)
    leader.until(lambda: high_watermark(leader, tp) == 21)
    follower.until(lambda: known_producers(follower, tp).get(who.producer_id) == (who.epoch, 19))

    replicas.stop_follower()
    assert coordinated.append(who, tp, 20, 5, acks=1) == (0, 21)
    batches, stable_end = log_of(leader, tp)
    assert (high_watermark(leader, tp), stable_end, batches[-1].next_offset) == (21, 21, 21)
    assert known_producers(leader, tp)[who.producer_id] == (who.epoch, 24)
    replicas.fall_behind()
    assert coordinated.append(who, tp, 25, 40) == (0, 26)
    assert (high_watermark(leader, tp), log_of(leader, tp)[1]) == (66, 66)
    first = _leader_epoch(leader, tp)

    replicas.elect()
    follower.until(lambda: _leader_epoch(follower, tp) > first)
    (epoch, last) = known_producers(follower, tp)[who.producer_id]
    assert epoch == who.epoch
    assert last in {19, 24}, "the 5 may lie in the socket of a follower that hangs"
    assert late.append(who, tp, 65)[0] == 45
    assert late.append(who, tp, 0, 20) == (0, 1)
    assert _epoch_end(follower, tp, first) == (first, last + 2)
    assert late.append(who, tp, last + 1, acks=1) == (0, last + 2)
    second = _leader_epoch(follower, tp)
    assert _epoch_end(follower, tp, second) == (second, last + 3)
    assert _epoch_end(follower, tp, second + 1) == (-1, -1)


def _coordinated_by_1(producer: RawProducer, unique: Callable[[str], str]) -> RawProducer:
    """A producer whose transactional id broker 1 coordinates, which it talks to."""
    while True:
        producer.find()
        if producer.init_once().error_code != 16:
            return producer
        producer = RawProducer(producer.wire, unique("txn"))
