"""Partitions that wait to be sought, and those that go on with a seek after something stopped them."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.events import (
    AssignEvent,
    LastErrorEvent,
    PauseEvent,
    PositionEvent,
    ResetEvent,
    SeekEvent,
)
from mirror.errors import KafkaError, LogTruncated, NoPosition, OffsetOutOfRange
from mirror.wire.api import Api
from mirror.wire.messages.epochs import EpochEnd, EpochEndTopic, OffsetForLeaderEpochResponse
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

TP = TopicPartition("t", 0)
NO_RESET = {"auto.offset.reset": "none"}
LOOK_UPS = (Api.LIST_OFFSETS, Api.OFFSET_FETCH, Api.FIND_COORDINATOR, Api.FETCH)


def cluster_with(records: int) -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    for _ in range(records):
        cluster.log("t").append_values(b"value")
    return cluster


def offsets(consumer: FakeConsumer, timeout_ms: int = 60_000) -> list[int]:
    fetched = consumer.poll(timeout_ms)
    assert [one.error for one in fetched] == [None] * len(fetched)
    return [batch.base_offset for one in fetched for batch in one.batches]


def stopped_by(consumer: FakeConsumer) -> KafkaError:
    (fetched,) = consumer.poll(60_000)
    assert fetched.error is not None
    assert consumer.poll(5_000) == [], "reported once"
    return fetched.error


def seek(consumer: FakeConsumer, offset: int, epoch: int | None = None) -> None:
    consumer.submit(consumer.core, SeekEvent(TP, offset, epoch))


# --- paused before they are sought


@pytest.mark.parametrize("options", [NO_RESET, {"group.id": "g"}, {}])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_paused_partition_waits_for_its_seek(options: dict[str, object], *, at_once: bool) -> None:
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster, **options)
    consumer.submit(consumer.core, AssignEvent([TP], paused=at_once))
    if at_once:
        consumer.run_for(100)  # with time between the two it must be right as well
    consumer.submit(consumer.core, PauseEvent([TP], paused=True))
    assert consumer.poll(3_000) == []
    assert [call.api for call in cluster.received if call.api in LOOK_UPS] == []
    seek(consumer, 3)
    assert consumer.poll(1_000) == []
    consumer.submit(consumer.core, PauseEvent([TP], paused=False))
    assert offsets(consumer) == [3, 4]
    assert [call.api for call in cluster.received if call.api in LOOK_UPS[:3]] == []


def test_the_rule_holds_for_a_partition_that_is_resumed_and_was_never_sought() -> None:
    consumer = FakeConsumer(cluster_with(5), **NO_RESET)
    consumer.submit(consumer.core, AssignEvent([TP], paused=True))
    consumer.run_for(100)
    consumer.submit(consumer.core, PauseEvent([TP], paused=False))
    assert isinstance(stopped_by(consumer), NoPosition)


def test_a_paused_partitions_position_is_looked_up_for_who_asks() -> None:
    consumer = FakeConsumer(cluster_with(5), **{"auto.offset.reset": "latest"})
    consumer.submit(consumer.core, AssignEvent([TP], paused=True))
    assert consumer.call(PositionEvent(TP, *consumer.timer()), consumer.core) == 5


def test_a_paused_partition_is_reset_where_that_is_asked_for() -> None:
    consumer = FakeConsumer(cluster_with(5), **NO_RESET)
    consumer.submit(consumer.core, AssignEvent([TP], paused=True))
    consumer.submit(consumer.core, ResetEvent({TP: -1}))
    assert consumer.call(PositionEvent(TP, *consumer.timer()), consumer.core) == 5


def test_only_new_partitions_begin_paused() -> None:
    consumer = FakeConsumer(cluster_with(5))
    consumer.read((TP, 3))
    consumer.submit(consumer.core, AssignEvent([TP], paused=True))
    assert offsets(consumer) == [3, 4]


# --- back to an earlier offset


def test_a_seek_back_reads_again_what_was_read() -> None:
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    assert offsets(consumer) == [0, 1, 2, 3, 4]
    for _ in range(2):
        cluster.log("t").append_values(b"new")
    consumer.run_for(1_000)  # both are prefetched, and the next Fetch is under way
    assert consumer.core.positions.buffered
    seek(consumer, 2)
    assert offsets(consumer) == [2, 3, 4, 5, 6]
    assert consumer.poll(2_000) == []


def test_a_late_answer_from_before_a_seek_back_is_dropped() -> None:
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    assert offsets(consumer) == [0, 1, 2, 3, 4]
    held = cluster.control.on(Api.FETCH, Action(hold="after"))
    cluster.log("t").append_values(b"new")
    consumer.run_for(1_000)
    seek(consumer, 4)
    consumer.run_for(10)
    held.release()
    assert offsets(consumer) == [4, 5]
    assert consumer.poll(2_000) == []


# --- after an error


def test_a_seek_goes_on_after_out_of_range() -> None:
    cluster = cluster_with(5)
    cluster.log("t").delete_before(3)
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.read((TP, 1))
    assert isinstance(stopped_by(consumer), OffsetOutOfRange)
    seek(consumer, 99)
    assert isinstance(stopped_by(consumer), OffsetOutOfRange), "each seek is checked again"
    seek(consumer, 3)
    assert offsets(consumer) == [3, 4]
    assert consumer.call(LastErrorEvent(TP, *consumer.timer()), consumer.core) is None


def truncated() -> tuple[FakeCluster, FakeConsumer, LogTruncated]:
    """An unclean election: the new leader never had the last two, and others have come in their place."""
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.read((TP, 0))
    assert offsets(consumer) == [0, 1, 2, 3, 4]
    cluster.log("t").truncate(3)
    cluster.move("t", 0, 2)
    for _ in range(4):
        cluster.log("t").append_values(b"other")
    error = stopped_by(consumer)
    assert isinstance(error, LogTruncated)
    return cluster, consumer, error


def test_a_seek_goes_on_after_a_truncation() -> None:
    _, consumer, error = truncated()
    assert error.diverging_offset == 3
    seek(consumer, error.diverging_offset, 0)
    assert offsets(consumer) == [3, 4, 5, 6]


def test_a_seek_without_an_epoch_passes_over_a_truncation() -> None:
    _, consumer, _ = truncated()
    seek(consumer, 5)
    assert offsets(consumer) == [5, 6]


def test_a_truncation_behind_a_seek_without_an_epoch_is_noticed_once_a_leader_had_the_position() -> None:
    """Nothing was read there whose epoch would be known, but the leader's was."""
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.read((TP, 5))
    assert offsets(consumer, 2_000) == []
    cluster.log("t").truncate(3)
    cluster.move("t", 0, 2)
    for _ in range(4):
        cluster.log("t").append_values(b"other")
    error = stopped_by(consumer)
    assert isinstance(error, LogTruncated)
    assert error.diverging_offset == 3


@pytest.mark.parametrize("epoch", [None, 0])
def test_a_log_without_epochs_is_read_on_unless_a_record_had_one(epoch: int | None) -> None:
    """Logs of a format before version 2: any epoch is unknown there."""
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.read((TP, 0))
    seek(consumer, 5, epoch)
    assert offsets(consumer, 2_000) == []
    unknown = OffsetForLeaderEpochResponse((EpochEndTopic("t", (EpochEnd(0, 0),)),))
    cluster.control.on(Api.OFFSET_FOR_LEADER_EPOCH, Action(rewrite=lambda _: unknown), times=None)
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"more")
    if epoch is None:
        assert offsets(consumer) == [5]
    else:
        assert isinstance(stopped_by(consumer), LogTruncated)


def test_a_broker_that_takes_itself_for_the_leader_still_is_not_asked_whether_the_log_was_cut_back() -> None:
    """It lacks the epoch of what was read since, and would say so."""
    cluster = cluster_with(5)
    cluster.lag(1)
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"of the next epoch")
    unknown = OffsetForLeaderEpochResponse((EpochEndTopic("t", (EpochEnd(0, 0),)),))
    cluster.control.on(Api.OFFSET_FOR_LEADER_EPOCH, Action(rewrite=lambda _: unknown), times=None, node=1)
    cluster.kill(2)
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.submit(consumer.core, AssignEvent([TP]))
    seek(consumer, 5, 1)
    assert consumer.poll(2_000) == []
    cluster.start(2)
    cluster.catch_up(1)
    assert offsets(consumer) == [5]


def test_a_seek_to_where_the_log_still_parts_is_reported_again() -> None:
    _, consumer, _ = truncated()
    seek(consumer, 5, 0)
    assert isinstance(stopped_by(consumer), LogTruncated)


def test_a_seek_accepts_the_topic_that_was_made_again() -> None:
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.read((TP, 0))
    assert offsets(consumer) == [0, 1, 2, 3, 4]
    cluster.add_topic("t")
    for _ in range(7):
        cluster.log("t").append_values(b"new")
    error = stopped_by(consumer)
    assert isinstance(error, LogTruncated)
    assert "made again" in str(error)
    seek(consumer, 0)
    assert offsets(consumer) == list(range(7))
    cluster.log("t").append_values(b"more")
    assert offsets(consumer) == [7]


def test_a_seek_goes_on_after_a_refusal_that_is_over() -> None:
    cluster = cluster_with(2)
    cluster.control.on(Api.FETCH, Action(errors={TP: errors.TOPIC_AUTHORIZATION_FAILED}))
    consumer = FakeConsumer(cluster, **NO_RESET)
    consumer.read((TP, 0))
    stopped_by(consumer)
    seek(consumer, 1)
    assert offsets(consumer) == [1]
