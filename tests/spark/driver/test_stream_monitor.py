"""A stream learns that another run has taken over, whenever that happens: its job would run for ever otherwise."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from mirror.backoff import Backoff
from mirror.errors import KafkaTimeout
from mirror.relay.progress.control import POLL_INTERVAL_MS, RunControl
from mirror.spark.control_decision import Decision
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.discovery.comparison import Comparison, compare
from mirror.spark.discovery.topic_watch import TopicWatch
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.preflight.target_topics import prepare_new_topics, prepare_topics
from mirror.spark.run_control import RunControlClient, RunRecord
from tests.polling import eventually
from tests.spark.fakes import FOLDER, Admin, Cluster
from tests.spark.flow_harness import FlowHarness, configuration

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror import client
    from mirror.client import TopicDescription
    from mirror.spark.driver.stream_monitor import CompareTopics
    from mirror.takeover.watch import MirrorMakerWatch


def target() -> client.Admin:
    return cast("client.Admin", Admin({"bootstrap.servers": "b:1"}))


def orders(run: str) -> RunControlClient:
    return RunControlClient(target(), "f", run)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowOptions:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    use_admin(monkeypatch)
    for name in "ab":
        Cluster(f"{name}:1", tmp_path).make()
    config = tmp_path / "mirror.toml"
    config.write_text(configuration("orders"))
    return FlowOptions(config, "f", tmp_path / "run-2")


def use_admin(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("driver.stream_monitor", "flow_admins"):
        monkeypatch.setattr(f"mirror.spark.{module}.Admin", Admin)


class Resumed:
    """The watch of a MirrorMaker 2 that copies again since ``line`` was set."""

    line: str | None = None

    def read(self) -> str | None:
        return self.line


def watch(options: FlowOptions, *, claimed: bool, mirrormaker: Resumed | None = None) -> StreamMonitor:
    def prepare(*_: object, **__: object) -> TargetTopics:
        return TargetTopics()

    def ignore(_: str) -> None:
        pass

    record = RunRecord(options.run)
    record.claimed = claimed
    return StreamMonitor(
        *options.load(),
        TargetTopics(),
        prepare,
        nothing_differs,
        ignore,
        ignore,
        record=record,
        assign=ignore_new,
        watch=cast("MirrorMakerWatch | None", mirrormaker),
    )


def ignore_new(*_: object) -> None:
    """Have nothing copied."""


def nothing_differs(before: TargetTopics) -> Comparison:
    return Comparison(before, {}, frozenset())


def test_a_stream_renews_its_control_record(options: FlowOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[RunControl]()

    class Counted(RunControlClient):
        def _commit(self, control: RunControl, timeout_ms: int = 0) -> None:
            given.append(control)
            super()._commit(control, timeout_ms)

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


def test_a_stream_ends_in_order_once_mirrormaker_copies_again(options: FlowOptions) -> None:
    orders("run-2").claim()
    mirrormaker = Resumed()

    def read() -> RunControl:
        found = orders("").read()
        assert found is not None
        return found

    with watch(options, claimed=True, mirrormaker=mirrormaker) as one:
        assert not one.stop_requested
        mirrormaker.line = "it copies again"
        eventually(lambda: read().stop, what="the command to the tasks")
        assert one.stop_requested


def test_heartbeats_are_sent_until_the_run_ends(options: FlowOptions) -> None:
    of_run = orders(options.run)
    of_run.claim()

    def seen() -> int:
        result = of_run.read()
        return 0 if result is None else result.seen_ms

    before = seen()
    with Heartbeat(of_run, every_ms=5):
        eventually(lambda: seen() > before, what="a sign of life")
    of_run.end()
    result = of_run.read()
    assert result is not None
    assert result.ended
    syncs = list[Decision]()

    class Counted(RunControlClient):
        def sync(self) -> Decision:
            syncs.append(super().sync())
            return syncs[-1]

    record = RunRecord(options.run)
    record.want(ended=True)
    with Heartbeat(Counted(target(), "f", record=record), every_ms=1):
        eventually(lambda: len(syncs) > 3, what="some heartbeats")
    assert of_run.read() == result, "what has ended stays so"


def test_an_unexpected_error_does_not_end_the_heartbeats(
    options: FlowOptions, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[int]()

    class Broken(RunControlClient):
        def sync(self) -> Decision:
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("a bug")
            return super().sync()

    with Heartbeat(Broken(target(), "f", record=RunRecord(options.run)), every_ms=1):
        eventually(lambda: len(calls) > 3, what="later heartbeats")
    assert "the run's control record was not renewed" in caplog.text


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


def test_a_run_that_copies_what_there_is_prepares_no_new_topics(
    options: FlowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end with partitions that are not complete: it repeats none."""
    reads, prepared = list[int](), list[object]()

    class Counted(RunControlClient):
        def read(self, timeout_ms: int = 0) -> RunControl | None:
            reads.append(timeout_ms)
            return super().read(timeout_ms)

    def prepare(topics: object, gone: object = ()) -> TargetTopics:
        prepared.append((topics, gone))
        return TargetTopics()

    monkeypatch.setattr("mirror.spark.driver.stream_monitor.RunControlClient", Counted)
    options.config.write_text(configuration("orders") + "refresh-ms = 1000\n")

    def compare(*given: object) -> Comparison:
        prepared.append(given)
        return Comparison(TargetTopics(), {}, frozenset())

    ignore, record = list[str]().append, RunRecord("run-2")
    monitor = StreamMonitor(
        *options.load(), TargetTopics(), prepare, compare, ignore, ignore, record=record, assign=None
    )
    with monitor:
        eventually(lambda: len(reads) > 3, what="control commands, which are followed all the same")
    assert prepared == []


class Site(FlowHarness):
    """A stream of two fake clusters, whose driver has begun to copy."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, refresh_ms: int) -> None:
        super().__init__(folder)
        monkeypatch.setenv(FOLDER, str(folder))
        use_admin(monkeypatch)
        self.a.add_topic("orders", [10, 20])
        with self.config.open("a") as file:
            file.write(f"refresh-ms = {refresh_ms}\n")
        self.source, self.target = (cast("client.Admin", Admin({"bootstrap.servers": f"{name}:1"})) for name in "ab")
        self.loaded, self.flow = FlowOptions(self.config, "f", folder / "run-1").load()
        self.targets = prepare_topics(self.flow, self.source, self.target).targets
        orders("run-1").claim()
        self.warned, self.news, self.assigned = list[str](), list[str](), set[str]()
        self.record = RunRecord("run-1")

    def monitor(self, compare: CompareTopics | None = None) -> StreamMonitor:
        return StreamMonitor(
            self.loaded,
            self.flow,
            self.targets,
            self.prepare,
            compare or self.compare,
            self.warned.append,
            self.news.append,
            record=self.record,
            assign=self.assign,
        )

    def prepare(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        found = prepare_new_topics(self.flow, self.source, self.target, self.targets, topics)
        self.targets = found.targets.without(gone)
        return self.targets

    def compare(self, before: TargetTopics) -> Comparison:
        return compare(self.flow, self.source, self.target, before)

    def assign(self, targets: TargetTopics, *_: object) -> None:
        self.assigned = set(targets.copyable)


@pytest.mark.parametrize("refresh_ms", [1_000, 60_000])
def test_new_topics_are_discovered_and_what_could_not_be_created_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refresh_ms: int
) -> None:
    """The first is found by discovery, the second by a comparison of all topics."""
    site = Site(tmp_path, monkeypatch, refresh_ms)
    site.b.set_moods({"refused": '{"a.orders-late": "not now"}'})
    with site.monitor():
        site.a.add_topic("orders-new", [5]).add_topic("orders-late", [5])
        eventually(lambda: "orders-new" in site.assigned, what="the new topic")
        site.b.set_moods({})
        if refresh_ms == 1_000:
            eventually(lambda: "orders-late" in site.assigned, what="the topic that could not be created")
    assert site.warned == []


def test_a_comparison_of_all_topics_delays_no_new_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds for thousands of topics, and may wait for a cluster: neither holds up anything, nor the end."""
    site = Site(tmp_path, monkeypatch, 1_000)
    began, released = threading.Event(), threading.Event()
    monkeypatch.setattr("mirror.spark.driver.stream_monitor._JOIN_S", 0.1)

    def slow(before: TargetTopics) -> Comparison:
        began.set()
        assert released.wait(60)
        return nothing_differs(before)

    try:
        with site.monitor(slow):
            eventually(began.is_set, what="a comparison")
            site.a.add_topic("orders-new", [5])
            eventually(lambda: "orders-new" in site.assigned, what="the new topic")
            assert not released.is_set()
    finally:
        released.set()
    assert site.warned == []


def test_an_error_of_several_threads_is_reported_once_and_met_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-580: a listing of all topics that fails after it was decoded is not repeated each second."""
    site = Site(tmp_path, monkeypatch, 1_000)
    waits = list[int]()

    class Counted(Backoff):
        def after(self, failures: int) -> int:
            waits.append(failures)
            super().after(failures)
            return 1

    def fail(*_: object) -> NoReturn:
        raise KafkaTimeout("cluster a does not answer")

    monkeypatch.setattr("mirror.spark.driver.stream_monitor.Backoff", Counted)
    monkeypatch.setattr(TopicWatch, "discover", fail)
    with site.monitor(fail):
        eventually(lambda: max(waits, default=0) >= 2, what="more failures in a row")
    assert site.warned == ["cluster a does not answer"]


def test_an_error_that_comes_back_after_the_control_record_was_read_again_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, monkeypatch, 60_000)
    failing, calls = threading.Event(), list[bool]()

    def sync(client: RunControlClient) -> Decision:
        fails = failing.is_set()
        if client._record is site.record:  # and not a run's that an earlier test has left
            calls.append(fails)
            if fails:
                raise KafkaTimeout("cluster b does not answer")
        return Decision()

    monkeypatch.setattr(RunControlClient, "sync", sync)
    failing.set()
    with site.monitor():
        eventually(lambda: len(site.warned) == 1, what="the first outage")
        failing.clear()
        eventually(lambda: calls[-2:] == [False, False], what="two calls that succeed")
        failing.set()
        eventually(lambda: len(site.warned) == 2, what=f"the second outage, {site.warned}")
    assert site.warned == ["cluster b does not answer"] * 2
