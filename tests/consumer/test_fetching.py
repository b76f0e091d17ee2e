"""Fetching from the fake cluster: what comes, in which order, and what stops it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.events import AssignEvent, LastResponseEvent, PauseEvent, PositionEvent, SeekEvent
from mirror.consumer.fetched import Fetched
from mirror.wire.api import Api
from mirror.wire.messages.fetch import FetchResponse
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import build, values_of

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_NO_RESET = {"auto.offset.reset": "none"}


def _cluster(brokers: int = 1, partitions: int = 1, records: int = 0) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", partitions)
    for partition in range(partitions):
        for number in range(records):
            cluster.log("t", partition).append_values(b"%d" % number)
    return cluster


def _values(fetched: list[Fetched], tp: TopicPartition = _T0) -> list[bytes]:
    return [value for one in fetched if one.tp == tp for batch in one.batches for value in values_of(batch.view)]


def _read(consumer: FakeConsumer, count: int, tp: TopicPartition = _T0) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        fetched = consumer.poll(30_000)
        assert fetched, f"only {found}"
        found += _values(fetched, tp)
    return found


def _numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, count)]


def _position(consumer: FakeConsumer, tp: TopicPartition = _T0) -> int:
    return consumer.call(PositionEvent(tp, *consumer.timer()), consumer.core)


def test_a_log_is_read_from_where_it_was_sought() -> None:
    consumer = FakeConsumer(_cluster(records=10))
    consumer.read((_T0, 4))
    (fetched,) = consumer.poll()
    assert (fetched.offset, fetched.next_offset, fetched.high_watermark) == (4, 10, 10)
    assert _values([fetched]) == _numbers(10, 4)
    assert _position(consumer) == 10


def test_poll_waits_for_records_and_returns_nothing_when_time_is_up() -> None:
    cluster = _cluster()
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    begun = consumer.now
    assert consumer.poll(3_000) == []
    assert consumer.completed_ms - begun == 3_000
    cluster.after(700, lambda: cluster.log("t").append_values(b"late"))
    begun = consumer.now
    assert _values(consumer.poll(3_000)) == [b"late"]
    assert consumer.completed_ms - begun <= 700


def test_an_answer_without_records_reports_where_the_log_ends() -> None:
    cluster = _cluster(records=5)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 5))
    assert consumer.poll(3_000) == []
    heard = consumer.call(LastResponseEvent(*consumer.timer()), consumer.core)
    assert heard[_T0].end == 5


def test_a_throttled_response_says_until_when() -> None:
    cluster = _cluster()

    def throttled(answer: FetchResponse) -> FetchResponse:
        return replace(answer, throttle_time=2_000)

    cluster.control.on(Api.FETCH, Action(rewrite=throttled), times=1)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    consumer.poll(1_000)
    (heard,) = consumer.call(LastResponseEvent(*consumer.timer()), consumer.core).values()
    assert heard.throttled_until_ms == heard.at_ms + 2_000
    consumer.poll(3_000)
    (heard,) = consumer.call(LastResponseEvent(*consumer.timer()), consumer.core).values()
    assert heard.throttled_until_ms == 0


def test_an_idle_topic_is_polled_long_not_often() -> None:
    cluster = _cluster()
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    consumer.poll(10_000)
    assert len(cluster.calls(Api.FETCH)) <= 22


@pytest.mark.parametrize("version", range(12, 19))
def test_every_version_of_fetch_reads_the_same(version: int) -> None:
    cluster = _cluster(2, 2, records=5)
    cluster.versions[Api.FETCH] = (0, version)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0), (_T1, 2))
    fetched = consumer.poll()
    while len(_values(fetched, _T0)) < 5 or len(_values(fetched, _T1)) < 3:
        fetched += consumer.poll()
    assert _values(fetched, _T0) == _numbers(5)
    assert _values(fetched, _T1) == _numbers(5, 2)


def test_reading_goes_on_across_leader_moves() -> None:
    cluster = _cluster(3)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    log, found = cluster.log("t"), list[bytes]()
    for number in range(40):
        log.append_values(b"%d" % number)
        if number % 5 == 2:
            cluster.move("t", 0, number % 3 + 1)
        consumer.run_for(37)
        if number % 7 == 0:
            found += _values(consumer.poll(0))
    found += _read(consumer, 40 - len(found))
    assert found == _numbers(40)
    assert len({call.node for call in cluster.calls(Api.FETCH)}) == 3


def test_a_new_leader_that_is_named_is_asked_without_backoff() -> None:
    cluster = _cluster(2, records=1)
    consumer = FakeConsumer(cluster, **{"retry.backoff.ms": 30_000, "retry.backoff.max.ms": 30_000})
    consumer.read((_T0, 0))
    _read(consumer, 1)
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"1")
    begun = consumer.now
    _read(consumer, 1)
    assert consumer.completed_ms - begun < 1_500


def test_a_dead_leader_is_left_for_the_next_one() -> None:
    cluster = _cluster(2, records=1)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    _read(consumer, 1)
    cluster.kill(1)
    cluster.log("t").append_values(b"1")
    cluster.after(3_000, lambda: cluster.move("t", 0, 2))
    assert _read(consumer, 1) == [b"1"]


def test_refusals_are_retried_with_kip_580s_distance() -> None:
    cluster = _cluster(records=1)
    cluster.control.on(Api.FETCH, Action(errors={_T0: errors.NOT_LEADER}), times=8)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    _read(consumer, 1)
    times = [call.received_ms for call in cluster.calls(Api.FETCH)][:9]
    for number, gap in enumerate(b - a for a, b in itertools.pairwise(times)):
        assert 80 * min(10, 2**number) <= gap <= min(1_000, 120 * 2**number), times


def test_a_seek_drops_what_was_fetched_before() -> None:
    consumer = FakeConsumer(_cluster(records=10))
    consumer.read((_T0, 0))
    consumer.run_for(100)
    assert consumer.core.positions.buffered > 0
    consumer.submit(consumer.core, SeekEvent(_T0, 7, None))
    assert _read(consumer, 3) == _numbers(10, 7)
    assert consumer.core.positions.buffered == 0


def test_a_seek_drops_the_answer_that_is_under_way() -> None:
    cluster = _cluster(records=10)
    held = cluster.control.on(Api.FETCH, Action(hold="after"))
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    consumer.run_for(100)
    consumer.submit(consumer.core, SeekEvent(_T0, 8, None))
    consumer.run_for(10)
    held.release()
    assert _read(consumer, 2) == _numbers(10, 8)


def test_even_a_seek_to_the_same_offset_drops_the_answer_that_is_under_way() -> None:
    cluster = _cluster(records=3)
    held = cluster.control.on(Api.FETCH, Action(hold="after"))
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    consumer.run_for(100)
    consumer.submit(consumer.core, SeekEvent(_T0, 0, None))
    consumer.run_for(10)
    held.release()
    assert _read(consumer, 3) == _numbers(3)
    assert consumer.poll(2_000) == []


def test_an_answer_of_a_former_leader_is_dropped_once_the_next_one_has_answered() -> None:
    """Both were asked for the same offset: the records would be returned twice."""
    cluster = _cluster(2, records=3)
    held = cluster.control.on(Api.FETCH, Action(hold="after"))
    consumer = FakeConsumer(cluster, **{"metadata.max.age.ms": 1_000})
    consumer.read((_T0, 0))
    consumer.run_for(100)
    cluster.move("t", 0, 2)
    assert _read(consumer, 3) == _numbers(3)
    assert [call.node for call in cluster.calls(Api.FETCH)][:2] == [1, 2]
    held.release()
    cluster.log("t").append_values(b"3")
    assert _read(consumer, 1) == [b"3"]
    assert consumer.poll(2_000) == []
    assert _position(consumer) == 4


def test_a_partition_that_is_let_go_gives_nothing_any_more() -> None:
    cluster = _cluster(1, 2, records=3)
    held = cluster.control.on(Api.FETCH, Action(hold="after"))
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0), (_T1, 0))
    consumer.run_for(100)
    consumer.submit(consumer.core, AssignEvent([_T1]))
    consumer.run_for(10)
    held.release()
    assert {fetched.tp for fetched in consumer.poll()} == {_T1}


def test_paused_partitions_are_neither_returned_nor_fetched() -> None:
    cluster = _cluster(1, 2, records=3)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0), (_T1, 0))
    consumer.run_for(100)  # both are fetched
    consumer.submit(consumer.core, PauseEvent([_T0], paused=True))
    assert {fetched.tp for fetched in consumer.poll()} == {_T1}
    consumer.run_for(1_000)
    seen = len(cluster.calls(Api.FETCH))
    consumer.run_for(5_000)
    for call in cluster.calls(Api.FETCH)[seen:]:
        assert call.session is not None
        assert [key[2] for key in call.session.partitions] == [1]
    assert consumer.poll(0) == []
    consumer.submit(consumer.core, PauseEvent([_T0], paused=False))
    assert _read(consumer, 3) == _numbers(3)


def test_prefetch_is_bounded_in_bytes() -> None:
    """Never more than ``fetch.max.bytes`` and one answer."""
    cluster = _cluster(1, 4)
    for partition in range(4):
        for _ in range(30):
            cluster.log("t", partition).append(build((bytes(1_000),)))
    limit, per_partition = 8_000, 3_000
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": per_partition})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(4)))
    total = 0
    for _ in range(60):
        consumer.run_for(20)
        positions = consumer.core.positions
        assert positions.buffered <= 2 * limit
        assert positions.buffered == sum(one.held for one in positions.ready)
        assert all(position.buffered <= 2 * per_partition for _, position in positions)
        total += sum(one.size for one in consumer.poll(0))
        if total == 4 * 30 * 1_073:
            break
    assert len({one.base_offset for one in cluster.log("t").batches()}) == 30
    consumer.run_for(2_000)
    assert consumer.poll(0) == []
    assert total == sum(len(cluster.log("t", p).data) for p in range(4))


@pytest.mark.parametrize("sessions", [True, False], ids=["sessions", "no sessions"])
def test_one_answer_brings_a_sixth_and_then_it_is_the_others_turn(*, sessions: bool) -> None:
    """A broker that keeps no session gives first what is named first."""
    cluster = _cluster(1, 4)
    cluster.sessions.offered = sessions
    for partition in range(4):
        for _ in range(30):
            cluster.log("t", partition).append(build((bytes(1_000),)))
    limit = 12_000
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": 1_500})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(4)))
    brought = dict.fromkeys(range(4), 0)
    for _ in range(20):
        for one in consumer.poll(1_000):
            assert one.size <= limit / 6
            brought[one.tp.partition] += 1
    assert max(brought.values()) - min(brought.values()) <= 2, brought


def test_a_full_buffer_stops_fetching_until_it_is_taken() -> None:
    cluster = _cluster()
    for _ in range(20):
        cluster.log("t").append(build((bytes(1_000),)))
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": 4_000})
    consumer.read((_T0, 0))
    consumer.run_for(500)
    seen = len(cluster.calls(Api.FETCH))
    consumer.run_for(20_000)
    assert len(cluster.calls(Api.FETCH)) == seen
    offsets = [batch.base_offset for _ in range(40) for one in consumer.poll(0) for batch in one.batches]
    assert offsets[:2] == [0, 1]
    consumer.run_for(100)
    assert len(cluster.calls(Api.FETCH)) > seen


def test_a_batch_larger_than_every_limit_comes_all_the_same() -> None:
    """KIP-74: the first batch is given whole."""
    cluster = _cluster()
    cluster.log("t").append(build((bytes(50_000),)))
    cluster.log("t").append_values(b"after")
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": 1_000, "max.partition.fetch.bytes": 500})
    consumer.read((_T0, 0))
    assert [len(value) for value in _read(consumer, 2)] == [50_000, 5]
