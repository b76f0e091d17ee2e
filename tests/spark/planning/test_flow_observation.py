"""What the planner sees of a source whose log is another one than the one that was copied; fake brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import FlowError, KafkaError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.spark.planning.flow_observation import Needs, observe_flow
from mirror.spark.planning.range_planner import SourcePartition, plan_range
from mirror.wire.api import Api
from tests.fakes.admin import PromptAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.log import PartitionLog
from tests.fakes.threaded import threaded_cluster
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow

SHORT: Final[dict[str, Any]] = {"default.api.timeout.ms": 500, "request.timeout.ms": 500}
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


class Committed(PromptAdmin):
    """A target that has nothing but this progress."""

    def __init__(self, progress: Mapping[TopicPartition, Progress]) -> None:
        super().__init__(FakeCluster(cluster_id="b"))
        for tp, one in progress.items():
            self.commit_group_offsets(group_of("f", tp), {tp: to_offset(one)})


def compared(source: FakeCluster, progress: Progress) -> SourcePartition:
    with Admin({"bootstrap.servers": source.bootstrap}) as admin:
        (partition,) = observe_flow(
            flow(), sides_of(admin, Committed({TARGET: progress})), Needs(epochs=True)
        ).partitions
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


def test_a_cluster_that_is_away_is_a_value_and_the_other_one_is_read(source: FakeCluster) -> None:
    target = Committed({TARGET: copied_to(source, 3)})
    target.client.cluster.add_topic("a.orders")
    with Admin({"bootstrap.servers": source.bootstrap, "default.api.timeout.ms": 5_000}) as admin:
        gone = FakeCluster(cluster_id="c")
        gone.kill(1)
        silent = PromptAdmin(gone, **SHORT)
        for sides, known in (
            (sides_of(admin, silent), {"a": (ORDERS, 4, None)}),
            (sides_of(silent, target), {"b": (ORDERS, 0, 3)}),
        ):
            for side in sides:
                with contextlib.suppress(FlowError, KafkaError):
                    side.cluster  # noqa: B018 - a fact that is read
            seen = observe_flow(flow(), sides)
            (answers,) = known
            assert seen.away.keys() == {"a", "b"} - {answers}
            (one,) = seen.partitions
            progress = seen.progress.get(one.target_tp)
            assert (one.tp, one.end, progress and progress.offset) == known[answers]
            with pytest.raises((FlowError, KafkaError)):
                seen.whole()
