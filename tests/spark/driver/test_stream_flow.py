"""A stream as its driver sees it, by what the ledger says: here without Spark, since no query is needed for that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.spark.driver.console import Consoles
from mirror.spark.driver.stream_flow import StreamFlow
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.results import FlowReport
from tests.spark.datasource.test_epoch_planner import EpochsHarness, answer
from tests.spark.fakes import FOLDER, Admin

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EpochsHarness:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr("mirror.spark.datasource.epoch_planner.Admin", Admin)
    monkeypatch.setattr("mirror.spark.driver.stream_flow.record_epoch", lambda *_: None)
    return EpochsHarness(tmp_path)


def run_of(site: EpochsHarness) -> StreamFlow:
    config, flow = site.options.load()
    report = FlowReport("f", datetime.now(UTC))
    return StreamFlow(flow, config, site.options, report, consoles=Consoles(), telemetry=cast("Any", None))


def outcomes(run: StreamFlow) -> dict[tuple[str, int], tuple[Outcome, str | None]]:
    return {(one.topic, one.partition): (one.outcome, one.error) for one in run.report.partitions}


def test_a_stream_that_can_copy_nothing_reports_it_without_an_epoch(site: EpochsHarness) -> None:
    reason = "the brokers refuse it"
    site.ledger.write_targets(TargetTopics(copyable={"orders": 0}, obstacles={"orders": Obstacle(reason)}))
    run = run_of(site)
    assert not run.poll()
    site.epochs.plan(1, drains=False)
    assert run.poll()
    failed = (Outcome.FAILED, reason)
    assert outcomes(run) == {("orders", 0): failed, ("orders", 1): failed}
    assert not run.poll(), "nothing is new"
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    answer(site.ledger, plan)
    assert run.poll()
    assert outcomes(run) == {("orders", 0): (Outcome.COMPLETE, None), ("orders", 1): (Outcome.COMPLETE, None)}
