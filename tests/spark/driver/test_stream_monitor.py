"""A stream hears that another run has taken over, whenever that happens: its query would wait for ever otherwise."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from mirror.relay.progress.control import POLL_INTERVAL_MS, RunControl
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.spark.run_control import RunControlClient
from tests.polling import eventually
from tests.spark.epochs_harness import CONFIG, new_epochs_harness
from tests.spark.fakes import FOLDER, Admin, Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror import client
    from mirror.client import TopicDescription
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
    def prepare(*_: object) -> TargetTopics:
        return TargetTopics()

    return StreamMonitor(options, Ledger(options.ledger), prepare, lambda _: None, lambda _: None, claimed=claimed)


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


def test_a_run_that_copies_what_there_is_ends_no_epoch_for_new_topics(
    options: FlowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end with partitions that are not complete: it repeats none."""
    reads, prepared = list[int](), list[object]()

    class Counted(RunControlClient):
        def read(self, timeout_ms: int = 0) -> RunControl | None:
            reads.append(timeout_ms)
            return super().read(timeout_ms)

    def prepare(*given: object) -> TargetTopics:
        prepared.append(given)
        return TargetTopics()

    monkeypatch.setattr("mirror.spark.driver.stream_monitor.RunControlClient", Counted)
    options.config.write_text(CONFIG + "refresh-ms = 1000\n")
    ledger, ignore = Ledger(options.ledger), list[str]().append
    monitor = StreamMonitor(options, ledger, prepare, ignore, ignore, claimed=True, finds_topics=False)
    with monitor:
        eventually(lambda: len(reads) > 3, what="control commands, which are followed all the same")
    assert prepared == []


@pytest.mark.parametrize("refresh_ms", [1_000, 60_000])
def test_new_topics_are_looked_for_and_what_could_not_be_created_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refresh_ms: int
) -> None:
    """The first is found by a look, the second by a preparation of all topics."""
    site = new_epochs_harness(tmp_path, monkeypatch)
    monkeypatch.setattr("mirror.spark.driver.stream_monitor.Admin", Admin)
    site.config.write_text(f"{CONFIG.replace('orders', 'orders.*')}refresh-ms = {refresh_ms}\n")
    source, target = (cast("client.Admin", Admin({"bootstrap.servers": f"{name}:1"})) for name in "ab")
    warned = list[str]()

    def prepare(_: object, flow: FlowConfig, topics: Mapping[str, TopicDescription] | None) -> TargetTopics:
        found = prepare_topics(flow, source, target, site.ledger.targets(), topics).targets
        site.ledger.write_targets(found)
        return found

    prepare(None, site.options.load()[1], None)
    control = site.orders("run-1")
    control.claim()
    assert site.epochs.plan(1, drains=False) is not None
    site.b.set_moods({"refused": '{"a.orders-late": "not now"}'})

    def added(count: int) -> bool:
        record = control.read()
        return record is not None and record.added == count

    monitor = StreamMonitor(site.options, site.ledger, prepare, warned.append, warned.append, claimed=True)
    with monitor:
        site.a.add_topic("orders-new", [5]).add_topic("orders-late", [5])
        eventually(lambda: added(1), what="the new topic")
        site.b.set_moods({})
        if refresh_ms == 1_000:
            eventually(lambda: added(2), what="the topic that could not be created")
    assert [line for line in warned if "copied from now on" not in line] == []
