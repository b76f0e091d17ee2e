"""What the planner sees of a source whose log is another one than the one that was copied; fake brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.committed import Progress
from mirror.spark.planning.range_planner import SourcePartition, plan_range
from mirror.spark.planning.source_offsets import SourceOffsets
from mirror.wire.api import Api
from tests.fakes.cluster import FakeCluster
from tests.fakes.log import PartitionLog
from tests.fakes.threaded import threaded_cluster
from tests.spark.planning.test_range_planner import flow

ORDERS, TARGET = TopicPartition("orders", 0), TopicPartition("a.orders", 0)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with threaded_cluster(monkeypatch) as source:
        source.add_topic("orders")
        source.log(*ORDERS).append_values(b"0", b"1")
        source.log(*ORDERS).append_values(b"2", b"3")
        yield source


def copied_to(source: FakeCluster, offset: int) -> Progress:
    topic_id = str(source.topics["orders"].topic_id)
    return Progress(offset=offset, leader_epoch=0, source_cluster_id="paris", topic_id=topic_id)


def compared(source: FakeCluster, progress: Progress) -> SourcePartition:
    with Admin({"bootstrap.servers": source.bootstrap}) as admin:
        offsets = SourceOffsets(flow(), admin.list_topics(), admin)
        (partition,) = offsets.compared(offsets.partitions(), {TARGET: progress})
    return partition


def planned(source: FakeCluster, progress: Progress, on_gap: str = "fail") -> Range | RangeResult:
    return plan_range(flow(on_gap=on_gap), "paris", compared(source, progress), progress)


def cut_back(log: PartitionLog, *values: bytes) -> None:
    """An unclean election, after which others write."""
    log.truncate(2)
    log.move(1)
    log.append_values(*values)


def test_log_that_was_cut_back_and_ends_at_the_progress_again_is_named(source: FakeCluster) -> None:
    """Nothing is left to be read behind the progress, which would show it."""
    progress = copied_to(source, 4)
    cut_back(source.log(*ORDERS), b"other", b"records")
    expected = {"fail": 'set on-gap = "skip" to resume at offset 2', "skip": "with the source's next record"}
    for on_gap, advice in expected.items():
        result = planned(source, progress, on_gap)
        assert isinstance(result, RangeResult)
        assert (result.outcome, result.start) == (Outcome.FAILED, 4)
        assert "the source's log was cut back to 2" in str(result.error)
        assert advice in str(result.error)


def test_election_that_has_lost_nothing_is_no_gap(source: FakeCluster) -> None:
    source.log(*ORDERS).move(1)
    assert planned(source, copied_to(source, 4)).outcome is Outcome.COMPLETE  # type: ignore[union-attr]
    assert len(source.calls(Api.OFFSET_FOR_LEADER_EPOCH)) == 1


@pytest.mark.parametrize("offset", [3, 4])
def test_leader_of_the_progress_is_not_asked_nor_that_of_records_to_copy(source: FakeCluster, offset: int) -> None:
    progress = copied_to(source, offset)
    if offset < 4:
        cut_back(source.log(*ORDERS), b"other", b"records")
    assert compared(source, progress).diverging is None
    assert source.calls(Api.OFFSET_FOR_LEADER_EPOCH) == []


def test_progress_of_another_topic_or_without_an_epoch_is_not_compared(source: FakeCluster) -> None:
    progress = copied_to(source, 4)
    cut_back(source.log(*ORDERS), b"other", b"records")
    for other in (replace(progress, topic_id="t2"), replace(progress, leader_epoch=None)):
        assert compared(source, other).diverging is None
    assert source.calls(Api.OFFSET_FOR_LEADER_EPOCH) == []
