"""A stream hears that another run has taken over, whenever that happens: its query would wait for ever otherwise."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.control import POLL_INTERVAL_MS, RunControl
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.spark.run_control import RunControlClient
from tests.polling import eventually
from tests.spark.epochs_harness import CONFIG, EpochsHarness, answer
from tests.spark.fakes import FOLDER, Admin, Cluster

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig


def orders(run: str) -> RunControlClient:
    return RunControlClient(Admin({"bootstrap.servers": "b:1"}), "f", run)  # type: ignore[arg-type]  # what is used of it


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowOptions:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr("mirror.spark.driver.stream_monitor.Admin", Admin)
    for name in "ab":
        Cluster(f"{name}:1", tmp_path).make()
    config = tmp_path / "mirror.toml"
    config.write_text(CONFIG)
    return FlowOptions(config, "f", Ledger.open(tmp_path, "f", "run-2").path, run="run-2")


def watch(options: FlowOptions, *, claimed: bool) -> StreamMonitor:
    return StreamMonitor(options, Ledger(options.ledger), lambda *_: None, lambda _: None, claimed=claimed)


def test_a_stream_renews_its_control_record(options: FlowOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[RunControl]()

    class Counted(RunControlClient):
        def renew_from(self, orders: RunControl) -> None:
            given.append(orders)
            super().renew_from(orders)

    monkeypatch.setattr("mirror.spark.driver.stream_monitor.RunControlClient", Counted)
    orders("run-2").claim()
    began = orders("run-2").read()
    assert began is not None
    orders("run-2")._commit(replace(began, seen_ms=1))
    with watch(options, claimed=True):
        eventually(lambda: (read := orders("").read()) is not None and read.seen_ms >= began.seen_ms, what="a sign")
        looked = time.monotonic()
        eventually(lambda: time.monotonic() - looked > 2 * POLL_INTERVAL_MS / 1000, what="two more looks")
    assert len(given) == 1, "no more often than it must"


def test_heartbeats_are_sent_until_the_run_ends(options: FlowOptions) -> None:
    of_run = orders(options.run)
    of_run.claim()

    def seen() -> int:
        told = of_run.read()
        return 0 if told is None else told.seen_ms

    before = seen()
    with Heartbeat(of_run, every_ms=5):
        eventually(lambda: seen() > before, what="a sign of life")
        of_run.stop()
        eventually(lambda: (told := of_run.read()) is not None and told.stop, what="the stop, which nothing undoes")
    of_run.end()
    told = of_run.read()
    with Heartbeat(of_run, every_ms=1):
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 0.1, what="some signs' time")
    assert of_run.read() == told, "what has ended stays so"


@pytest.mark.parametrize("other", ["run-3", "run-1, of a host whose clock is behind"])
def test_another_run_that_takes_over_before_the_first_poll_fences_this_one(options: FlowOptions, other: str) -> None:
    orders("run-2").claim()
    orders(other).claim()
    with watch(options, claimed=True) as one:
        eventually(lambda: one.fenced_by is not None, what="the word of the other run")
    assert one.fenced_by is not None
    assert one.fenced_by.run == other


def test_a_later_run_fences_this_one_even_if_the_flow_could_not_be_claimed(options: FlowOptions) -> None:
    orders("run-3").claim()
    with watch(options, claimed=False) as one:
        eventually(lambda: one.fenced_by is not None, what="the word of the later run")


def test_the_control_record_of_a_dead_run_fences_no_other_run(
    options: FlowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[RunControl | None]()

    class Counted(RunControlClient):
        def read(self, timeout_ms: int = 0) -> RunControl | None:
            looks.append(super().read(timeout_ms))
            return looks[-1]

    monkeypatch.setattr("mirror.spark.driver.stream_monitor.RunControlClient", Counted)
    orders("run-1").claim()
    with watch(options, claimed=False) as one:
        eventually(lambda: len(looks) > 1, what="two looks")  # the first is over by then
        assert one.fenced_by is None


# --- target topics


class Stream:
    """What a stream has of its target topics: a watch, its ledger, its planner, and how the driver prepares."""

    def __init__(self, folder: Path) -> None:
        self.site = site = EpochsHarness(folder)
        site.config.write_text(CONFIG.replace('["orders"]', '["orders.*"]'))
        self.config, self.flow = site.options.load()
        self.orders = site.orders("run-1")
        self.orders.claim()
        self.prepare(self.config, self.flow)
        first = site.epochs.plan(1, drains=False)
        assert first is not None
        answer(site.ledger, first)
        self.watch = StreamMonitor(site.options, site.ledger, self.prepare, print, claimed=True)

    def prepare(self, _config: object, flow: FlowConfig) -> None:
        """As the driver does (StreamFlow)."""
        before = self.site.ledger.targets()
        source, target = (Admin({"bootstrap.servers": f"{name}:1"}) for name in "ab")
        prepared = prepare_topics(flow, source, target, before)  # type: ignore[arg-type]  # what is used of them
        self.site.ledger.write_targets(prepared.targets)

    def look(self) -> None:
        self.watch.prepare_new_topics(self.config, self.flow)

    def epoch(self) -> int:
        """The first one that may go on."""
        orders = self.orders.read()
        assert orders is not None
        return orders.epoch

    def there(self) -> dict[str, int]:
        topics = self.site.b.state()["topics"]
        return {name: len(each["partitions"]) for name, each in topics.items() if name.startswith("a.")}

    def planned(self) -> set[tuple[str, int]]:
        epoch = self.site.ledger.last_planned_epoch()
        plan = None if epoch is None else self.site.ledger.plan(epoch)
        assert plan is not None
        return {(one.topic, one.partition) for one in plan.ranges}


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    for module in ("datasource.epoch_planner", "driver.stream_monitor"):
        monkeypatch.setattr(f"mirror.spark.{module}.Admin", Admin)
    return Stream(tmp_path)


BEFORE = {("orders", 0), ("orders", 1)}
NEW = {
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
        stream.look()
        assert stream.epoch() == 2, "the running epoch ends, since its plan lacks it"
        site.epochs.plan(2, drains=False)
    else:
        plan = site.epochs.plan(2, drains=False, early=first == "early plan")
        assert plan is not None
        assert {(one.topic, one.partition) for one in plan.ranges} == BEFORE, "it would only wait, and expire"
        if first == "early plan":
            assert site.epochs.is_current(plan)
            stream.look()
            assert not site.epochs.is_current(plan), "it is made again before it is begun"
            site.epochs.plan(2, drains=False)
        else:
            stream.look()
            assert stream.epoch() == 3
            site.epochs.plan(3, drains=False)
    assert stream.there() == there
    assert stream.planned() == {*BEFORE, tp}
    before = stream.epoch()
    stream.look()
    assert stream.epoch() == before, "no epoch ends where nothing is new"


@pytest.mark.parametrize("what", NEW)
def test_a_failed_topic_creation_is_retried(stream: Stream, what: str) -> None:
    site = stream.site
    name, ends, tp, there = NEW[what]
    site.a.add_topic(name, ends)
    site.b.set_moods({"refused": f'{{"a.{name}": "not now"}}'})
    stream.look()
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    (settled,) = plan.results_without_task
    assert (settled.topic, settled.partition, settled.outcome) == (*tp, Outcome.FAILED)
    assert "not now" in str(settled.error)
    stream.look()
    assert stream.epoch() == 0, "no epoch ends for what cannot be copied"
    site.b.set_moods({})
    stream.look()
    assert (stream.there(), stream.epoch()) == (there, 3)
    site.epochs.plan(3, drains=False)
    assert stream.planned() == {*BEFORE, tp}


def test_a_target_topic_that_is_deleted_while_the_stream_runs_is_created_again(stream: Stream) -> None:
    with stream.site.b.change() as state:
        del state["topics"]["a.orders"]
    stream.look()
    assert stream.there() == {"a.orders": 2}


def test_a_topic_is_created_even_before_the_first_plan(stream: Stream) -> None:
    """A stream of which nothing can be copied begins no epoch, and prepares what comes all the same."""
    site = stream.site
    for plan in site.ledger.path.glob("plan-*.json"):
        plan.unlink()
    assert site.ledger.last_planned_epoch() is None
    site.a.add_topic("orders-new", [5])
    stream.look()
    assert stream.there() == {"a.orders": 2, "a.orders-new": 1}
