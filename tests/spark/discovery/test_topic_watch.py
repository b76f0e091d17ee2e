"""New topics and partitions reach the epoch that runs, or the next one, no matter which side sees them first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.alignment.owned_topics import OwnedTopics
from mirror.client import Outcomes
from mirror.errors import BrokerError, KafkaTimeout
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.progress.control import control_partition
from mirror.relay.task.added_ranges import added_ranges
from mirror.spark.discovery.comparison import Comparison, compare
from mirror.spark.discovery.topic_watch import EpochAdditions, NewPartitions, TopicWatch
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.preflight.target_topics import prepare_new_topics, prepare_topics
from tests.spark.epochs_harness import CONFIG, EpochsHarness, answer
from tests.spark.fakes import FOLDER, Admin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror import client
    from mirror.client import OffsetAndMetadata, TopicDescription, TopicPartition


class Stream:
    """What a stream has of its target topics: a watch, its ledger, its planner, and how the driver prepares."""

    def __init__(self, folder: Path, more: str = "", *, planned: bool = True) -> None:
        self.site = site = EpochsHarness(folder)
        site.config.write_text(CONFIG.replace('["orders"]', '["orders.*"]') + more)
        _, self.flow = site.options.load()
        self.control = site.orders("run-1")
        self.control.claim()
        self.source, self.target = (cast("client.Admin", Admin({"bootstrap.servers": f"{name}:1"})) for name in "ab")
        self.prepared: list[list[str]] = []
        self.owned = OwnedTopics(self.flow.name)
        self.owned.add(self.target.describe_topics(["a.orders"]))
        site.ledger.write_targets(prepare_topics(self.flow, self.source, self.target, owned=self.owned).targets)
        if planned:
            self.plan(1)
        self.new = NewPartitions(site.ledger.targets())
        self.lines: list[str] = []
        self.cpu_ms = 0
        self.watch = self.begin_watch()

    def begin_watch(self) -> TopicWatch:
        """Each time that the configuration was read again, there is another one."""
        clusters, control = (self.source, self.target), self.control
        self.additions = EpochAdditions(self.flow, *clusters, self.site.ledger, control, self.new, self.lines.append)
        assign, cpu = self.additions.update_epoch, lambda: self.cpu_ms
        return TopicWatch(self.flow, self.source, self.prepare, self.new, assign, cpu)

    def prepare(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """As the driver does (StreamFlow)."""
        self.prepared.append(sorted(topics))
        before = self.site.ledger.targets()
        assert before is not None
        prepared = prepare_new_topics(self.flow, self.source, self.target, before, topics, owned=self.owned)
        self.site.ledger.write_targets(targets := prepared.targets.without(gone))
        return targets

    def compare(self) -> Comparison:
        """As another thread of the driver does each ``refresh-ms``."""
        targets = self.new.targets
        assert targets is not None
        return compare(self.flow, self.source, self.target, targets)

    def refresh(self) -> None:
        self.watch.settle(self.compare())

    def plan(self, epoch: int) -> None:
        plan = self.site.epochs.plan(epoch, drains=False)
        assert plan is not None
        answer(self.site.ledger, plan)

    def ended(self) -> int:
        """The first epoch that may go on."""
        control = self.control.read()
        assert control is not None
        return control.epoch

    def target_topics(self) -> dict[str, int]:
        topics = self.site.b.state()["topics"]
        return {name: len(each["partitions"]) for name, each in topics.items() if name.startswith("a.")}

    def planned(self) -> set[tuple[str, int]]:
        epoch = self.site.ledger.last_planned_epoch()
        plan = None if epoch is None else self.site.ledger.plan(epoch)
        assert plan is not None
        return {(one.topic, one.partition) for one in plan.ranges}

    def added(self, epoch: int) -> dict[tuple[str, int], tuple[int, int]]:
        """By source partition: the start and the end of what all tasks of ``epoch`` find that was added to it."""
        control = self.control.read()
        if control is None or not control.added:
            return {}
        offsets = self.target.group_offsets(control_partition("f")[0])
        found = [
            one for task in range(2) for one in added_ranges(offsets, "f", "run-1", epoch, task, self.flow.target_topic)
        ]
        assert len({(one.topic, one.partition) for one in found}) == len(found), "each has one task"
        return {(one.topic, one.partition): (one.start, one.end) for one in found}


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    return new_stream(tmp_path, monkeypatch)


def new_stream(folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "", *, planned: bool = True) -> Stream:
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setattr("mirror.spark.datasource.epoch_planner.Admin", Admin)
    return Stream(folder, more, planned=planned)


BEFORE = {("orders", 0), ("orders", 1)}
NEW: dict[str, tuple[str, list[int], tuple[str, int], dict[str, int]]] = {
    "topic": ("orders-new", [5], ("orders-new", 0), {"a.orders": 2, "a.orders-new": 1}),
    "partition": ("orders", [10, 20, 30], ("orders", 2), {"a.orders": 3}),
}


@pytest.mark.parametrize("what", NEW)
@pytest.mark.parametrize("first", ["watch", "early plan", "epoch"])
def test_new_topic_is_never_missed_at_an_epochs_edge(stream: Stream, what: str, first: str) -> None:
    """Whichever sees it first. Seen: a plan that named it kept the watch from creating it for good."""
    site = stream.site
    name, ends, tp, there = NEW[what]
    site.a.add_topic(name, ends)
    if first == "watch":
        stream.watch.discover()
        assert stream.added(1) == {tp: (0, OPEN_END)}, "the running epoch copies it"
        stream.plan(2)
        assert stream.planned() == {*BEFORE, tp}
    else:
        plan = site.epochs.plan(2, drains=False, early=first == "early plan")
        assert plan is not None
        assert {(one.topic, one.partition) for one in plan.ranges} == BEFORE, "it would only wait, and expire"
        if first == "early plan":
            stream.watch.discover()
            assert stream.added(1) == {tp: (0, OPEN_END)}
            assert site.epochs.finish_early_plan(plan) is not None
            assert stream.planned() == BEFORE
            stream.additions.update_epoch()
            assert stream.added(2) == {tp: (0, OPEN_END)}, "the plan lacks it"
        else:
            stream.watch.discover()
            assert stream.added(2) == {tp: (0, OPEN_END)}
    assert stream.target_topics() == there
    before = stream.control.read()
    stream.watch.discover()
    stream.watch.discover()
    assert stream.control.read() == before, "nothing is new"
    assert (stream.ended(), len(stream.lines)) == (0, 1), "no epoch ends early"


def test_an_addition_that_an_ending_epoch_may_have_missed_is_repeated_for_the_next_one(stream: Stream) -> None:
    """The plan was made before the topic was prepared, and written afterwards."""
    stream.site.a.add_topic("orders-new", [5])
    plan = stream.site.epochs.plan(2, drains=False, early=True)
    stream.watch.discover()
    assert plan is not None
    stream.site.ledger.write_plan(plan)
    assert stream.added(2) == {}
    stream.watch.discover()
    assert stream.added(2) == {("orders-new", 0): (0, OPEN_END)}
    stream.watch = stream.begin_watch()
    before = stream.control.read()
    stream.watch.discover()
    assert stream.control.read() == before


def test_only_what_is_new_is_prepared_between_two_preparations_of_all(stream: Stream) -> None:
    stream.site.a.add_topic("orders-new", [5]).add_topic("clicks", [1])
    stream.watch.discover()
    stream.watch.discover()
    assert stream.prepared == [["orders-new"]]
    stream.refresh()
    assert stream.prepared == [["orders-new"], []]
    assert stream.target_topics() == {"a.orders": 2, "a.orders-new": 1}


def test_an_overwritten_announcement_is_repeated(stream: Stream) -> None:
    stream.site.a.add_topic("orders-new", [5])
    before = stream.control.read()
    assert before is not None
    stream.watch.discover()
    stream.control._commit(before)  # `mirror stop` had read the record before
    assert stream.added(1) == {}
    stream.control.sync()  # as the driver does each second
    assert stream.added(1) == {("orders-new", 0): (0, OPEN_END)}
    assert len(stream.lines) == 1


def test_a_partition_whose_leader_does_not_answer_is_added_when_it_does(stream: Stream) -> None:
    stream.site.a.add_topic("orders-new", [5, 6]).set_moods({"silent": '["orders-new/1"]'})
    stream.watch.discover()
    assert stream.added(1) == {("orders-new", 0): (0, OPEN_END)}
    stream.watch.discover()
    stream.site.a.set_moods({})
    stream.watch.discover()
    assert stream.added(1) == {("orders-new", 0): (0, OPEN_END), ("orders-new", 1): (0, OPEN_END)}


def test_a_partition_that_a_broker_does_not_know_yet_is_added_when_it_does(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of a topic one after the other; the listing came from another one."""
    describe, calls = Admin.describe_topics, list[str]()

    def describe_later(admin: Admin, names: Iterable[str], **more: Any) -> Outcomes[str, TopicDescription]:
        found = describe(admin, names, **more)
        if cast("client.Admin", admin) is stream.source and list(names) == ["orders-new"] and not calls:
            calls.append("the broker that is behind")
            return Outcomes({}, dict.fromkeys(found, BrokerError("unknown topic", 3)))
        return found

    monkeypatch.setattr(Admin, "describe_topics", describe_later)
    stream.site.a.add_topic("orders-new", [5])
    stream.watch.discover()
    assert stream.added(1) == {}
    stream.watch.discover()
    assert stream.added(1) == {("orders-new", 0): (0, OPEN_END)}


def test_a_topic_that_is_found_before_the_first_plan_is_copied_from_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes seconds to plan the first epoch."""
    stream = new_stream(tmp_path, monkeypatch, 'start = "latest"\n', planned=False)
    stream.site.a.add_topic("orders-new", [5])
    stream.watch.discover()
    stream.plan(1)
    plan = stream.site.ledger.plan(1)
    assert plan is not None
    starts = {(one.topic, one.partition): one.start for one in plan.ranges}
    assert starts == {("orders", 0): 10, ("orders", 1): 20, ("orders-new", 0): 0}


@pytest.mark.parametrize("new", [True, False])
def test_a_new_partition_is_copied_from_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    """Also by a flow that begins at the end of what it finds, which a topic is that had an obstacle at first."""
    stream = new_stream(tmp_path, monkeypatch, 'start = "latest"\n')
    if not new:
        stream.site.b.set_moods({"refused": '{"a.orders-new": "not now"}'})
    stream.site.a.add_topic("orders-new", [5])
    if not new:
        stream.refresh()
        stream.new = NewPartitions(stream.site.ledger.targets())
        stream.site.b.set_moods({})
        stream.watch = stream.begin_watch()
        stream.refresh()
    stream.watch.discover()
    assert stream.added(1) == {("orders-new", 0): (0 if new else 5, OPEN_END)}


def test_a_limited_flow_plans_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its planner decides what has a place in an epoch."""
    stream = new_stream(tmp_path, monkeypatch, "max-partitions-in-parallel = 1\n")
    stream.site.a.add_topic("orders-new", [5])
    before = stream.control.read()
    assert before is not None
    stream.watch.discover()
    assert (stream.ended(), stream.added(1)) == (2, {})
    stream.watch.discover()
    assert stream.ended() == 2
    stream.control._commit(before)  # `mirror stop` had read the record before
    assert stream.ended() == 0
    stream.control.sync()  # as the driver does each second
    assert stream.ended() == 2, "the running epoch ends, and not only by its time"


def test_a_task_that_may_end_early_gets_nothing(stream: Stream) -> None:
    plan = stream.site.ledger.plan(1)
    assert plan is not None
    answer(stream.site.ledger, plan, Outcome.FAILED, stuck_since_ms=77)
    stream.plan(2)
    stream.site.a.add_topic("orders-new", [5])
    stream.watch.discover()
    assert (stream.ended(), stream.added(2)) == (3, {})


@pytest.mark.parametrize("what", NEW)
def test_a_failed_topic_creation_is_retried(stream: Stream, what: str) -> None:
    site = stream.site
    name, ends, tp, there = NEW[what]
    site.a.add_topic(name, ends)
    site.b.set_moods({"refused": f'{{"a.{name}": "not now"}}'})
    stream.watch.discover()
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    (settled,) = plan.results_without_task
    assert (settled.topic, settled.partition, settled.outcome) == (*tp, Outcome.FAILED)
    assert "not now" in str(settled.error)
    stream.refresh()
    assert (stream.ended(), stream.added(2)) == (0, {}), "nothing is done for what cannot be copied"
    site.b.set_moods({})
    stream.refresh()
    assert (stream.target_topics(), stream.added(2)) == (there, {tp: (0, OPEN_END)})
    stream.plan(3)
    assert stream.planned() == {*BEFORE, tp}


def test_a_target_topic_that_is_deleted_while_the_stream_runs_is_created_again(stream: Stream) -> None:
    with stream.site.b.change() as state:
        del state["topics"]["a.orders"]
    stream.refresh()
    assert stream.target_topics() == {"a.orders": 2}


def test_a_topic_is_created_even_before_the_first_plan(stream: Stream) -> None:
    """A stream of which nothing can be copied begins no epoch, and prepares what comes all the same."""
    site = stream.site
    for plan in site.ledger.path.glob("plan-*.json"):
        plan.unlink()
    assert Ledger(site.ledger.path).last_planned_epoch() is None
    site.a.add_topic("orders-new", [5])
    stream.watch.discover()
    assert stream.target_topics() == {"a.orders": 2, "a.orders-new": 1}


def test_discovery_that_takes_long_is_rare(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([0, 10, 0, 200, 0, 5_000])
    monkeypatch.setattr(stream.watch, "_cpu_ms", lambda: next(taken))
    assert [stream.watch.discover() for _ in range(3)] == [1_000, 1_800, 3_000]


def test_another_run_that_has_taken_over_keeps_its_record(stream: Stream) -> None:
    stream.site.orders("run-2").claim()
    before = stream.control.read()
    stream.site.a.add_topic("orders-new", [5])
    stream.watch.discover()
    assert stream.control.read() == before


def test_many_offsets_are_committed_in_portions(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers append those of a request as one batch, whose size is limited."""
    sizes = list[int]()
    commit = Admin.commit_group_offsets

    def counted(admin: Admin, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], **more: int) -> None:
        sizes.append(len(offsets))
        commit(admin, group, offsets, **more)

    monkeypatch.setattr(Admin, "commit_group_offsets", counted)
    monkeypatch.setattr("mirror.spark.discovery.topic_watch._MOST_COMMITTED", 2)
    stream.site.a.add_topic("orders-new", [5, 6, 7])
    stream.watch.discover()
    assert sizes == [2, 1, 1], "and the control record"
    assert stream.lines == ["new on the source, and copied from now on: orders-new (3 partitions)"]
    assert stream.added(1) == {("orders-new", number): (0, OPEN_END) for number in range(3)}


def test_a_partition_that_cannot_be_added_keeps_no_other_one_from_it_and_is_tried_again(stream: Stream) -> None:
    """Its permission may come later than it; the next epoch may be minutes away."""
    stream.site.a.add_topic("orders-new", [5]).add_topic("orders-secret", [5])
    stream.site.b.set_moods({"uncommittable": '["a.orders-secret"]'})
    stream.watch.discover()
    stream.watch.discover()
    assert stream.added(1) == {("orders-new", 0): (0, OPEN_END)}
    refused, added = stream.lines
    assert "refused by the target, so tried again (1 partition): " in refused
    assert "no Read on a.orders-secret" in refused
    assert added.endswith(": orders-new (1 partition)")
    stream.site.b.set_moods({})
    stream.watch.discover()
    assert stream.added(1).keys() == {("orders-new", 0), ("orders-secret", 0)}


def test_what_discovery_has_prepared_during_a_comparison_is_left_to_it(stream: Stream) -> None:
    """The comparison has seen a topic with fewer partitions, and another one not at all."""
    stream.site.a.add_topic("orders-new", [5])
    with stream.site.a.change() as state:
        orders = state["topics"].pop("orders")
    stale = stream.compare()
    assert stale.lacking.keys() == {"orders-new"}
    assert stale.gone == {"orders"}
    stream.site.a.add_topic("orders-new", [5, 6])
    with stream.site.a.change() as state:
        state["topics"]["orders"] = orders
    stream.site.a.add_topic("orders", [10, 20, 30])
    stream.watch.discover()
    before = stream.new.targets
    stream.watch.settle(stale)
    assert stream.new.targets == before
    assert before is not None
    assert before.copyable == {"orders": 3, "orders-new": 2}
    assert stream.site.ledger.targets() == before


def test_a_deleted_topic_that_comes_back_is_new(stream: Stream) -> None:
    """Also if the source says the same as before a comparison had found it deleted."""
    stream.watch.discover()
    with stream.site.a.change() as state:
        orders = state["topics"].pop("orders")
    stream.site.a.add_topic("orders-other", [1])
    stream.watch.discover()
    stale = stream.compare()
    with stream.site.a.change() as state:
        state["topics"]["orders"] = orders
        del state["topics"]["orders-other"]
    stream.watch.settle(stale)
    assert (stream.new.targets or TargetTopics()).copyable.keys() == {"orders-other"}
    stream.watch.discover()
    assert (stream.new.targets or TargetTopics()).copyable == {"orders-other": 1, "orders": 2}


def test_a_target_that_does_not_answer_is_an_error(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a silent leader of the source is waited for in silence."""

    def silent(*_: object, **__: object) -> None:
        raise KafkaTimeout("no answer")

    monkeypatch.setattr("mirror.spark.discovery.additions.ProgressStore.read", silent)
    stream.site.a.add_topic("orders-new", [5])
    with pytest.raises(KafkaTimeout, match="no answer"):
        stream.watch.discover()


def test_a_new_topic_whose_name_collides_is_an_obstacle(stream: Stream) -> None:
    """With another topic of the flow, or with one of others, which the brokers find."""
    stream.site.b.add_topic("a.orders_x", [0])
    stream.site.a.add_topic("orders-a.b", [5])
    stream.watch.discover()
    stream.site.a.add_topic("orders-a_b", [5]).add_topic("orders.x", [5])
    stream.watch.discover()
    targets = stream.new.targets
    assert targets is not None
    assert targets.obstacles.keys() == {"orders-a_b", "orders.x"}
    assert "collides on cluster b with topic a.orders-a.b" in targets.obstacles["orders-a_b"].reason
    assert "collides on cluster b with topic a.orders_x, which exists" in targets.obstacles["orders.x"].reason
    assert stream.added(1) == {("orders-a.b", 0): (0, OPEN_END)}
