"""New topics and partitions reach the tasks of the running job, and what could not be prepared is tried again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror.alignment.owned_topics import OwnedTopics
from mirror.client import Admin, Outcomes, TopicPartition
from mirror.errors import BrokerError, KafkaTimeout
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.progress.assignment_entries import entries_of
from mirror.relay.progress.control_record import control_partition
from mirror.spark.discovery.additions import JobAdditions
from mirror.spark.discovery.assigner import Assigner
from mirror.spark.discovery.topic_watch import TopicWatch
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.preflight.target_topics import prepare_new_topics, prepare_topics
from mirror.spark.tasks.options import FlowOptions
from tests.spark.claimed_run import claimed_run
from tests.spark.discovery.test_assigner import Clock, range_of
from tests.spark.flow_harness import FlowHarness
from tests.spark.observed import sides_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.client import TopicDescription


class Stream:
    """A stream whose driver has begun to copy both partitions of a topic, with a task each."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.site = site = FlowHarness(folder)
        site.a.add_topic("orders", [10, 20])
        site.b.add_topic("a.orders", [0, 0])
        with site.config.open("a") as file:
            file.write(more)
        _, self.flow = FlowOptions(site.config, "f", folder).load()
        self.source, self.target = (Admin({"bootstrap.servers": f"{name}:1"}) for name in "ab")
        run = claimed_run("run-1", self.target)
        self.control = run.client
        self.prepared: list[list[str]] = []
        self.owned = OwnedTopics(self.flow.name)
        self.owned.add(self.target.describe_topics(["a.orders"]))
        self.targets = prepare_topics(self.flow, sides_of(self.source, self.target), owned=self.owned).targets
        rows = [[range_of("orders", number)] for number in range(2)]
        clock, ignore = Clock(), list[str]().append
        self.assigner = Assigner(
            "f", 1, rows, run, self.target, clock, settle_within_ms=60_000, warn=ignore, report=ignore
        )
        self.lines: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Begin to watch with the last preparation, as a run does."""
        first = self.targets
        self.additions = JobAdditions(
            self.flow, self.assigner, first.version, lambda tp: first.covers(tp.topic, tp.partition), self.lines.append
        )
        self.watch = TopicWatch(self.flow, first, self.prepare, self.additions.assign)

    def discover(self) -> None:
        self.watch.discover(sides_of(self.source, self.target))

    def prepare(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """As the driver does."""
        self.prepared.append(sorted(topics))
        prepared = prepare_new_topics(
            self.flow, sides_of(self.source, self.target), self.targets, topics, owned=self.owned
        )
        self.targets = prepared.targets.without(gone)
        return self.targets

    def refresh(self) -> None:
        self.watch.compare(sides_of(self.source, self.target))

    def release(self, target_topic: str, partitions: int) -> None:
        """Tasks settle it at once."""
        self.assigner.release([TopicPartition(target_topic, number) for number in range(partitions)])
        for target, release in self.assigner._table._released.items():
            self.assigner._table.on_settled(target, release.entry.version)
        self.additions.on_released()

    def target_topics(self) -> dict[str, int]:
        topics = self.site.b.state()["topics"]
        return {name: len(each["partitions"]) for name, each in topics.items() if name.startswith("a.")}

    def added(self) -> dict[tuple[str, int], tuple[int, int]]:
        """By source partition: the start and the end of what tasks find that were given to them."""
        control = self.control.read()
        announced = 0 if control is None else control.version
        offsets = self.target.group_offsets(control_partition("f")[0])
        found = [one for one in entries_of(offsets, "f", "run-1", 1).values() if one.version <= announced]
        return {(one.range.topic, one.range.partition): (one.range.start, one.range.end) for one in found}


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return new_stream(tmp_path)


def new_stream(folder: Path, more: str = "") -> Stream:
    return Stream(folder, more)


NEW: dict[str, tuple[str, list[int], tuple[str, int], dict[str, int]]] = {
    "topic": ("orders-new", [5], ("orders-new", 0), {"a.orders": 2, "a.orders-new": 1}),
    "partition": ("orders", [10, 20, 30], ("orders", 2), {"a.orders": 3}),
}


@pytest.mark.parametrize("what", NEW)
def test_what_is_new_is_prepared_and_given_to_a_task_once(stream: Stream, what: str) -> None:
    name, ends, tp, there = NEW[what]
    stream.site.a.add_topic(name, ends)
    stream.discover()
    assert (stream.added(), stream.target_topics()) == ({tp: (0, OPEN_END)}, there)
    before = stream.control.read()
    stream.discover()
    stream.discover()
    assert stream.control.read() == before, "nothing is new"
    assert stream.lines == [f"new on the source, and copied from now on: {name} (1 partition)"]


def test_what_gets_a_task_again_is_not_new_on_the_source_unless_it_was_gone(stream: Stream) -> None:
    """The target topic was deleted, and made again."""
    stream.site.a.add_topic("orders-2", [5])
    stream.discover()
    stream.lines.clear()
    stream.release("a.orders", 2)
    stream.discover()
    assert (len(stream.assigner.ranges()), stream.lines) == (3, [])
    stream.additions.on_gone(one for one in stream.assigner.ranges() if one.topic == "orders")
    stream.release("a.orders", 2)
    stream.discover()
    assert (len(stream.assigner.ranges()), len(stream.lines)) == (3, 1)
    assert stream.lines[0].startswith("new on the source, and copied from now on: orders (")


def test_a_target_topic_that_was_deleted_is_known_and_one_that_could_not_be_created_is_not_deleted(
    stream: Stream,
) -> None:
    def deleted() -> set[str]:
        return stream.watch.deleted(sides_of(stream.source, stream.target))

    stream.site.b.set_moods({"refused": '{"a.orders-new": "not now"}'})
    stream.site.a.add_topic("orders-new", [5])
    stream.discover()
    assert stream.watch.targets.copyable["orders-new"] == 0
    assert (deleted(), deleted()) == (set(), set())
    stream.target.delete_topics(["a.orders"])
    assert (deleted(), deleted()) == ({"a.orders"}, {"a.orders"})
    stream.refresh()
    assert deleted() == set()


def test_only_what_is_new_is_prepared_between_two_preparations_of_all(stream: Stream) -> None:
    stream.site.a.add_topic("orders-new", [5]).add_topic("clicks", [1])
    stream.discover()
    stream.discover()
    assert stream.prepared == [["orders-new"]]
    stream.refresh()
    assert stream.prepared == [["orders-new"], []]
    assert stream.target_topics() == {"a.orders": 2, "a.orders-new": 1}


def test_an_overwritten_announcement_is_repeated(stream: Stream) -> None:
    stream.site.a.add_topic("orders-new", [5])
    before = stream.control.read()
    assert before is not None
    stream.discover()
    stream.control._commit(before)  # `mirror stop` had read the record before
    assert stream.added() == {}
    stream.control.sync()  # as the driver does each second
    assert stream.added() == {("orders-new", 0): (0, OPEN_END)}
    assert len(stream.lines) == 1


def test_a_partition_whose_leader_does_not_answer_is_added_when_it_does(stream: Stream) -> None:
    stream.site.a.add_topic("orders-new", [5, 6]).set_moods({"silent": '["orders-new/1"]'})
    stream.discover()
    assert stream.added() == {("orders-new", 0): (0, OPEN_END)}
    stream.discover()
    stream.site.a.set_moods({})
    stream.discover()
    assert stream.added() == {("orders-new", 0): (0, OPEN_END), ("orders-new", 1): (0, OPEN_END)}


def test_a_partition_that_a_broker_does_not_know_yet_is_added_when_it_does(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of a topic one after the other; the listing came from another one."""
    describe, calls = Admin.describe_topics, list[str]()

    def describe_later(admin: Admin, names: Iterable[str], **more: Any) -> Outcomes[str, TopicDescription]:
        found = describe(admin, names, **more)
        if admin is stream.source and list(names) == ["orders-new"] and not calls:
            calls.append("the broker that is behind")
            return Outcomes({}, dict.fromkeys(found, BrokerError("unknown topic", 3)))
        return found

    monkeypatch.setattr(Admin, "describe_topics", describe_later)
    stream.site.a.add_topic("orders-new", [5])
    stream.discover()
    assert stream.added() == {}
    stream.discover()
    assert stream.added() == {("orders-new", 0): (0, OPEN_END)}


@pytest.mark.parametrize("new", [True, False])
def test_a_new_partition_is_copied_from_its_first_record(tmp_path: Path, new: bool) -> None:
    """Also by a flow that begins at the end of what it finds, which a topic is that had an obstacle at first."""
    stream = new_stream(tmp_path, 'start = "latest"\n')
    if not new:
        stream.site.b.set_moods({"refused": '{"a.orders-new": "not now"}'})
    stream.site.a.add_topic("orders-new", [5])
    if not new:
        stream.refresh()
        stream.begin()
        stream.site.b.set_moods({})
        stream.refresh()
    stream.discover()
    assert stream.added() == {("orders-new", 0): (0 if new else 5, OPEN_END)}


@pytest.mark.parametrize("what", NEW)
def test_a_failed_topic_creation_is_retried(stream: Stream, what: str) -> None:
    site = stream.site
    name, ends, tp, there = NEW[what]
    site.a.add_topic(name, ends)
    site.b.set_moods({"refused": f'{{"a.{name}": "not now"}}'})
    stream.discover()
    assert "not now" in stream.targets.obstacles[name].reason
    stream.refresh()
    assert stream.added() == {}, "nothing is done for what cannot be copied"
    site.b.set_moods({})
    stream.refresh()
    assert (stream.target_topics(), stream.added()) == (there, {tp: (0, OPEN_END)})


def test_a_target_topic_that_is_deleted_while_the_stream_runs_is_created_again(stream: Stream) -> None:
    with stream.site.b.change() as state:
        del state["topics"]["a.orders"]
    stream.refresh()
    assert stream.target_topics() == {"a.orders": 2}


def test_a_topic_that_is_made_again_while_others_are_prepared_is_given_to_a_task_with_its_new_id(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To prepare thousands of topics takes minutes."""
    stream.site.a.add_topic("orders-new", [5])
    prepare = stream.prepare

    def slowly(topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        prepared = prepare(topics, gone)
        del stream.site.a.kafka.topics["orders-new"]
        stream.site.a.add_topic("orders-new", [5])
        return prepared

    monkeypatch.setattr(stream, "prepare", slowly)
    stream.begin()
    stream.refresh()
    (given,) = (one for one in stream.assigner.ranges() if one.topic == "orders-new")
    assert given.topic_id == str(stream.site.a.kafka.topics["orders-new"].topic_id)


def test_a_partition_that_cannot_be_added_keeps_no_other_one_from_it_and_is_tried_again(stream: Stream) -> None:
    """Its permission may come later than it."""
    stream.site.a.add_topic("orders-new", [5]).add_topic("orders-secret", [5])
    stream.site.b.set_moods({"uncommittable": '["a.orders-secret"]'})
    stream.discover()
    stream.discover()
    assert stream.added() == {("orders-new", 0): (0, OPEN_END)}
    refused, added = stream.lines
    assert "refused by the target, so tried again (1 partition): " in refused
    assert "TOPIC_AUTHORIZATION_FAILED" in refused
    assert added.endswith(": orders-new (1 partition)")
    stream.site.b.set_moods({})
    stream.discover()
    assert stream.added().keys() == {("orders-new", 0), ("orders-secret", 0)}


def test_a_deleted_topic_that_comes_back_is_new(stream: Stream) -> None:
    """Also if the source says the same as before a comparison had found it deleted."""
    stream.discover()
    with stream.site.a.change() as state:
        orders = state["topics"].pop("orders")
    stream.site.a.add_topic("orders-other", [1])
    stream.discover()
    stream.refresh()
    with stream.site.a.change() as state:
        state["topics"]["orders"] = orders
        del state["topics"]["orders-other"]
    assert stream.watch.targets.copyable.keys() == {"orders-other"}
    stream.discover()
    assert stream.watch.targets.copyable == {"orders-other": 1, "orders": 2}


def test_partitions_that_are_to_begin_again_are_taken_once_their_task_has_settled_them(stream: Stream) -> None:
    target = TopicPartition("a.orders", 0)
    stream.additions.on_released()
    stream.assigner.release([target])
    stream.discover()
    stream.discover()
    assert stream.assigner.settling([target]) == {target}
    released = entries_of(stream.target.group_offsets(control_partition("f")[0]), "f", "run-1", 1)[target]
    stream.assigner._table.on_settled(target, released.version)
    stream.discover()
    assert [one.partition for one in stream.assigner.ranges()] == [1, 0]
    before = stream.control.read()
    stream.discover()
    assert stream.control.read() == before


def test_what_the_target_refuses_costs_no_plan_each_second(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.site.a.add_topic("orders-secret", [5])
    stream.site.b.set_moods({"uncommittable": '["a.orders-secret"]'})
    stream.discover()
    with monkeypatch.context() as patched:
        patched.setattr("mirror.spark.discovery.additions.plan_additions", lambda *_: pytest.fail("planned again"))
        stream.discover()
    stream.site.b.set_moods({})
    stream.discover()
    assert stream.added().keys() == {("orders-secret", 0)}


def test_a_target_that_does_not_answer_is_an_error(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a silent leader of the source is waited for in silence."""

    def silent(*_: object, **__: object) -> None:
        raise KafkaTimeout("no answer")

    monkeypatch.setattr("mirror.spark.planning.flow_observation.read_progress", silent)
    stream.site.a.add_topic("orders-new", [5])
    with pytest.raises(KafkaTimeout, match="no answer"):
        stream.discover()


def test_a_new_topic_whose_name_collides_is_an_obstacle(stream: Stream) -> None:
    """With another topic of the flow, or with one of others, which the brokers find."""
    stream.site.b.add_topic("a.orders_x", [0])
    stream.site.a.add_topic("orders-a.b", [5])
    stream.discover()
    stream.site.a.add_topic("orders-a_b", [5]).add_topic("orders.x", [5])
    stream.discover()
    targets = stream.watch.targets
    assert targets.obstacles.keys() == {"orders-a_b", "orders.x"}
    assert "collides on cluster b with topic a.orders-a.b" in targets.obstacles["orders-a_b"].reason
    assert "collides on cluster b with topic a.orders_x, which exists" in targets.obstacles["orders.x"].reason
    assert stream.added() == {("orders-a.b", 0): (0, OPEN_END)}
