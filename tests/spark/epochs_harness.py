"""A stream's epochs on fake clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource import epoch_planner
from mirror.spark.datasource.epoch_planner import EpochPlanner
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.datasource.stream_reader import RangesStreamReader
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.run_control import RunControlClient
from tests.spark.fakes import Admin
from tests.spark.flow_harness import FlowHarness, configuration, use_fakes

CONFIG = configuration("orders")


class EpochsHarness(FlowHarness):
    """A flow with a ledger."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "orders")
        self.a.add_topic("orders", [10, 20])
        self.b.add_topic("a.orders", [0, 0])
        self.ledger = Ledger.open(folder, "f", "run-1")
        self.options = FlowOptions(self.config, "f", self.ledger.path, run="run-1")
        self.epochs = EpochPlanner(self.options, self.ledger, SystemClock())

    def orders(self, run: str = "") -> RunControlClient:
        return RunControlClient(Admin({"bootstrap.servers": "b:1"}), "f", run)  # type: ignore[arg-type]  # what is used of it

    def reader(self) -> RangesStreamReader:
        return RangesStreamReader(self.options)


def answer(ledger: Ledger, plan: Plan, outcome: Outcome = Outcome.COMPLETE, **more: object) -> None:
    """All ranges of ``plan`` ended so."""
    results = [RangeResult.initial(one, one.start, outcome) for one in plan.ranges]
    for one in results:
        for name, value in more.items():
            setattr(one, name, value)
    ledger.write_attempts([Attempt(0, 0, one) for one in results], plan.epoch)


def new_epochs_harness(folder: Path, monkeypatch: pytest.MonkeyPatch) -> EpochsHarness:
    """Return the harness, with fake clusters in ``folder``."""
    use_fakes(folder, monkeypatch, epoch_planner)
    return EpochsHarness(folder)
