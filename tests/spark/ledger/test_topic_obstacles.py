"""Obstacles: a topic that cannot be copied fails alone, by its name or a broker's refusal, until the cause is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirror.client import Admin, NewTopic, Outcomes
from mirror.errors import BrokerError
from mirror.observation import Side, Sides
from mirror.relay.model.ranges import Outcome
from mirror.spark.discovery.topic_watch import compare, unprepared
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.topic_obstacles import NOT_PREPARED, Obstacle, TargetTopics, colliding, unnameable
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import Prepared, prepare_new_topics, prepare_topics
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.spark.observed import sides_of
from tests.spark.planning.planner_harness import PlannerHarness
from tests.spark.planning.test_range_planner import flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror import client
    from mirror.config.models import FlowConfig

LONG = "x" * 249
ALL = flow(topics=[".*"])


@pytest.fixture
def pair() -> PlannerHarness:
    return PlannerHarness()


def prepared(pair: PlannerHarness, before: TargetTopics | None = None, one: FlowConfig = ALL) -> TargetTopics:
    if before is None:
        return prepare_topics(one, pair.sides(), owned=pair.owned).targets
    return again(pair, one, before).targets


def again(pair: PlannerHarness, one: FlowConfig, before: TargetTopics) -> Prepared:
    """Prepare what a comparison with the preparation ``before`` finds, as a stream does."""
    lacking, gone = compare(one, pair.sides(), before)
    found = prepare_new_topics(one, pair.sides(), before, lacking, owned=pair.owned)
    return replace(found, targets=found.targets.without(gone))


def planned(pair: PlannerHarness, targets: TargetTopics | None, one: FlowConfig = ALL) -> Plan:
    return make_plan(PlanRequest(flow=one, now_ms=pair.now_ms, parallelism=2, targets=targets), pair.sides())


def failed(plan: Plan) -> dict[tuple[str, int], str | None]:
    return {(one.topic, one.partition): one.error for one in plan.results_without_task if one.outcome is Outcome.FAILED}


def copied(plan: Plan) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in plan.ranges}


# --- by names alone


def test_a_target_name_that_is_too_long_is_an_obstacle_with_advice() -> None:
    assert unnameable(ALL, ["x" * 247, "orders"]) == {}
    (one,) = unnameable(ALL, ["x" * 248, "orders"]).values()
    assert one.reason == (
        "its target topic's name would have 250 characters, and the longest that brokers take has 249; leave it out by"
        ' topics-exclude, or use naming = "identity", or a shorter name for cluster a'
    )
    assert unnameable(flow(topics=[".*"], naming="identity"), [LONG]) == {}


def test_of_two_topics_with_one_name_the_one_that_is_not_renamed_fails() -> None:
    made = flow(topics=[".*"], naming="identity", names={"orders": "sales"})
    (topic, one), *more = unnameable(made, ["orders", "sales", "clicks"]).items()
    assert (topic, more) == ("sales", [])
    assert one.reason.startswith("its copy would be sales, which is kept for the copy of orders: ")


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    assert colliding(ALL, ["b.c", "b-c"], ["a.b-c_", "b_c"]) == {}
    (one,) = colliding(ALL, ["b.c", "orders"], ["a_b.c"]).values()
    assert one.reason.startswith("its target topic a.b.c collides on cluster b with topic a_b.c, which exists: ")
    assert "topics-exclude" in one.reason


def test_of_two_new_topics_that_collide_the_second_fails_and_an_existing_one_never() -> None:
    assert colliding(ALL, ["b_c", "b.c"], ["a.orders"]).keys() == {"b_c"}
    assert "a.b.c, which source topic b.c is copied to" in colliding(ALL, ["b_c", "b.c"], [])["b_c"].reason
    assert colliding(ALL, ["b_c", "b.c"], ["a.b_c"]).keys() == {"b.c"}
    assert colliding(ALL, ["b_c", "b.c"], ["a.b_c", "a.b.c"]) == {}, "brokers that took both take records for both"


# --- through preparation and plan


def test_within_one_cluster_each_topic_is_copied_once_and_no_copy_is_copied_again(pair: PlannerHarness) -> None:
    """A topic whose copy the flow would select is refused by name; the copies that there are stay as they are."""
    pair.a.add_topic("orders", [5, 5]).add_topic("clicks", [5])
    sides = Sides(Side("a", pair.source), Side("a", pair.source))
    made = flow(target="a", topics=[".*"], topics_exclude=[r"(copy\.|mirror-).*"], names={"(.*)": "copy.$1"})
    for _ in range(2):
        targets = prepare_topics(made, sides.again(), owned=pair.owned).targets
        assert {name for name in sides.again().source.topics if not name.startswith("mirror-")} == {
            *("orders", "copy.orders", "clicks", "copy.clicks")
        }
        request = PlanRequest(flow=made, now_ms=pair.now_ms, parallelism=2, targets=targets)
        plan = make_plan(request, sides.again())
        assert copied(plan) == {("orders", 0), ("orders", 1), ("clicks", 0)}
        assert failed(plan) == {}
    selecting = made.model_copy(update={"topics_exclude": ("copy.clicks", "mirror-.*")})
    targets = prepare_topics(selecting, sides.again(), owned=pair.owned).targets
    assert targets.obstacles.keys() == {"orders", "copy.orders"}
    assert targets.obstacles["orders"].reason.startswith(
        "its copy copy.orders is selected by topics, too, and would be"
    )


def test_renamed_topics_are_created_and_copied_beside_one_whose_name_is_taken(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [5, 5]).add_topic("sales", [5]).add_topic("clicks-1", [5])
    pair.b.add_topic("clicks-1", [0])
    made = flow(topics=[".*"], names={"orders": "a.sales", "clicks-(.*)": "web.$1"})
    targets = prepared(pair, one=made)
    plan = planned(pair, targets, made)
    assert {(one.topic, one.target_topic) for one in plan.ranges} == {("orders", "a.sales"), ("clicks-1", "web.1")}
    assert {"a.sales", "web.1"} <= pair.sides().target.topics.keys()
    assert failed(plan).keys() == {("sales", 0)}
    assert targets.obstacles.keys() == {"sales"}
    assert unprepared(made, pair.sides().source.topics, targets.without(["sales"])).keys() == {"sales"}, "if it is new"


def test_each_topic_with_an_obstacle_fails_and_the_others_are_planned(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [5, 5]).add_topic("clicks", [5]).add_topic(LONG, [5, 5]).add_topic("x.c", [5])
    pair.a.add_topic("hidden", [5]).add_topic("refused", [5]).set_moods({"hidden_configs": '["hidden"]'})
    pair.b.add_topic("a.x_c", [0]).set_moods({"refused": json.dumps({"a.refused": "at most 0 partitions"})})
    plan = planned(pair, prepared(pair))
    assert copied(plan) == {("orders", 0), ("orders", 1), ("clicks", 0)}
    errors_of = failed(plan)
    assert errors_of.keys() == {(LONG, 0), (LONG, 1), ("x.c", 0), ("hidden", 0), ("refused", 0)}
    for key, words in {
        (LONG, 1): "would have 251 characters",
        ("x.c", 0): "collides on cluster b with topic a.x_c",
        ("hidden", 0): "cluster a does not show: describing the configuration",
        (
            "refused",
            0,
        ): "target topic a.refused cannot be created: creating topic 'a.refused': POLICY_VIOLATION (error 44): "
        "at most 0 partitions; correct the cause, or create the topic yourself with 1 partitions",
    }.items():
        assert words in str(errors_of[key])
    assert {name for name in pair.b.state()["topics"] if name.startswith("a.")} == {"a.orders", "a.clicks", "a.x_c"}


def test_partitions_that_cannot_be_added_fail_and_existing_ones_are_copied(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [5, 5, 5]).add_topic("clicks", [5, 5])
    pair.b.add_topic("a.orders", [0]).add_topic("a.clicks", [0])
    pair.own("a.orders", "a.clicks")
    pair.b.set_moods({"refused": json.dumps({"a.orders": "no more"})})
    plan = planned(pair, prepared(pair))
    assert copied(plan) == {("orders", 0), ("clicks", 0), ("clicks", 1)}
    assert failed(plan).keys() == {("orders", 1), ("orders", 2)}
    assert "has 1 partitions and cannot be extended to 3: adding partitions to 'a.orders': POLICY_VIOLATION" in str(
        failed(plan)["orders", 2]
    )


def test_partitions_that_another_run_added_meanwhile_are_copied(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.a.add_topic("orders", [5, 5])
    pair.b.add_topic("a.orders", [0])
    pair.own("a.orders")

    def late(_self: Admin, totals: Mapping[str, int], **_options: bool) -> Outcomes[str, None]:
        pair.b.add_topic("a.orders", [0, 0])
        pair.own("a.orders")  # under a new id, by these clusters
        return Outcomes({}, {name: BrokerError("it has 2 partitions already", 37) for name in totals})

    monkeypatch.setattr(Admin, "create_partitions", late)
    targets = prepared(pair)
    assert (targets.copyable, targets.obstacles) == ({"orders": 2}, {})


def test_an_obstacle_disappears_with_its_cause(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [5]).add_topic("clicks", [5]).add_topic(LONG, [5])
    pair.b.set_moods({"refused": json.dumps({"a.orders": "not now"})})
    first = prepared(pair)
    assert first.obstacles.keys() == {"orders", LONG}
    with pair.a.change() as state:
        del state["topics"][LONG]
    second = prepared(pair, first)
    assert second.obstacles.keys() == {"orders"}
    assert second.version == first.version, "nothing more can be copied"
    pair.b.set_moods({})
    third = prepared(pair, second)
    assert (third.obstacles, third.version) == ({}, first.version + 1)
    plan = planned(pair, third)
    assert (copied(plan), plan.results_without_task) == ({("orders", 0), ("clicks", 0)}, [])


def test_a_partition_that_appeared_after_the_preparation_is_unfinished_and_not_expired(pair: PlannerHarness) -> None:
    """A range for it would wait for its target topic until delivery.timeout.ms is over."""
    pair.a.add_topic("orders", [5])
    before = prepared(pair)
    pair.a.add_topic("orders", [5, 5]).add_topic("clicks", [5])
    plan = planned(pair, before)
    assert copied(plan) == {("orders", 0)}
    assert {(one.topic, one.partition, one.outcome, one.error) for one in plan.results_without_task} == {
        ("orders", 1, Outcome.UNFINISHED, NOT_PREPARED),
        ("clicks", 0, Outcome.UNFINISHED, NOT_PREPARED),
    }
    after = prepared(pair, before)
    assert after.version == before.version + 1
    assert copied(planned(pair, after)) == {("orders", 0), ("orders", 1), ("clicks", 0)}


def test_a_plan_without_a_preparation_fails_topics_with_invalid_names(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [5]).add_topic(LONG, [5])
    plan = planned(pair, None)
    assert copied(plan) == {("orders", 0)}
    assert failed(plan).keys() == {(LONG, 0)}


def test_a_later_preparation_changes_new_topics_only(pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.a.add_topic("orders", [5], configs={"min.insync.replicas": "9"}).add_topic("clicks", [5])
    everything = flow(topics=[".*"], configs_exclude=[])
    first = prepare_topics(everything, pair.sides())
    assert len(first.warnings) == 1
    asked = list[str]()
    plain = Admin.describe_configs

    def counted(self: Admin, resources: Iterable[client.ConfigResource], **options: Any) -> object:
        wanted = list(resources)
        asked.extend(one.name for one in wanted if not one.name.startswith("mirror-"))
        return plain(self, wanted, **options)

    monkeypatch.setattr(Admin, "describe_configs", counted)
    assert again(pair, everything, first.targets).warnings == []
    assert asked == []
    pair.a.add_topic("new", [5], configs={"min.insync.replicas": "9"})
    (line,) = again(pair, everything, first.targets).warnings
    assert "a.new: min.insync.replicas = 9" in line
    assert set(asked) == {"a.new", "new"}


def test_a_target_topic_that_was_deleted_is_created_again(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [5]).add_topic("clicks", [5])
    first = prepared(pair)
    with pair.b.change() as state:
        del state["topics"]["a.clicks"]
    assert prepared(pair, first) == first
    assert "a.clicks" in pair.b.state()["topics"]


def test_a_creation_that_timed_out_does_not_fail_other_topics(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller says yes, and the brokers never hear of it."""
    pair.a.add_topic("orders", [5]).add_topic("clicks", [5])
    monkeypatch.setattr("mirror.spark.preflight.topic_preparation.PROPAGATION_TIMEOUT_S", -1)
    plain = Admin.describe_topics

    def blind(self: Admin, names: Iterable[str], **options: bool) -> object:
        return plain(self, [name for name in names if name != "a.orders"], **options)

    monkeypatch.setattr(Admin, "describe_topics", blind)
    targets = prepared(pair, one=flow(topics=["orders", "clicks"]))
    assert targets.copyable == {"orders": 0, "clicks": 1}
    assert "target topic a.orders has 0 partitions -1 s after 1 were created" in targets.obstacles["orders"].reason


def test_topics_that_brokers_show_one_after_the_other_are_waited_for(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each within 15 s; all of them take two minutes."""
    names = [f"orders-{number:02}" for number in range(12)]
    for name in names:
        pair.a.add_topic(name, [5])
    clock = FakeTime(monkeypatch)
    plain = Admin.describe_topics

    def slow(self: Admin, asked: Iterable[str], **options: bool) -> object:
        hidden = {f"a.{name}" for name in names[int(clock.now_s // 10) :]}
        clock.now_s += 10
        return plain(self, [name for name in asked if name not in hidden], **options)

    monkeypatch.setattr(Admin, "describe_topics", slow)
    targets = prepared(pair, one=flow(topics=["orders.*"]))
    assert targets.obstacles == {}
    assert targets.copyable == dict.fromkeys(names, 1)


@pytest.mark.parametrize(("partitions", "waits"), [(1, 15), (500, 20)])
def test_brokers_have_more_time_for_more_partitions(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch, partitions: int, waits: int
) -> None:
    pair.a.add_topic("orders", [5] * partitions)
    clock = FakeTime(monkeypatch)
    plain = Admin.describe_topics

    def blind(self: Admin, asked: Iterable[str], **options: bool) -> object:
        return plain(self, [name for name in asked if name != "a.orders"], **options)

    monkeypatch.setattr(Admin, "describe_topics", blind)
    targets = prepared(pair, one=flow(topics=["orders"]))
    assert f"has 0 partitions {waits} s after {partitions} were created" in targets.obstacles["orders"].reason
    assert waits <= clock.now_s < waits + 1


class FakeTime:
    """The time of the preparation: it passes while that sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr("mirror.spark.preflight.topic_preparation.time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_topics_without_permission_fail_alone_with_the_real_client_core() -> None:
    a, b = FakeCluster(cluster_id="a"), FakeCluster(cluster_id="b")
    for name in ("orders", "clicks", "x.c", LONG):
        a.add_topic(name)
    for name in ("a.x_c", "a.orders"):
        b.add_topic(name)
    hidden = Action(errors={"a.orders": errors.TOPIC_AUTHORIZATION_FAILED})
    b.control.add(lambda call: hidden if call.api is Api.METADATA else None)
    targets = prepare_topics(ALL, sides_of(FakeAdmin(a), FakeAdmin(b))).targets
    assert targets.obstacles.keys() == {"x.c", "orders", LONG}
    assert "target topic a.orders cannot be described" in targets.obstacles["orders"].reason
    assert targets.copyable == {"x.c": 0, "clicks": 1, "orders": 0, LONG: 0}
    assert targets.on_source == dict.fromkeys(("x.c", "clicks", "orders", LONG), 1)


def test_validation_creates_nothing() -> None:
    b = FakeCluster()
    b.add_topic("a.b_c")
    admin = FakeAdmin(b)
    assert admin.create_topics([NewTopic("a.new", 1)], validate_only=True).keys() == {"a.new"}
    assert admin.create_partitions({"a.b_c": 9}, validate_only=True).keys() == {"a.b_c"}
    with pytest.raises(BrokerError, match=r"collides with existing topic: a\.b_c"):
        admin.create_topics([NewTopic("a.b.c", 1)], validate_only=True)
    assert b.topics.keys() == {"a.b_c"}
    assert len(b.topics["a.b_c"].partitions) == 1


def test_a_preparation_follows_another_one() -> None:
    one = TargetTopics(
        copyable={"orders": 2, "t": 0}, obstacles={"t": Obstacle("no", 0), "orders": Obstacle("full", 2)}
    )
    assert one.obstacles["orders"].describe("orders") == "partitions 2 and above of topic orders cannot be copied: full"
    assert one.obstacles["t"].describe("t") == "topic t cannot be copied: no"
    assert replace(one, copyable={"orders": 1, "t": 0}).following(one).version == 1
    assert replace(one, copyable={"orders": 3}).following(one).version == 2
