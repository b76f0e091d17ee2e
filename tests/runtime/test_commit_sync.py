"""``commit_sync`` without offsets: what the polls have returned, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import Consumer, OffsetAndMetadata, TopicPartition
from mirror.cluster.events import CompletableEvent
from mirror.wire.api import Api
from tests.fakes.cluster import FakeCluster

READ, BUFFERED, PAUSED = (TopicPartition("orders", number) for number in range(3))


@pytest.fixture
def consumer(cluster: FakeCluster) -> Any:
    cluster.add_topic("orders", 3)
    for tp in (READ, BUFFERED):
        for value in (b"one", b"two", b"three"):
            cluster.log(*tp).append_values(value)
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(options) as consumer:
        yield consumer


def committed(cluster: FakeCluster) -> dict[TopicPartition, int]:
    return {tp: kept.offset for tp, kept in cluster.groups["g"].items()}


def test_it_commits_the_positions_of_all_partitions(cluster: FakeCluster, consumer: Consumer) -> None:
    """The design document's own example. What is fetched and not returned yet is read again after a restart."""
    consumer.assign([READ])
    read = 0
    while read < 3:
        read += sum(one.next_offset - one.offset for one in consumer.poll(60_000))
    consumer.incremental_assign([BUFFERED])
    assert consumer.position(BUFFERED) == 0
    consumer.incremental_assign([PAUSED], paused=True)
    consumer.commit_sync()
    assert committed(cluster) == {READ: 3, BUFFERED: 0}
    assert consumer.committed([READ])[READ] == OffsetAndMetadata(3, 0)
    consumer.seek(READ, 1)
    consumer.commit_sync(timeout_ms=60_000)
    assert committed(cluster) == {READ: 1, BUFFERED: 0}


def test_without_a_position_it_commits_nothing(cluster: FakeCluster, consumer: Consumer) -> None:
    consumer.commit_sync()
    consumer.assign([READ], paused=True)
    consumer.commit_sync()
    assert cluster.calls(Api.OFFSET_COMMIT) == []


def test_both_of_its_steps_share_one_timeout(
    cluster: FakeCluster, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock moves on while the positions are asked for, and the commit has what is left."""
    events: list[CompletableEvent[Any]] = []
    call = consumer.network_thread.call

    def late(core: object, event: CompletableEvent[Any], **options: Any) -> Any:
        events.append(event)
        answer = call(core, event, **options)
        cluster.clock.advance(5_000)
        return answer

    consumer.assign([READ])
    consumer.seek(READ, 2)
    with monkeypatch.context() as patch:
        patch.setattr(consumer.network_thread, "call", late)
        consumer.commit_sync(timeout_ms=60_000)
    assert committed(cluster) == {READ: 2}
    assert [event.what for event in events] == ["positions", "committing offsets of group 'g'"]
    assert len({event.deadline_ms for event in events}) == 1
