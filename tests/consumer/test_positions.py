"""Where reading begins, and how a log that was cut back is noticed (KIP-320)."""

from __future__ import annotations

import pytest

from mirror.cluster.calls.group_offset_calls import CommitGroupOffsets
from mirror.cluster.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from mirror.consumer.events import AssignEvent, PositionEvent, ResetEvent, SeekEvent
from mirror.errors import KafkaTimeout, LogTruncated, NoPosition
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import values_of

_T0 = TopicPartition("t", 0)


def _cluster(records: int = 5, brokers: int = 2) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("t")
    for number in range(records):
        cluster.log("t").append_values(b"%d" % number)
    return cluster


def _position(consumer: FakeConsumer, timeout_ms: int = 60_000) -> int:
    return consumer.call(PositionEvent(_T0, *consumer.timer(timeout_ms)), consumer.core)


def _assign(consumer: FakeConsumer) -> None:
    consumer.submit(consumer.core, AssignEvent([_T0]))


@pytest.mark.parametrize(("rule", "offset"), [("earliest", 2), ("latest", 5)])
def test_without_a_committed_offset_the_rule_decides(rule: str, offset: int) -> None:
    cluster = _cluster()
    cluster.log("t").delete_before(2)
    consumer = FakeConsumer(cluster, **{"auto.offset.reset": rule})
    _assign(consumer)
    assert _position(consumer) == offset


def test_without_a_rule_that_is_an_error() -> None:
    consumer = FakeConsumer(_cluster(), **{"auto.offset.reset": "none"})
    _assign(consumer)
    with pytest.raises(NoPosition, match="t-0"):
        _position(consumer)
    (fetched,) = consumer.poll()
    assert isinstance(fetched.error, NoPosition)


def test_a_committed_offset_comes_first() -> None:
    cluster = _cluster()
    consumer = FakeConsumer(cluster, **{"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.call(CommitGroupOffsets("g", {_T0: OffsetAndMetadata(3)}, *consumer.timer()))
    _assign(consumer)
    assert _position(consumer) == 3


def test_a_seek_overrules_a_look_up_under_way() -> None:
    cluster = _cluster()
    held = cluster.control.on(Api.LIST_OFFSETS, Action(hold="after"))
    consumer = FakeConsumer(cluster, **{"auto.offset.reset": "earliest"})
    _assign(consumer)
    consumer.run_for(200)
    consumer.submit(consumer.core, SeekEvent(_T0, 4, None))
    consumer.run_for(10)
    held.release()
    assert _position(consumer) == 4
    consumer.run_for(500)
    assert _position(consumer) == 4


@pytest.mark.parametrize(("time", "offset"), [(EARLIEST, 0), (LATEST, 5)])
def test_a_reset_is_looked_up_at_once(time: int, offset: int) -> None:
    consumer = FakeConsumer(_cluster())
    consumer.read((_T0, 3))
    consumer.poll()
    consumer.run_for(2_000)
    consumer.submit(consumer.core, ResetEvent({_T0: time}))
    begun = consumer.now
    assert _position(consumer) == offset
    assert consumer.completed_ms - begun < 100


def test_an_offset_out_of_range_follows_the_rule() -> None:
    cluster = _cluster()
    cluster.log("t").delete_before(3)
    consumer = FakeConsumer(cluster, **{"auto.offset.reset": "earliest"})
    consumer.read((_T0, 1))
    (fetched,) = consumer.poll()
    assert [value for batch in fetched.batches for value in values_of(batch.view)] == [b"3", b"4"]


def test_a_position_that_cannot_be_found_times_out_with_the_reason() -> None:
    cluster = _cluster()
    cluster.control.on(Api.LIST_OFFSETS, Action(errors={_T0: errors.NOT_LEADER}), times=None)
    consumer = FakeConsumer(cluster, **{"auto.offset.reset": "earliest"})
    _assign(consumer)
    begun = consumer.now
    with pytest.raises(KafkaTimeout, match="position of t-0 did not succeed within 2000 ms"):
        _position(consumer, 2_000)
    assert consumer.completed_ms - begun == 2_000


def test_after_a_leader_change_the_position_is_validated_and_reading_goes_on() -> None:
    cluster = _cluster()
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    consumer.poll()
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"new epoch")
    (fetched,) = consumer.poll(10_000)
    assert fetched.offset == 5
    assert len(cluster.calls(Api.OFFSET_FOR_LEADER_EPOCH)) == 1


def test_a_log_cut_back_below_the_position_is_reported_never_skipped() -> None:
    cluster = _cluster()
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    consumer.poll()
    log = cluster.log("t")
    log.truncate(3)
    cluster.move("t", 0, 2)
    for number in range(4):
        log.append_values(b"other %d" % number)
    (fetched,) = consumer.poll(10_000)
    assert isinstance(fetched.error, LogTruncated)
    assert fetched.error.diverging_offset == 3
    assert "t-0" in str(fetched.error)
    assert consumer.poll(3_000) == []
    consumer.submit(consumer.core, SeekEvent(_T0, 3, None))
    (fetched,) = consumer.poll(10_000)
    assert fetched.offset == 3


def test_the_nearest_replica_is_read_when_the_leader_says_so() -> None:
    """KIP-392."""
    cluster = _cluster()
    cluster.log("t").preferred_replica = 2
    consumer = FakeConsumer(cluster, **{"client.rack": "here"})
    consumer.read((_T0, 0))
    (fetched,) = consumer.poll()
    assert fetched.next_offset == 5
    assert [call.node for call in cluster.calls(Api.FETCH)][:2] == [1, 2]
