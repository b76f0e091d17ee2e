"""Where a consumer begins, and how it finds out that its place is gone (KIP-320)."""

from __future__ import annotations

import pytest

from mirror.cluster.calls.group_offset_calls import CommitGroupOffsets
from mirror.cluster.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from mirror.consumer.events import AssignEvent, LastErrorEvent, PositionEvent, ResetEvent, SeekEvent
from mirror.errors import AuthorizationFailed, LogTruncated, NoPosition, OffsetOutOfRange
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("clicks", 0)


def cluster_with(records: int, brokers: int = 2) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("orders")
    cluster.add_topic("clicks")
    for number in range(records):
        cluster.log("orders").append_values(b"%d" % number)
    return cluster


def assigned(cluster: FakeCluster, *tps: TopicPartition, **options: object) -> FakeConsumer:
    consumer = FakeConsumer(cluster, **options)
    consumer.submit(consumer.core, AssignEvent(tps or (TP,)))
    return consumer


def position(consumer: FakeConsumer, tp: TopicPartition = TP) -> int:
    return consumer.call(PositionEvent(tp, *consumer.timer(5_000)), consumer.core)


@pytest.mark.parametrize(("rule", "offset"), [("earliest", 2), ("latest", 5)])
def test_without_a_committed_offset_auto_offset_reset_decides(rule: str, offset: int) -> None:
    cluster = cluster_with(5)
    cluster.log("orders").delete_before(2)
    assert position(assigned(cluster, **{"auto.offset.reset": rule})) == offset


def test_without_any_rule_the_partition_says_that_it_has_no_position() -> None:
    consumer = assigned(cluster_with(5), **{"auto.offset.reset": "none"})
    (fetched,) = consumer.poll()
    assert isinstance(fetched.error, NoPosition)
    with pytest.raises(NoPosition):
        position(consumer)


def test_the_committed_offset_comes_first() -> None:
    cluster = cluster_with(5)
    consumer = assigned(cluster, **{"group.id": "g", "auto.offset.reset": "latest"})
    consumer.call(CommitGroupOffsets("g", {TP: OffsetAndMetadata(3, 0)}, *consumer.timer()))
    consumer.submit(consumer.core, AssignEvent(()))
    consumer.submit(consumer.core, AssignEvent((TP,)))
    assert position(consumer) == 3
    assert [b.base_offset for f in consumer.poll() for b in f.batches] == [3, 4]


def test_seeking_to_the_ends() -> None:
    consumer = assigned(cluster_with(5))
    consumer.submit(consumer.core, ResetEvent({TP: EARLIEST}))
    assert position(consumer) == 0
    consumer.submit(consumer.core, ResetEvent({TP: LATEST}))
    assert position(consumer) == 5


def test_a_seek_overtakes_a_look_up_under_way() -> None:
    cluster = cluster_with(5)
    held = cluster.control.on(Api.LIST_OFFSETS, Action(hold="before"))
    consumer = assigned(cluster, **{"auto.offset.reset": "latest"})
    consumer.run_until(lambda: cluster.calls(Api.LIST_OFFSETS))
    consumer.submit(consumer.core, SeekEvent(TP, 1, None))
    held.release()
    assert position(consumer) == 1
    consumer.run_for(100)
    assert position(consumer) == 1


def test_a_topic_that_may_not_be_read_does_not_hold_up_the_others() -> None:
    cluster = cluster_with(5)
    cluster.control.add(
        lambda call: (
            Action(errors={TP: errors.TOPIC_AUTHORIZATION_FAILED})
            if call.api is Api.LIST_OFFSETS and call.body.topics[0].name == "orders"
            else None
        )
    )
    consumer = assigned(cluster, TP, OTHER, **{"auto.offset.reset": "earliest"})
    assert position(consumer, OTHER) == 0
    with pytest.raises(AuthorizationFailed, match="orders-0"):
        position(consumer)


def test_out_of_range_is_reported_once_and_not_skipped() -> None:
    cluster = cluster_with(5)
    cluster.log("orders").delete_before(3)
    consumer = assigned(cluster, **{"auto.offset.reset": "none"})
    consumer.submit(consumer.core, SeekEvent(TP, 1, None))
    (fetched,) = consumer.poll()
    assert isinstance(fetched.error, OffsetOutOfRange)
    assert consumer.poll(5_000) == []
    consumer.submit(consumer.core, SeekEvent(TP, 3, None))
    assert [b.base_offset for f in consumer.poll() for b in f.batches] == [3, 4]


def test_a_leader_change_is_validated_before_reading_on() -> None:
    cluster = cluster_with(3)
    consumer = assigned(cluster, **{"auto.offset.reset": "earliest"})
    assert sum(len(f.batches) for f in consumer.poll()) == 3
    cluster.move("orders", 0, 2)
    cluster.log("orders").append_values(b"new")
    assert [b.base_offset for f in consumer.poll(60_000) for b in f.batches] == [3]
    (asked,) = cluster.calls(Api.OFFSET_FOR_LEADER_EPOCH)
    assert asked.node == 2
    assert asked.body.topics[0].partitions[0].leader_epoch == 0


def test_truncation_is_detected_and_reported_never_skipped() -> None:
    cluster = cluster_with(5)
    consumer = assigned(cluster, **{"auto.offset.reset": "earliest"})
    assert sum(len(f.batches) for f in consumer.poll()) == 5
    # An unclean election: the new leader never had the last two, and others have come in their place.
    cluster.log("orders").truncate(3)
    cluster.move("orders", 0, 2)
    for _ in range(4):
        cluster.log("orders").append_values(b"other")
    (fetched,) = consumer.poll(60_000)
    assert isinstance(fetched.error, LogTruncated)
    assert fetched.error.diverging_offset == 3
    assert "truncated at offset 3, before the position 5" in str(fetched.error)
    assert consumer.poll(5_000) == []


def test_a_seek_with_an_epoch_is_validated_too() -> None:
    """As after a restart: progress was kept with its epoch, and the log was cut back meanwhile."""
    cluster = cluster_with(5)
    cluster.log("orders").truncate(2)
    cluster.move("orders", 0, 2)
    for _ in range(6):
        cluster.log("orders").append_values(b"other")
    consumer = assigned(cluster)
    consumer.submit(consumer.core, SeekEvent(TP, 5, 0))
    (fetched,) = consumer.poll(60_000)
    assert isinstance(fetched.error, LogTruncated)


def test_a_follower_nearby_is_read_until_it_goes() -> None:
    cluster = cluster_with(3)
    cluster.log("orders").preferred_replica = 2
    consumer = assigned(cluster, **{"auto.offset.reset": "earliest", "client.rack": "here"})
    assert sum(len(f.batches) for f in consumer.poll()) == 3
    assert cluster.calls(Api.FETCH)[-1].node == 2
    cluster.kill(2)
    cluster.log("orders").preferred_replica = None
    cluster.log("orders").append_values(b"new")
    assert [b.base_offset for f in consumer.poll(60_000) for b in f.batches] == [3]
    assert cluster.calls(Api.FETCH)[-1].node == 1


def test_the_last_error_says_why_nothing_comes() -> None:
    cluster = cluster_with(1)
    cluster.kill(1)
    consumer = assigned(cluster, **{"auto.offset.reset": "earliest"})
    assert consumer.poll(1_000) == []
    error = consumer.call(LastErrorEvent(TP, *consumer.timer()), consumer.core)
    assert error is not None
    assert "refused" in str(error)
