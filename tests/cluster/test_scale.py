"""Ten thousand partitions cost ten times what a thousand do, not a hundred times. Counted in calls, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from mirror.cluster.admin_topics import DescribeTopics
from mirror.cluster.offset_calls import ListOffsets
from mirror.cluster.topics import EARLIEST, TopicPartition
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


@pytest.mark.slow
def test_fetching_10_000_partitions_costs_no_quadratic_work() -> None:
    small, large = first_fetch(1_000), first_fetch(10_000)
    assert large < 12 * small
