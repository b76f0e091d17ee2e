"""A stream learns that another run has taken over, whenever that happens: its job would run for ever otherwise."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from mirror.relay.progress.control import POLL_INTERVAL_MS, RunControl
from mirror.spark.control_decision import Decision
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.run_control import RunControlClient, RunRecord
from tests.polling import eventually
from tests.spark.fakes import FOLDER, Admin, Cluster
from tests.spark.flow_harness import configuration

if TYPE_CHECKING:
    from mirror import client
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
    def ignore(_: str) -> None:
        pass

    record = RunRecord(options.run)
    record.claimed = claimed
    return StreamMonitor(
        *options.load(),
        ignore,
        ignore,
        record=record,
        watch=cast("MirrorMakerWatch | None", mirrormaker),
    )


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
