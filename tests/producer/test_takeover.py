"""Producers that are dropped at any moment, and those that take over from them in the same loop."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mirror.cluster.calls.group_offset_calls import GroupOffsets
from mirror.cluster.loop import LeaveEvent
from mirror.cluster.types import TopicPartition
from mirror.errors import ClientClosed, KafkaError
from mirror.runtime.memory.buffer_memory import BufferMemory
from mirror.timing import Timer
from mirror.wire.api import Api
from tests.fakes.client import FakeClient, FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.producer.site import T0, committed, make_cluster

_PARTITIONS = 8
_TIMES = {"delivery.timeout.ms": 3_000, "request.timeout.ms": 2_000}
_TROUBLED = {
    Api.PRODUCE,
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
}
_GROUP = "progress"


def _troubles(cluster: FakeCluster, rng: random.Random) -> None:
    """Requests are late, answers are late, and now and then a connection breaks; what was on it comes later still."""

    def rule(call: ServerCall) -> Action | None:
        if call.api not in _TROUBLED or rng.random() < 0.5:
            return None
        late = rng.choice([1, 7, 40, 300, 1_500])
        kinds: list[dict[str, Any]] = [{"stall_ms": late}, {"delay_ms": late}]
        knobs = rng.choice([*kinds * 5, {"close": "before"}, {"close": "after"}, {"silent": True}])
        return Action(**knobs)

    cluster.control.add(rule)
    cluster.works_off_ms = rng.choice([None, 0, 10, 500, 4_000])
    cluster.marker_ms = rng.choice([0, 30, 300])
    # Brokers that do not verify (before 3.6) take a late copy into a transaction that is never ended.
    cluster.verifies = cluster.works_off_ms is not None or rng.random() < 0.5


def _drop(producer: FakeProducer) -> None:
    """As ``Producer.close(0)``."""
    producer.submit(None, LeaveEvent(producer.core, *producer.timer()))


class _Sharing(FakeProducer):
    """Has its memory in common with others."""

    def __init__(self, cluster: FakeCluster, beside: FakeClient, memory: BufferMemory, **options: object) -> None:
        self._share = memory.share()
        super().__init__(cluster, beside, **options)

    def _release(self, tp: TopicPartition, size: int) -> None:
        super()._release(tp, size)
        self._share.give_back(tp, size)

    def try_to_send(self, tp: TopicPartition, value: bytes) -> None:
        made = self.prepare(tp, value)
        try:
            self._share.take(tp, made.size, Timer(self.cluster.clock, 0))
        except KafkaError:
            return  # no memory just now
        self.send_batch(made)


def _use(producer: _Sharing, rng: random.Random, *, transactional: bool) -> None:
    """As far as it gets: what comes too early, or too late, is refused, and gives its memory back, too."""
    if transactional:
        done = producer.init_async()
        producer.run_for(rng.choice([0, 2, 20, 200]))
        producer.begin()
        if done.done():
            producer.add_offsets(_GROUP, {T0: 1})
    for number in range(rng.randrange(6)):
        producer.try_to_send(TopicPartition("t", rng.randrange(_PARTITIONS)), b"%d" % number * 100)
    if transactional and rng.random() < 0.5:
        rng.choice([producer.commit, producer.abort])()


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_producers_dropped_at_random_moments_leak_nothing(seed: int) -> None:
    rng = random.Random(seed)
    cluster = make_cluster(3, _PARTITIONS)
    cluster.features["transaction.version"] = rng.choice([1, 2])
    _troubles(cluster, rng)
    first = FakeClient(cluster, **{"request.timeout.ms": 2_000})
    memory = BufferMemory(20_000)
    made: list[_Sharing] = []
    living: list[_Sharing] = []
    for number in range(200):
        transactional = rng.random() < 0.7
        options = {"transactional.id": f"x-{number % 20}"} if transactional else {}
        made.append(_Sharing(cluster, first, memory, **_TIMES, **options))
        living.append(made[-1])
        _use(made[-1], rng, transactional=transactional)
        first.run_for(rng.choice([0, 0, 1, 5, 50]))
        while living and rng.random() < 0.6:
            _drop(living.pop(rng.randrange(len(living))))
    taken = sum(producer.taken for producer in made)
    assert taken > memory.size, "the same bytes were used again"
    for producer in living:
        _drop(producer)
    # Nothing of a dropped one is awaited for longer than its requests are.
    first.run_until(lambda: memory.free == memory.size, within_ms=5_000)
    first.run_for(5_000)
    assert [producer.taken - producer.released for producer in made] == [0] * len(made)
    assert first.loop.cores == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_who_takes_over_has_nothing_mixed_up_with_the_dropped_one(version: int, seed: int) -> None:
    """The relay's way out of every trouble: drop it, make another of the same id, fence, read progress, go on there."""
    rng = random.Random(seed)
    cluster = make_cluster(3)
    cluster.features["transaction.version"] = version
    _troubles(cluster, rng)
    first = FakeClient(cluster, **{"request.timeout.ms": 2_000})
    last = 12
    for attempt in range(last + 1):
        if attempt == last:
            cluster.control.clear()
            first.run_for(10_000)  # no late copy of a dropped one's InitProducerId is to fence it
        producer = FakeProducer(cluster, first, **_TIMES, **{"transactional.id": "x"})
        _copy_on(producer, rng, until=40 if attempt == last else None)
        if attempt < last:
            _drop(producer)
    first.run_for(10_000)  # the last markers, and what still comes late
    values = [int(value) for value in committed(cluster)]
    assert values == list(range(len(values)))
    assert len(values) == cluster.groups[_GROUP][T0].offset >= 40
    assert cluster.log("t").last_stable_offset == cluster.log("t").end_offset, "nothing was left open"


def _copy_on(producer: FakeProducer, rng: random.Random, until: int | None) -> None:
    """From the progress on, to ``until`` or to a random moment."""
    init = producer.init_async()
    if until is None:
        producer.run_for(rng.choice([0, 5, 50, 500, 3_000]))
    else:
        producer.finish(init)
    if not init.done() or init.exception() is not None:
        return
    offset = _progress(producer)
    while until is None or offset < until:
        producer.begin()
        count = rng.randrange(1, 6)
        sent = [producer.send(T0, b"%d" % number) for number in range(offset, offset + count)]
        offset += count
        producer.add_offsets(_GROUP, {T0: offset})
        done = producer.commit()
        if until is None and rng.random() < 0.4:
            producer.run_for(rng.choice([0, 1, 5, 50, 500]))
            return
        producer.run_until(done.done)
        if done.exception() is not None:
            assert until is None
            return
        assert all(future.done() for future in sent)


def _progress(producer: FakeProducer) -> int:
    """As committed, once nothing is pending any more (KIP-447)."""
    found = producer.call(GroupOffsets(_GROUP, [T0], *producer.timer()))
    return found[T0].offset if T0 in found else 0


def test_a_late_answer_to_a_dropped_producer_changes_nothing() -> None:
    """Neither in the one that took over, nor in what the dropped one's callers received."""
    cluster = make_cluster()
    cluster.features["transaction.version"] = 2
    first = FakeClient(cluster)
    old = FakeProducer(cluster, first, **{"transactional.id": "x"})
    old.init()
    old.begin()
    held = cluster.control.on(Api.PRODUCE, Action(hold="after"))
    sent = old.send(T0, b"old")
    old.run_for(10)
    _drop(old)
    new = FakeProducer(cluster, first, **{"transactional.id": "x"})
    new.init()
    assert isinstance(sent.exception(0), ClientClosed)
    assert sent.exception(0).may_have_been_written  # type: ignore[union-attr] # asserted above
    assert old.released == 0, "its bytes are still in a request"
    new.begin()
    result = new.send(T0, b"new")
    new.run_for(10)
    held.release()
    new.finish(result)
    new.finish(new.commit())
    new.run_for(100)  # the marker
    assert old.released == old.taken
    assert committed(cluster) == [b"new"]
