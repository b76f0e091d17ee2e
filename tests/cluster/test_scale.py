"""Ten thousand partitions cost ten times what a thousand do, not a hundred times. Counted in calls, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from mirror.cluster.admin.topics import DescribeTopics
from mirror.cluster.calls.offset_calls import ListOffsets
from mirror.cluster.events import CompletableEvent
from mirror.cluster.loop import JoinEvent
from mirror.cluster.reaper import CompletableEventReaper
from mirror.cluster.types import EARLIEST, TopicPartition
from tests.cluster.workers import Job, JobEvent, Worker
from tests.fakes.client import FakeClient, FakeConsumer
from tests.fakes.cluster import FakeCluster


def calls_made(work: Callable[[], object]) -> int:
    """How many Python functions in mirror/ ``work`` calls: the same count on every machine."""
    count = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event == "call" and "/mirror/" in frame.f_code.co_filename:
            count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def describe_and_list(partitions: int) -> int:
    cluster = FakeCluster(brokers=3)
    for number in range(partitions // 100):
        cluster.add_topic(f"topic-{number}", partitions=100)
    client = FakeClient(cluster)
    tps = [TopicPartition(f"topic-{n // 100}", n % 100) for n in range(partitions)]

    def work() -> None:
        found = client.call(DescribeTopics(None, *client.timer()))
        assert sum(len(topic.partitions) for topic in found.values()) == partitions
        times = dict.fromkeys(tps, EARLIEST)
        listed = client.call(ListOffsets(times, read_committed=True, deadline_ms=client.timer()[0], timeout_ms=60_000))
        assert len(listed) == partitions

    return calls_made(work)


def first_fetch(partitions: int) -> int:
    cluster = FakeCluster(brokers=3)
    for number in range(partitions // 100):
        cluster.add_topic(f"topic-{number}", partitions=100)
    consumer = FakeConsumer(cluster)
    consumer.read(*((TopicPartition(f"topic-{n // 100}", n % 100), 0) for n in range(partitions)))
    return calls_made(lambda: consumer.poll(timeout_ms=10))


@pytest.mark.slow
def test_metadata_and_offsets_of_10_000_partitions_cost_no_quadratic_work() -> None:
    small, large = describe_and_list(1_000), describe_and_list(10_000)
    assert large < 12 * small


@pytest.mark.cluster
def test_fetching_10_000_partitions_costs_no_quadratic_work() -> None:
    small, large = first_fetch(1_000), first_fetch(10_000)
    assert large < 12 * small


def turn(cores: int, touched: int) -> int:
    """Calls made in 20 turns of a loop of so many idle cores, of which so many have something to do in each."""
    cluster = FakeCluster(brokers=3)
    cluster.add_topic("t")
    client = FakeClient(cluster)
    workers = [Worker(client.loop, []) for _ in range(cores)]
    for worker in workers:
        client.submit(None, JoinEvent(worker))
    client.submit(workers[0], JobEvent(Job("warm", TopicPartition("t", 0))))
    client.run_until(lambda: workers[0].done)
    client.run_for(2_000)

    def work() -> None:
        for _ in range(20):
            for worker in workers[:touched]:
                client.loop.touch(worker)
            client.network.horizon_ms = client.now + 1
            client.loop.run_once()

    return calls_made(work)


@pytest.mark.parametrize("touched", [0, 10])
def test_a_turn_costs_what_is_to_be_done_not_what_is_there(touched: int) -> None:
    few, many = turn(20, touched), turn(1_000, touched)
    assert many < 1.5 * few


def test_a_change_that_all_look_at_costs_no_quadratic_work() -> None:
    assert all_woken(1_000) < 12 * all_woken(100)


def all_woken(cores: int) -> int:
    cluster = FakeCluster()
    client = FakeClient(cluster)
    for _ in range(cores):
        client.submit(None, JoinEvent(Worker(client.loop, [])))
    client.run_for(1_000)

    def work() -> None:
        client.loop.metadata.changes += 1
        client.network.horizon_ms = client.now + 1
        client.loop.run_once()

    return calls_made(work)


def test_a_thousand_events_cost_a_turn_nothing_until_their_deadlines() -> None:
    made = []
    for count in (10, 1_000):
        reaper = CompletableEventReaper()
        for number in range(count):
            reaper.add(CompletableEvent("waiting", 60_000 + number, 60_000))
        made.append(calls_made(lambda reaper=reaper: (reaper.wait_ms(0), reaper.reap_expired_and_completed(0))))  # type: ignore[misc]
    assert made[0] == made[1]
