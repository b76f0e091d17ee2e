"""Plans, on clusters in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.client import EARLIEST, LATEST, Admin, OffsetResult, TopicPartition
from mirror.cluster.types import Outcomes
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.spark.ledger.partition_health import PartitionHealth
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.snapshot import FAR_BEHIND_BYTES, PlanRequest, make_plan
from tests.spark.fakes import NOW_MS, Cluster, copy_ranges
from tests.spark.observed import sides_of
from tests.spark.planning.planner_harness import PlannerHarness
from tests.spark.planning.test_range_planner import flow

if TYPE_CHECKING:
    from mirror import client


@pytest.mark.parametrize(("hours", "renewed"), [(23, False), (25, True)])
def test_progress_is_committed_again_after_a_seventh_of_its_retention(
    pair: PlannerHarness, hours: int, renewed: bool
) -> None:
    pair.a.add_topic("orders", [10])
    pair.prepare(flow())
    copy_ranges(
        pair.plan(flow()).ranges,
        source_options={},
        target_options={"bootstrap.servers": "b:1"},
        policy=CopyPolicy(),
    )
    pair.now_ms += hours * 3_600_000
    plan = pair.plan(flow())
    assert [(each.start, each.end) for each in plan.ranges] == [(10, 10)] * renewed
    assert len(plan.results_without_task) == (not renewed)


def test_a_plan_resumes_where_the_last_run_ended(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 0, 30], earliest=0)
    pair.prepare(flow())
    plan = pair.plan(flow())
    assert [[(each.partition, each.start, each.end) for each in task] for task in plan.tasks] == [
        [(2, 0, 30)],
        [(0, 0, 10)],
    ]
    assert [(each.partition, each.outcome) for each in plan.results_without_task] == [(1, Outcome.COMPLETE)]
    copy_ranges(plan.ranges, source_options={}, target_options={"bootstrap.servers": "b:1"}, policy=CopyPolicy())
    with pair.a.change() as state:
        state["topics"]["orders"]["partitions"][0]["end"] = 12
    assert [(each.partition, each.start, each.end) for each in pair.plan(flow()).ranges] == [(0, 10, 12)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", {0: (4, 10), 1: (4, 8)}),
        ("latest", {0: (10, 10), 1: (8, 8)}),
        # Record n has the time stamp n; 9 ms is after the last record of partition 1.
        ("1970-01-01T00:00:00.009+00:00", {0: (9, 10), 1: (8, 8)}),
    ],
)
def test_where_a_flow_without_progress_begins(
    pair: PlannerHarness, start: str, expected: dict[int, tuple[int, int]]
) -> None:
    pair.a.add_topic("orders", [10, 8], earliest=4)
    pair.prepare(flow())
    assert {each.partition: (each.start, each.end) for each in pair.plan(flow(start=start)).ranges} == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"from_": 6}, {0: (6, 10), 1: (6, 8)}),
        # An offset that the log does not have any more: its beginning.
        ({"from_": 1}, {0: (4, 10), 1: (4, 8)}),
        # Partition 1 has not come to it yet, and has no place to keep.
        ({"from_": 9}, {0: (9, 10)}),
        ({"from_": "1970-01-01T00:00:00.006+00:00"}, {0: (6, 10), 1: (6, 8)}),
        ({"until": 6}, {0: (4, 6), 1: (4, 6)}),
        ({"until": "1970-01-01T00:00:00.009+00:00"}, {0: (4, 9), 1: (4, 8)}),
        ({"from_": 5, "until": 9}, {0: (5, 9), 1: (5, 8)}),
        ({"until": 3}, {}),
    ],
)
def test_point_in_time_copies(
    pair: PlannerHarness, keys: dict[str, object], expected: dict[int, tuple[int, int]]
) -> None:
    pair.a.add_topic("orders", [10, 8], earliest=4)
    pair.prepare(flow())
    plan = pair.plan(flow("f", "a", "b", **keys))
    assert {each.partition: (each.start, each.end) for each in plan.ranges} == expected
    assert {each.outcome for each in plan.results_without_task} <= {Outcome.COMPLETE}


def test_backlogs_are_packed_by_bytes(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [50]).add_topic("clicks", [9, 9, 9], configs={"record_bytes": "1"})
    one = flow(topics=["orders", "clicks"])
    pair.prepare(one)
    assert [[each.topic for each in task] for task in pair.plan(one).tasks] == [["orders"], ["clicks"] * 3]
    pair.a.add_topic("orders", [5], configs={"record_bytes": "9999"})
    assert [[each.topic for each in task] for task in pair.plan(one).tasks] == [["orders"], ["clicks"] * 3]


@pytest.mark.parametrize("follow", [False, True])
def test_a_record_more_or_less_sends_no_followed_partition_to_another_task(pair: PlannerHarness, follow: bool) -> None:
    pair.a.add_topic("orders", [5, 0, 3, 0])
    pair.prepare(flow())
    request = PlanRequest(flow=flow(), now_ms=NOW_MS, parallelism=2, follow=follow)
    plan = make_plan(request, pair.sides())
    tasks = [sorted(range_.partition for range_ in task) for task in plan.tasks]
    assert (tasks == [[0, 2], [1, 3]]) is follow


def test_backlogs_without_sizes_are_packed_by_records(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [9]).add_topic("clicks", [8, 8], configs={"record_bytes": "1"})
    pair.a.set_moods({"log_dirs": "the permission Describe on the cluster is missing"})
    one = flow(topics=["orders", "clicks"])
    pair.prepare(one)
    assert [[each.topic for each in task] for task in pair.plan(one).tasks] == [["orders"], ["clicks", "clicks"]]


def test_sizes_are_read_only_if_there_is_something_to_copy(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.a.add_topic("orders", [0])
    pair.prepare(flow())
    monkeypatch.setattr(Admin, "describe_log_dirs", lambda *_, **__: pytest.fail("read"))
    assert pair.plan(flow()).ranges == []


def test_far_behind_and_unhealthy_partitions_have_a_lane_of_their_own(pair: PlannerHarness) -> None:
    size = FAR_BEHIND_BYTES // 10 + 1
    pair.a.add_topic("orders", [10, 9, 3, 3], configs={"record_bytes": str(size)})
    pair.prepare(flow())

    def tasks(*, follow: bool, **stuck: int) -> list[set[int]]:
        sick = {
            TopicPartition("orders", int(name[1:])): PartitionHealth(stuck_since_ms=ms) for name, ms in stuck.items()
        }
        request = PlanRequest(flow=flow(), now_ms=NOW_MS, parallelism=2, unhealthy=sick, follow=follow)
        plan = make_plan(request, pair.sides())
        assert {each.partition for each in plan.ranges if each.stuck_since_ms} == {int(name[1:]) for name in stuck}
        return [{each.partition for each in task} for task in plan.tasks]

    assert tasks(follow=True) == [{1, 2, 3}, {0}]
    assert tasks(follow=True, p2=5) == [{1, 3}, {0, 2}]
    assert tasks(follow=False, p2=5) == [{0, 3}, {1, 2}]


def test_limits_leave_some_partitions_to_the_next_run(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 20, 0, 30])
    one = flow(max_partitions_in_parallel=2)
    pair.prepare(one)
    plan = pair.plan(one)
    assert sorted(each.partition for each in plan.ranges) == [1, 3]
    assert [(each.partition, each.outcome) for each in plan.results_without_task] == [
        (2, Outcome.COMPLETE),
        (0, Outcome.UNFINISHED),
    ]
    # Partition 3 had its turn, by what the ledger tells or by its progress; 1 is the larger of the others.
    turns = {TopicPartition("orders", number): NOW_MS for number in (1, 3)}
    again = make_plan(
        PlanRequest(flow=one, now_ms=NOW_MS, parallelism=2, turns=turns),
        pair.sides(),
    )
    assert 0 in {each.partition for each in again.ranges}
    copy_ranges(plan.ranges, source_options={}, target_options={"bootstrap.servers": "b:1"}, policy=CopyPolicy())
    assert [each.partition for each in pair.plan(one).ranges] == [0]


def test_a_truncated_range_records_where_it_would_have_ended(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1000, 2000])
    one = flow(max_bytes_per_run=140_000)
    pair.prepare(one)
    plan = pair.plan(one)
    assert {each.partition: each.end for each in plan.ranges} == {0: 700, 1: 700}
    assert plan.truncated_at == {"orders-0": 1000, "orders-1": 2000}
    assert Plan.from_json(plan.to_json()) == plan


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.a.add_topic("orders", [10, 20])
    pair.prepare(flow())
    with pair.a.change() as state:
        state["topics"]["orders"]["partitions"][0]["leader"] = -1
    asked: list[TopicPartition] = []
    plain = Admin.list_offsets

    def note(self: Admin, times: dict[TopicPartition, int], **more: Any) -> dict[TopicPartition, client.OffsetResult]:
        asked.extend(times)
        return plain(self, times, **more)

    monkeypatch.setattr(Admin, "list_offsets", note)
    plan = pair.plan(flow())
    assert [each.partition for each in plan.ranges] == [1]
    assert [(each.partition, each.outcome) for each in plan.results_without_task] == [(0, Outcome.FAILED)]
    assert TopicPartition("orders", 0) not in asked


def test_a_plan_survives_the_ledger(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 0])
    pair.prepare(flow())
    plan = pair.plan(flow())
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(("earliest", "epoch"), [(2, 3), (-1, None)])
def test_a_range_has_the_leader_epoch_of_its_end_if_the_log_has_epochs(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch, earliest: int, epoch: int | None
) -> None:
    plain = Admin.list_offsets

    def epochs(self: Admin, times: dict[TopicPartition, int], **more: Any) -> Outcomes[TopicPartition, OffsetResult]:
        of = {EARLIEST: earliest, LATEST: 3}
        found = plain(self, times, **more)
        return Outcomes({tp: replace(each, leader_epoch=of[times[tp]]) for tp, each in found.items()}, found.failed)

    pair.a.add_topic("orders", [10])
    pair.prepare(flow())
    monkeypatch.setattr(Admin, "list_offsets", epochs)
    assert [each.source_epoch for each in pair.plan(flow()).ranges] == [epoch]


class BusySource(Admin):
    """A source whose every answer is old when it comes: more was written, copied and deleted meanwhile."""

    def list_offsets(self, *asked: Any, **more: Any) -> Outcomes[TopicPartition, OffsetResult]:
        found = super().list_offsets(*asked, **more)
        with Cluster("a:1").change() as state:
            (partition,) = state["topics"]["orders"]["partitions"]
            partition["end"] += 10
            partition["earliest"] = partition["end"] - 5
        _copied(partition["end"])
        return found


def _copied(offset: int) -> None:
    tp = TopicPartition("a.orders", 0)
    progress = Progress(offset=offset, leader_epoch=None, source_cluster_id="id-a:1", topic_id="", time_ms=NOW_MS)
    Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group_of("f", tp), {tp: to_offset(progress)})


@pytest.mark.parametrize("follow", [False, True])
def test_a_stream_that_keeps_pace_has_no_gap_while_the_next_epoch_is_planned(
    pair: PlannerHarness, follow: bool
) -> None:
    """Its progress lay beyond the source's end as it had just been reported: "the source's log was cut back"."""
    pair.a.add_topic("orders", [20])
    pair.b.add_topic("a.orders", [20])
    _copied(20)
    busy = cast("client.Admin", BusySource({"bootstrap.servers": "a:1"}))
    plan = make_plan(
        PlanRequest(flow=flow(), now_ms=pair.now_ms, parallelism=2, follow=follow), sides_of(busy, pair.target)
    )
    assert [(one.outcome, one.error) for one in plan.results_without_task if one.outcome is not Outcome.COMPLETE] == []
