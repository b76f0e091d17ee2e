"""A stream hears that another run has taken over, whenever that happens: its query would wait for ever otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.relay.orders import Orders
from mirror.spark.ledger import Ledger
from mirror.spark.options import FlowOptions
from mirror.spark.run_orders import RunOrders
from mirror.spark.stream_watch import StreamWatch
from tests.polling import eventually
from tests.spark.fakes import FOLDER, Admin, Cluster
from tests.spark.test_epochs import CONFIG


def orders(run: str) -> RunOrders:
    return RunOrders(Admin({"bootstrap.servers": "b:1"}), "f", run)  # type: ignore[arg-type]  # what is used of it


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowOptions:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr("mirror.spark.stream_watch.Admin", Admin)
    for name in "ab":
        Cluster(f"{name}:1", tmp_path).make()
    config = tmp_path / "mirror.toml"
    config.write_text(CONFIG)
    return FlowOptions(config, "f", Ledger.open(tmp_path, "f", "run-2").path, run="run-2")


def watch(options: FlowOptions, *, claimed: bool) -> StreamWatch:
    return StreamWatch(options, Ledger(options.ledger), lambda *_: None, lambda _: None, claimed=claimed)


@pytest.mark.parametrize("other", ["run-3", "run-1, of a host whose clock is behind"])
def test_another_run_that_takes_over_before_the_first_look_is_heard_of(options: FlowOptions, other: str) -> None:
    orders("run-2").claim()
    orders(other).claim()
    with watch(options, claimed=True) as one:
        eventually(lambda: one.fenced_by is not None, what="the word of the other run")
    assert one.fenced_by is not None
    assert one.fenced_by.run == other


def test_a_later_run_is_heard_of_also_where_the_flow_could_not_be_claimed(options: FlowOptions) -> None:
    orders("run-3").claim()
    with watch(options, claimed=False) as one:
        eventually(lambda: one.fenced_by is not None, what="the word of the later run")


def test_what_a_run_that_died_left_behind_shuts_nobody_out(
    options: FlowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[Orders | None]()

    class Counted(RunOrders):
        def read(self, timeout_ms: int = 0) -> Orders | None:
            looks.append(super().read(timeout_ms))
            return looks[-1]

    monkeypatch.setattr("mirror.spark.stream_watch.RunOrders", Counted)
    orders("run-1").claim()
    with watch(options, claimed=False) as one:
        eventually(lambda: len(looks) > 1, what="two looks")  # the first is over by then
        assert one.fenced_by is None
