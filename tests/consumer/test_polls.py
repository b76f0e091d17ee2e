"""What one poll returns: how much, of whom, and what ends its waiting."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mirror.cluster.types import EARLIEST, TopicPartition
from mirror.consumer.events import (
    ConsumedEvent,
    PauseEvent,
    PollEvent,
    PollInterruptedEvent,
    PositionEvent,
    SeekEvent,
    WakeEvent,
)
from mirror.consumer.fetch_buffer import FetchBuffer
from mirror.consumer.fetched import Fetched
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import build

A, B, C = (TopicPartition("t", number) for number in range(3))
BATCH = len(build((bytes(1_000),)))


def cluster_with(records: int, partitions: int = 3) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("t", partitions)
    for partition in range(partitions):
        for _ in range(records):
            cluster.log("t", partition).append(build((bytes(1_000),)))
    return cluster


def offsets(fetched: list[Fetched]) -> list[tuple[TopicPartition, int]]:
    return [(one.tp, batch.base_offset) for one in fetched for batch in one.batches]


def wake(consumer: FakeConsumer) -> None:
    consumer.submit(None, WakeEvent(consumer.core))


# --- how much


def test_a_poll_returns_no_more_than_it_is_asked_for_and_the_rest_later() -> None:
    consumer = FakeConsumer(cluster_with(20), **{"max.partition.fetch.bytes": 4 * BATCH})
    consumer.read((A, 0), (B, 0), (C, 0))
    consumer.run_for(500)
    found: list[tuple[TopicPartition, int]] = []
    while some := consumer.poll(1_000, max_bytes=9 * BATCH):
        assert sum(one.size for one in some) <= 9 * BATCH
        found += offsets(some)
    assert Counter(found) == Counter((tp, number) for tp in (A, B, C) for number in range(20))
    for tp in (A, B, C):
        assert [number for one, number in found if one == tp] == list(range(20))


def test_at_least_one_entry_comes_however_large_it_is() -> None:
    consumer = FakeConsumer(cluster_with(2))
    consumer.read((A, 0), (B, 0))
    consumer.run_for(500)
    assert [one.tp for one in consumer.poll(0, max_bytes=0)] == [A]
    assert [one.tp for one in consumer.poll(0, max_bytes=1)] == [B]
    assert consumer.poll(0, max_bytes=1) == []


def test_what_a_poll_leaves_counts_as_prefetched() -> None:
    """Or a slow reader would have ever more of it fetched."""
    limit = 6 * BATCH
    consumer = FakeConsumer(cluster_with(50, 1), **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": 2 * BATCH})
    consumer.read((A, 0))
    for _ in range(20):
        consumer.run_for(100)
        assert consumer.core.positions.buffered <= limit
        assert len(consumer.poll(0, max_bytes=1)) == 1


def test_position_and_commit_follow_what_was_returned_not_what_was_fetched() -> None:
    consumer = FakeConsumer(
        cluster_with(9, 1), **{"max.partition.fetch.bytes": 3 * BATCH, "fetch.max.bytes": 18 * BATCH}
    )
    consumer.read((A, 0))
    consumer.run_for(500)
    consumer.poll(0, max_bytes=1)
    assert consumer.call(PositionEvent(A, *consumer.timer()), consumer.core) == 3
    (result,) = consumer.call(ConsumedEvent(*consumer.timer()), consumer.core).values()
    assert result.offset == 3


# --- of whom


def entry(tp: TopicPartition, offset: int, size: int) -> Fetched:
    return Fetched(tp=tp, offset=offset, next_offset=offset + 1, size=size, held=size)


def test_partitions_take_turns_and_what_is_left_comes_first() -> None:
    ready = FetchBuffer()
    for offset in range(3):
        ready.add(entry(A, offset, 10))
    ready.add(entry(B, 0, 10))
    ready.add(entry(C, 0, 25))
    taken = [ready.take(lambda _: False, 20) for _ in range(4)]
    assert [[(one.tp, one.offset) for one in some] for some in taken] == [
        [(A, 0), (B, 0)],
        [(C, 0)],  # larger than the limit, and it is its turn
        [(A, 1), (A, 2)],
        [],
    ]


def test_a_large_entry_is_not_passed_by_for_ever() -> None:
    ready = FetchBuffer()
    ready.add(entry(A, 0, 1))
    ready.add(entry(B, 0, 1_000))
    for offset in itertools.count(1):
        ready.add(entry(A, offset, 1))
        if B in {one.tp for one in ready.take(lambda _: False, 10)}:
            break
    assert offset <= 2


sizes = st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 50)), max_size=40)


@given(sizes, st.lists(st.integers(0, 80), min_size=1, max_size=10), st.sampled_from([None, A, B]))
def test_nothing_is_lost_repeated_or_out_of_order(
    added: list[tuple[TopicPartition, int]], limits: list[int], paused: TopicPartition | None
) -> None:
    ready, entries = FetchBuffer(), [entry(tp, number, size) for number, (tp, size) in enumerate(added)]
    for one in entries:
        ready.add(one)
    taken: list[Fetched] = []
    for number, limit in enumerate(itertools.cycle(limits)):
        some = ready.take(lambda tp: tp == paused, limit)
        assert len(some) <= 1 or sum(one.size for one in some) <= limit
        if number % 3 == 1:
            ready.put_back(some)  # as if no poll had returned them
            again = ready.take(lambda tp: tp == paused, limit)
            assert again == some
        taken += some
        assert ready.held == sum(one.held for one in ready)
        if not some:
            break
    for tp in (A, B, C):
        assert [one for one in taken if one.tp == tp] == [one for one in entries if one.tp == tp and tp != paused]
    assert list(ready) == [one for one in entries if one.tp == paused]


# --- what ends the waiting


def test_a_wake_ends_the_poll_that_waits() -> None:
    cluster = cluster_with(0)
    consumer = FakeConsumer(cluster)
    consumer.read((A, 0))
    begun = consumer.now
    cluster.after(300, lambda: wake(consumer))
    assert consumer.poll(30_000) == []
    assert consumer.completed_ms - begun <= 310


def test_a_wake_before_the_poll_ends_the_next_one_and_only_that() -> None:
    consumer = FakeConsumer(cluster_with(0))
    consumer.read((A, 0))
    consumer.run_for(500)
    for _ in range(3):
        wake(consumer)
    begun = consumer.now
    assert consumer.poll(30_000) == []
    assert consumer.completed_ms == begun
    assert consumer.poll(2_000) == []
    assert consumer.completed_ms == begun + 2_000


def test_a_poll_that_is_woken_returns_what_there_is() -> None:
    consumer = FakeConsumer(cluster_with(1))
    consumer.read((A, 0))
    consumer.run_for(500)
    wake(consumer)
    assert offsets(consumer.poll(30_000)) == [(A, 0)]


def test_a_wake_after_the_end_of_a_poll_is_kept_for_the_next() -> None:
    """It came between the answer and the application's next look."""
    consumer = FakeConsumer(cluster_with(1))
    consumer.read((A, 0))
    assert offsets(consumer.poll(30_000)) == [(A, 0)]
    wake(consumer)
    begun = consumer.now
    assert consumer.poll(30_000) == []
    assert consumer.completed_ms == begun


# --- a poll whose answer was not received


def unread(consumer: FakeConsumer) -> PollEvent:
    """A poll that is answered, and whose answer does not reach the application."""
    event = PollEvent(*consumer.timer(60_000))
    consumer.call(event, consumer.core)
    return event


def test_a_seek_voids_what_a_poll_took_that_was_cut_short() -> None:
    consumer = FakeConsumer(cluster_with(3, 1))
    consumer.read((A, 2))
    event = unread(consumer)
    consumer.submit(consumer.core, PollInterruptedEvent(event))
    consumer.submit(consumer.core, SeekEvent(A, 0, None))
    assert offsets(consumer.poll()) == [(A, 0), (A, 1), (A, 2)]
    assert consumer.poll(1_000) == []


def test_what_was_taken_before_a_decision_does_not_come_back_after_it() -> None:
    """Of the core itself as well: where the log no longer holds the position, and a rule says where to go on."""
    consumer = FakeConsumer(cluster_with(3, 1))
    consumer.read((A, 2))
    event = unread(consumer)
    consumer.core.positions.reset(A, EARLIEST)
    consumer.submit(consumer.core, PollInterruptedEvent(event))
    assert consumer.call(PositionEvent(A, *consumer.timer()), consumer.core) == 0
    assert offsets(consumer.poll()) == [(A, 0), (A, 1), (A, 2)]


def test_what_was_not_read_is_neither_consumed_nor_lost() -> None:
    consumer = FakeConsumer(cluster_with(3, 1))
    consumer.read((A, 1))
    event = unread(consumer)
    assert offsets(event.future.result()) == [(A, 1), (A, 2)]
    consumer.submit(consumer.core, PollInterruptedEvent(event))
    assert consumer.call(PositionEvent(A, *consumer.timer()), consumer.core) == 1
    assert consumer.core.positions.buffered == 2 * BATCH
    assert offsets(consumer.poll(0)) == [(A, 1), (A, 2)]
    assert consumer.call(PositionEvent(A, *consumer.timer()), consumer.core) == 3


def test_what_was_not_read_survives_that_room_is_made() -> None:
    """Paused partitions give up what was fetched of them, to be fetched again from where they were read."""
    consumer = FakeConsumer(cluster_with(3, 1))
    consumer.read((A, 0))
    event = unread(consumer)
    consumer.cluster.log("t").append(build((bytes(1_000),)))
    consumer.run_for(1_000)
    consumer.submit(consumer.core, PauseEvent([A], paused=True))
    consumer.run_for(10)
    assert consumer.core.positions.buffered == BATCH
    consumer.core.positions.evict_paused()
    assert consumer.core.positions.buffered == 0
    consumer.submit(consumer.core, PollInterruptedEvent(event))
    consumer.submit(consumer.core, PauseEvent([A], paused=False))
    found = offsets(consumer.poll()) + offsets(consumer.poll())
    assert found == [(A, number) for number in range(4)]


def test_the_wake_that_ended_a_poll_nobody_read_ends_the_next() -> None:
    consumer = FakeConsumer(cluster_with(0))
    consumer.read((A, 0))
    event = PollEvent(*consumer.timer(60_000))
    consumer.submit(consumer.core, event)
    consumer.run_for(100)
    wake(consumer)
    consumer.run_for(100)
    assert event.future.result(0) == []
    consumer.submit(consumer.core, PollInterruptedEvent(event))
    begun = consumer.now
    assert consumer.poll(30_000) == []
    assert consumer.completed_ms == begun


def test_a_poll_may_wait_unwoken_only_while_nothing_would_come_of_it() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    consumer = FakeConsumer(cluster)
    core = consumer.core
    assert not core.listening, "no turn has been made"
    consumer.read((TopicPartition("t", 0), 0), (TopicPartition("t", 1), 0))
    consumer.run_for(1_000)
    assert core.listening
    cluster.log("t", 0).append_values(b"x")
    consumer.run_for(10)
    assert not core.listening, "a poll would return records"
    consumer.poll()
    consumer.run_for(10)
    assert core.listening
    core.wake()
    consumer.run_for(1)
    assert not core.listening, "a poll would end at once"
