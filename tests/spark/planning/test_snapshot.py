"""Prepared target topics and plans, on clusters in a folder."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.alignment.owned_topics import OwnedTopics
from mirror.causes import (
    CONNECTIONS,
    OFFSET_METADATA,
    OFFSETS_REPLICAS,
    TRANSACTION_REPLICAS,
    TRANSACTION_TIME,
    Cause,
)
from mirror.client import EARLIEST, LATEST, Admin, OffsetResult, TopicPartition
from mirror.cluster.types import Outcomes
from mirror.errors import AuthorizationFailed, FlowError, KafkaTimeout
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.relay.progress.flow_topic import topic_of
from mirror.relay.progress.target_log import TargetMark
from mirror.spark.ledger.partition_health import PartitionHealth
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.snapshot import FAR_BEHIND_BYTES, PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_own_topics, prepare_topics
from tests.spark.fakes import NOW_MS, Cluster, copy_ranges
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror import client
    from mirror.config.models import FlowConfig
    from mirror.observation import Sides


class PlannerHarness:
    """A source ``a`` and a target ``b``."""

    def __init__(self) -> None:
        self.a = Cluster("a:1").make()
        self.b = Cluster("b:1").make()
        self.source = Admin({"bootstrap.servers": "a:1"})
        self.target = Admin({"bootstrap.servers": "b:1"})
        self.now_ms = NOW_MS
        self.owned = OwnedTopics("f")
        """What the preparations of flow f know to be its own."""

    def own(self, *topics: str) -> None:
        """The flow has these topics of ``b``, which exist."""
        self.owned.add(self.target.describe_topics(topics))

    def begin(self, topic: str, partition: int = 0) -> None:
        """Flow f has progress in a partition of a topic of ``b``, which exists, and has copied nothing yet."""
        tp = TopicPartition(topic, partition)
        (found,) = self.target.describe_topics([topic]).values()
        begun = Progress(
            offset=0,
            leader_epoch=None,
            source_cluster_id="id-a:1",
            topic_id="",
            time_ms=NOW_MS,
            target=TargetMark(topic_id=str(found.topic_id), end=0),
        )
        self.target.commit_group_offsets(group_of("f", tp), {tp: to_offset(begun)})

    def sides(self) -> Sides:
        """A new observation."""
        return sides_of(self.source, self.target)

    def prepare(self, one: FlowConfig) -> list[str]:
        return prepare_topics(one, self.sides(), owned=self.owned).warnings

    def plan(self, one: FlowConfig, tasks: int = 2) -> Plan:
        return make_plan(
            PlanRequest(flow=one, now_ms=self.now_ms, parallelism=tasks), sides_of(self.source, self.target)
        )


@pytest.fixture
def pair() -> PlannerHarness:
    return PlannerHarness()


def test_a_missing_topic_is_created_like_the_source_s(pair: PlannerHarness) -> None:
    configs = {"retention.ms": "100", "leader.replication.throttled.replicas": "0:1"}
    pair.a.add_topic("orders", [1, 2, 3], configs=configs)
    assert pair.prepare(flow(replication_factor=2)) == []
    made = pair.b.state()["topics"]["a.orders"]
    assert made["configs"] == {"retention.ms": "100"}
    assert [each["replicas"] for each in made["partitions"]] == [2, 2, 2]


def test_a_target_gets_missing_partitions_and_keeps_additional_ones(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [0] * 3).add_topic("clicks", [0])
    pair.b.add_topic("a.orders", [0]).add_topic("a.clicks", [0] * 5)
    pair.own("a.orders")
    pair.prepare(flow(topics=["orders", "clicks"]))
    topics = pair.b.state()["topics"]
    assert [len(topics[name]["partitions"]) for name in ("a.orders", "a.clicks")] == [3, 5]


@pytest.mark.parametrize("naming", ["prefix", "identity"])
def test_heartbeats_have_a_topic_on_the_source_that_is_copied(pair: PlannerHarness, naming: str) -> None:
    pair.a.add_topic("orders", [0])
    one = flow(naming=naming, replication_factor=2, mirrormaker={"heartbeats": True})
    assert pair.prepare(one) == []
    made = pair.a.state()["topics"]["heartbeats"]
    assert made["configs"] == {"cleanup.policy": "compact", "segment.bytes": "16777216"}
    assert [each["replicas"] for each in made["partitions"]] == [3], "replication-factor is for the target"
    copied = pair.b.state()["topics"]["a.heartbeats"]
    assert (copied["configs"]["cleanup.policy"], copied["partitions"][0]["replicas"]) == ("compact", 2)
    assert "a.heartbeats" in {result.target_topic for result in pair.plan(one).results_without_task}


def test_checkpoints_have_a_topic_on_the_target(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [0])
    one = flow(replication_factor=2, mirrormaker={"checkpoints": True}, groups={"sync": False})
    assert pair.prepare(one) == []
    made = pair.b.state()["topics"]["a.checkpoints.internal"]
    assert (made["configs"]["cleanup.policy"], [each["replicas"] for each in made["partitions"]]) == ("compact", [2])
    assert "mirror-groups.f.internal" not in pair.b.state()["topics"]


def test_heartbeats_alone_are_no_topic_of_a_flow(pair: PlannerHarness) -> None:
    with pytest.raises(FlowError, match="none of the 1 topics of cluster a matches"):
        pair.prepare(flow(mirrormaker={"heartbeats": True}))


def test_preparing_again_changes_nothing(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1, 2])
    pair.prepare(flow())
    before = pair.b.state()
    pair.prepare(flow())
    assert pair.b.state() == before


def test_a_topic_that_appears_meanwhile_is_used(pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.a.add_topic("orders", [1]).add_topic("clicks", [1])
    plain = Admin.create_topics

    def late(self: Admin, topics: list[client.NewTopic], **options: Any) -> object:
        monkeypatch.setattr(Admin, "create_topics", plain)
        pair.b.add_topic("a.clicks", [0])
        return plain(self, topics, **options)

    monkeypatch.setattr(Admin, "create_topics", late)
    pair.prepare(flow(topics=["orders", "clicks"]))
    assert set(pair.b.state()["topics"]) == {
        "a.orders",
        "a.clicks",
        "mirror-progress.f.internal",
        "mirror-offsets.f.internal",
        "mirror-progress.f.status.internal",
    }


def test_one_replica_and_too_few_for_min_insync_are_warnings(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1], configs={"min.insync.replicas": "2"})
    one_replica, too_few = pair.prepare(flow(replication_factor=1, configs_exclude=[]))
    assert "a.orders: one replica" in one_replica
    assert "KIP-185" in one_replica
    assert "min.insync.replicas = 2, with 1 replicas" in too_few


def test_a_target_topic_with_more_partitions_than_its_source_is_a_warning(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic("a.orders", [0, 0])
    (line,) = pair.prepare(flow())
    assert line.startswith("target topic a.orders: more partitions than the source topic (2, and not 1)")


LOST = {
    "mirror-progress.f.internal": "progress that the target forgets is not restored",
    "mirror-offsets.f.internal": "offsets are not translated",
    "mirror-progress.f.status.internal": "other hosts do not see its state",
}


@pytest.mark.parametrize("name", LOST)
def test_the_flow_s_own_topics_are_created_once(pair: PlannerHarness, name: str) -> None:
    pair.a.add_topic("orders", [1])
    assert pair.prepare(flow(replication_factor=2)) == []
    made = pair.b.state()["topics"][name]
    assert (len(made["partitions"]), made["partitions"][0]["replicas"]) == (1, 2)
    assert made["configs"]["cleanup.policy"] == "compact"
    assert pair.prepare(flow(replication_factor=3)) == []
    assert pair.b.state()["topics"][name] == made


@pytest.mark.parametrize("name", LOST)
def test_a_topic_of_the_flow_that_deletes_records_is_a_warning(pair: PlannerHarness, name: str) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic(name, [0])
    (line,) = pair.prepare(flow())
    assert f"topic {name} has cleanup.policy = delete" in line
    assert "set cleanup.policy = compact" in line


@pytest.mark.parametrize("name", LOST)
def test_a_topic_of_the_flow_that_cannot_be_created_stops_nothing(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pair.a.add_topic("orders", [1])
    plain = Admin.create_topics

    def refuse(self: Admin, topics: Iterable[client.NewTopic], **options: Any) -> object:
        if (wanted := list(topics))[0].name == name:
            raise AuthorizationFailed("the permission Create on the topic is missing", 29)
        return plain(self, wanted, **options)

    monkeypatch.setattr(Admin, "create_topics", refuse)
    (line,) = pair.prepare(flow())
    assert f"topic {name} cannot be prepared, so {LOST[name]}" in line
    assert "the permission Create" in line
    assert "a.orders" in pair.b.state()["topics"]


def test_harmful_pairs_of_topic_configurations_are_warnings(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1], configs={"retention.ms": "-1"})
    pair.b.add_topic("a.orders", [0], configs={"max.message.bytes": "1000"})
    retention, size = pair.prepare(flow())
    assert retention.startswith("target topic a.orders: retention.ms = 604800000 (7 days), where the source has no")
    assert "max.message.bytes = 1000, where the source has 1048588" in size


def test_own_topics_are_created_without_the_configurations_that_a_policy_refuses(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"refused_configs": json.dumps({"segment.bytes": "too small"})})
    lines = pair.prepare(flow())
    own = {name: topic["configs"] for name, topic in pair.b.state()["topics"].items() if name.startswith("mirror-")}
    violation = "POLICY_VIOLATION (error 44): too small"
    assert own
    assert all(configs == {"cleanup.policy": "compact"} for configs in own.values())
    assert sorted(lines) == sorted(
        f"topic {name} is created without segment.bytes = 16777216: creating topic {name!r}: {violation}"
        for name in own
    )


def test_an_own_topic_that_is_created_uncompacted_is_a_warning_at_once(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"refused_configs": json.dumps({"cleanup.policy": "no"})})
    first, again = ({line for line in pair.prepare(flow()) if "has cleanup.policy = delete" in line} for _ in range(2))
    assert len(first) == 3
    assert first == again


def test_an_own_topic_whose_cluster_does_not_answer_is_an_error_and_no_warning(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a stream beside a cluster that is away would warn for each of its topics, each time after 60 s."""
    pair.a.add_topic("orders", [1])
    asked: list[str] = []

    def away(self: Admin, names: Iterable[str], **options: object) -> object:
        del self, options
        asked.extend(names)
        raise KafkaTimeout("describing topics did not succeed within 60000 ms: broker 1 at b:9092: connection refused")

    monkeypatch.setattr(Admin, "describe_topics", away)
    with pytest.raises(KafkaTimeout):
        prepare_own_topics(flow(), pair.sides())
    assert len(asked) == len(set(asked))


def test_own_topics_that_a_policy_refuses_altogether_are_warnings(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"refused": json.dumps({topic_of("f"): "no owner"})})
    (line,) = pair.prepare(flow())
    assert line.startswith(f"topic {topic_of('f')} cannot be prepared, so progress that the target forgets")
    assert "no owner" in line


@pytest.mark.parametrize(
    ("setting", "harmful", "harmless", "beside"),
    [
        (TRANSACTION_REPLICAS, "4", "3", ", and 3 brokers run"),
        (OFFSETS_REPLICAS, "4", "3", ", and 3 brokers run"),
        (OFFSET_METADATA, "100", "4096", ""),
        (CONNECTIONS, "10", "2147483647", ""),
        (TRANSACTION_TIME, "60000", "900000", ""),
    ],
)
def test_settings_of_brokers_that_a_flow_cannot_work_with_are_warnings(
    pair: PlannerHarness, setting: Cause, harmful: str, harmless: str, beside: str
) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"broker_settings": json.dumps({setting.key: harmless})})
    assert pair.prepare(flow()) == []
    pair.b.set_moods({"broker_settings": json.dumps({setting.key: harmful})})
    assert pair.prepare(flow()) == [f"the target's {setting.key} is {harmful}{beside}: {setting.words}"]


def test_an_internal_topic_that_is_there_needs_no_more_replicas(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic("__transaction_state", [1])
    pair.b.set_moods({"broker_settings": json.dumps({TRANSACTION_REPLICAS.key: "4"})})
    assert pair.prepare(flow()) == []


def test_an_unreadable_retention_is_a_warning_and_taken_for_a_week(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"broker_configs": "the permission DescribeConfigs on the cluster is missing"})
    (line,) = pair.prepare(flow())
    assert "offsets.retention.minutes cannot be read and is taken for 7 days" in line
    assert "DescribeConfigs" in line
    assert len(pair.plan(flow()).ranges) == 1


@pytest.mark.parametrize(
    ("expiration_ms", "delivery", "warned"),
    [
        (7_199_999, {}, True),
        (7_200_000, {}, False),
        (7_199_999, {"exactly_once_by": "transactions"}, False),
        (7_199_999, {"delivery": "at-least-once"}, False),
    ],
)
def test_short_lived_transactional_ids_are_a_warning_where_fences_need_them(
    pair: PlannerHarness, expiration_ms: int, delivery: dict[str, str], *, warned: bool
) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.set_moods({"id_expiration_ms": str(expiration_ms)})
    lines = pair.prepare(flow(**delivery))
    assert [line.startswith("the target's transactional.id.expiration.ms is 7199999: ") for line in lines] == (
        [True] if warned else []
    )


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
