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
from tests.spark.epochs_harness import EpochsHarness, answer
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


class LateWorker:
    """A query whose planning process did not start in time."""

    isActive = False  # noqa: N815 - Spark's name

    def exception(self) -> Exception:
        return RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")


def test_query_whose_planning_process_starts_too_late_is_started_for_two_minutes(site: EpochsHarness) -> None:
    """Spark waits 10 s each time. A scheduler would only start all of the driver again, which takes longer."""
    run, starts = run_of(site), list[LateWorker]()

    def start() -> LateWorker:
        starts.append(LateWorker())
        return starts[-1]

    run._start = cast("Any", start)
    run._start_query()
    while not run.ended():
        assert run._failure() is not None
    assert len(starts) == 12
    assert "too short 12 times: this machine is too busy" in str(run._failure())


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
