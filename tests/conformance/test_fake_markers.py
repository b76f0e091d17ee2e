"""While the markers of a transaction are not all written: the fake, and real brokers of which one hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from mirror.cluster.types import TopicPartition
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.conformance.raw_brokers import (
    GROUP,
    TRANSACTION,
    FakeWire,
    Identity,
    RawProducer,
    RealWire,
    Wire,
    await_group,
    coordinator,
    create_topic,
    fetch_offset,
    leaders,
    shape,
)
from tests.fakes.cluster import FakeCluster

ONE_REPLICA = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}


@dataclass(slots=True)
class TwoBrokers:
    """Two brokers: 1 coordinates, 2 hangs for a while."""

    one: Wire
    two: Wire
    hang: Callable[[], object]
    go_on: Callable[[], object]

    def named(self, kind: int, unique: Callable[[str], str]) -> str:
        """An id or group that broker 1 coordinates."""
        name = unique("name")
        while True:
            self.one.until(lambda name=name: coordinator(self.one, kind, name) > 0)  # type: ignore[misc]
            if coordinator(self.one, kind, name) == 1:
                return name
            name = unique("name")


def _fake(level: int) -> TwoBrokers:
    cluster = FakeCluster(2)
    cluster.features["transaction.version"] = level

    def set_up(up: bool) -> None:
        cluster.brokers[2].up = up

    return TwoBrokers(FakeWire(cluster), FakeWire(cluster, 2), lambda: set_up(False), lambda: set_up(True))


@pytest.fixture(
    params=[
        "fake-1",
        "fake-2",
        # Two brokers of which one hangs take 10 s of CPU; the other conformance tests compare the fake's markers.
        *(pytest.param(name, marks=[pytest.mark.brokers, pytest.mark.cluster]) for name in ("real-1", "real-2")),
    ]
)
def pair(request: pytest.FixtureRequest) -> Iterator[TwoBrokers]:
    kind, level = request.param.split("-")
    if kind == "fake":
        yield _fake(int(level))
        return
    with Cluster(2, properties=ONE_REPLICA, features={"transaction.version": int(level)}, heap=jvm.BROKER) as cluster:
        wires = [RealWire(address, int(level)) for address in cluster.bootstrap_servers.split(",")]
        yield TwoBrokers(wires[0], wires[1], lambda: cluster.pause(2), lambda: cluster.resume(2))
        for wire in wires:
            wire.close()


class Stuck:
    """A transaction over both brokers and a group, ended while broker 2 hangs: only broker 1 has its markers."""

    def __init__(self, pair: TwoBrokers, how: str, unique: Callable[[str], str]) -> None:
        one = pair.one
        self.producer = RawProducer(one, pair.named(TRANSACTION, unique))
        self.group = pair.named(GROUP, unique)
        await_group(one, self.group)
        self.old = self.producer.init()
        self.new = Identity(self.old.producer_id, self.old.epoch + 1)
        partitions = create_topic(one, unique("orders"), 4)
        led = leaders(one, partitions[0].topic)
        (self.tp, self.unused), (far, _) = ([tp for tp in partitions if led[tp.partition] == node] for node in (1, 2))
        self._begin(pair, far)
        pair.hang()
        self.code = self._end(how)
        one.until(lambda: len(shape(one, self.tp)) == 2)
        one.until(lambda: fetch_offset(one, self.group, self.tp, stable=True)[0] == 0)

    def _begin(self, pair: TwoBrokers, far: TopicPartition) -> None:
        remote = RawProducer(pair.two, self.producer.transactional_id)
        self.producer.begin(self.old, self.tp, far)
        self.producer.settle(self.old, self.tp, 0)
        remote.settle(self.old, far, 0)
        assert self.producer.add_group(self.old, self.group) == 0
        assert self.producer.commit_offset(self.old, self.group, self.tp, 5, version=4) == 0

    def _end(self, how: str) -> int:
        if how == "init":
            return self.producer.init_once(self.old).error_code
        return self.producer.end(self.old, commit=how == "commit").error_code

    def produced(self, who: Identity, version: int) -> list[int]:
        return [self.producer.produce(who, tp, s, version=version) for tp, s in ((self.tp, 1), (self.unused, 0))]

    def offsets(self, who: Identity) -> list[int]:
        return [self.producer.commit_offset(who, self.group, self.tp, 9, version=version) for version in (3, 4, 5)]


def test_nothing_begins_before_the_last_marker(pair: TwoBrokers, unique: Callable[[str], str]) -> None:
    for how in ("commit", "abort", "init"):  # one after the other: brokers are dear
        _check(pair, how, unique)


def _check(pair: TwoBrokers, how: str, unique: Callable[[str], str]) -> None:
    stuck = Stuck(pair, how, unique)
    producer, old, new, level = stuck.producer, stuck.old, stuck.new, pair.one.level
    stranger = Identity(old.producer_id + 9_999, 0)
    assert stuck.code == (51 if how == "init" else 0)
    for who in (None, old, new, stranger):
        assert producer.init_once(who).error_code == 51
    for who in (old, new, stranger):
        assert producer.add(who, stuck.tp) == [51]
        assert producer.add_group(who, stuck.group) == 51
    # Under version 1 an end leaves the epoch as it is; everything else has bumped it.
    same_epoch = level == 1 and how != "init"
    ended = [producer.end(who, commit=how == "commit").error_code for who in (old, new, stranger)]
    assert ended == ([51, 51, 51] if level > 1 else [51, 90, 49] if same_epoch else [90, 51, 49])
    assert [stuck.produced(who, 11) for who in (old, new)] == (
        [[19, 19], [47, 47]] if same_epoch else [[47, 47], [19, 19]]
    )
    assert [stuck.produced(who, 12) for who in (old, new)] == [[51 if same_epoch else 47, 51], [51, 51]]
    assert [stuck.offsets(who) for who in (old, new)] == (
        [[51, 51, 51], [47, 47, 51]] if same_epoch else [[47, 47, 47], [51, 51, 51]]
    )
    pair.go_on()
    fresh = producer.init()
    assert fresh.epoch > old.epoch
    producer.begin(fresh, stuck.unused)
