"""A stream as its driver sees it, by what the ledger says: here without Spark, since no query is needed for that."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.alignment.decision import Reason
from mirror.alignment.deletions import decision as deletion
from mirror.alignment.deletions.report import Deletion, DeletionReport
from mirror.alignment.permissions.report import AclReport
from mirror.alignment.report import AlignmentReport, Difference
from mirror.errors import ConnectionFailed, MirrorMakerResumed
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.stream_flow import StreamFlow
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.results import FlowReport, exit_status
from mirror.telemetry.metrics.metric_store import MetricStore
from tests.spark.epochs_harness import EpochsHarness, answer
from tests.spark.fakes import FOLDER, Admin

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EpochsHarness:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr("mirror.spark.datasource.epoch_planner.Admin", Admin)
    monkeypatch.setattr("mirror.spark.driver.flow_results.record_epoch", lambda *_, **__: None)
    return EpochsHarness(tmp_path)


REFUSED = Difference(topic="a.orders", key="k", wanted="1", target=None, reason=Reason.REFUSED)


def run_of(site: EpochsHarness) -> StreamFlow:
    config, flow = site.options.load()
    report, telemetry = FlowReport("f", datetime.now(UTC)), cast("Any", SimpleNamespace(metrics=MetricStore()))
    return StreamFlow(flow, config, site.options, report, consoles=Consoles(), telemetry=telemetry)


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


def test_addresses_that_cannot_be_read_do_not_keep_a_stream_from_starting(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for messages only."""

    def fail(*_: object) -> None:
        raise ConnectionFailed("away")

    monkeypatch.setattr("mirror.spark.driver.stream_flow.open_admins", fail)
    run_of(site)._learn_addresses()


def test_the_first_moment_at_which_a_stream_is_to_end_is_kept(site: EpochsHarness) -> None:
    run = run_of(site)
    run._query = cast("Any", SimpleNamespace(isActive=True, status={"isDataAvailable": True}, stop=lambda: None))
    monitor = run._monitor = cast("Any", SimpleNamespace(stop_requested=False, fenced_by=None))
    run.wind_up(0.0)
    assert run.report.asked is None
    monitor.stop_requested = True
    run.wind_up(0.1)
    first = run.report.asked
    run.wind_up(0.2)
    assert run.report.asked is first is not None


def test_a_stream_that_ends_because_mirrormaker_copies_again_has_failed(site: EpochsHarness) -> None:
    run = run_of(site)
    run._monitor = cast("Any", SimpleNamespace(stop_requested=True, fenced_by=None))
    assert run.ended_in_order
    run._watch = cast("Any", SimpleNamespace(resumed="it copies again"))
    assert not run.ended_in_order
    error = run._failure()
    assert isinstance(error, MirrorMakerResumed)
    assert str(error) == "it copies again"
    run.report.failed(error, str(error))
    assert run._failure() is None, "it is reported once"
    assert (run.report.outcome, exit_status([run.report])) == (Outcome.FAILED, 4)


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


def test_what_a_stream_has_caught_up_with_is_its_rate_in_the_ledger(site: EpochsHarness) -> None:
    run = run_of(site)
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    span = {"name": "mirror.catch_up", "began_ms": 0, "ended_ms": 4_000, "bytes": 20_000_000}
    (first, *others) = [RangeResult.initial(one, one.start, Outcome.COMPLETE) for one in plan.ranges]
    first.timeline = CopyTimeline(spans=[span])
    site.ledger.write_attempts([Attempt(0, 0, one) for one in (first, *others)], 1)
    run._collect(1)
    assert site.ledger.rate() == (20_000_000, 4.0)


def test_rounds_about_acls_leave_what_is_in_step_unless_there_are_none(site: EpochsHarness) -> None:
    run = run_of(site)
    run._rounds.on_acls(AclReport(off="no authorizer", time_ms=5))
    assert (run.report.to_json()["acls"]["off"], dict(run.report.sync_state.kinds)) == ("no authorizer", {})
    run._rounds.on_acls(AclReport(problems=("no answer",), time_ms=7))
    found = site.ledger.sync()
    assert found is not None
    assert dict(found.kinds["acls"].by_reason) == {"not-compared": 1}


def test_rounds_and_epochs_leave_what_is_in_step_in_the_summary_the_ledger_and_the_metrics(site: EpochsHarness) -> None:
    keys = 'configs = "sync"\non-topic-deleted = "delete"'
    site.config.write_text(site.config.read_text().replace('configs = "create"', keys))
    run = run_of(site)
    run._rounds.on_alignment(AlignmentReport(problems=("no answer",), time_ms=5))
    kept = DeletionReport((Deletion(topic="a.x", source="x", reason=deletion.Reason.OVER_LIMIT),))
    run._rounds.on_alignment(AlignmentReport(differences=(REFUSED,), time_ms=7, deletions=kept))
    run._rounds.on_prepared(TargetTopics(obstacles={"orders": Obstacle("no")}))
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    answer(site.ledger, plan, skipped={"not-local": 4, "control": 1})
    run.poll()
    found = site.ledger.sync()
    assert found == run.report.sync_state
    assert {kind: dict(state.by_reason) for kind, state in found.kinds.items()} == {
        "configs": {"refused": 1},
        "deletions": {"over-limit": 1},
        "topics": {"cannot-be-copied": 1},
    }
    assert (found.kinds["configs"].synced_ms, found.not_local) == (7, 8)
    assert run.report.to_json()["sync"] == found.to_json()
    points = {instrument.name: points for instrument, points in run._telemetry.metrics.points()}
    assert {point.attributes[1:]: point.value for point in points["mirror.drift"]} == {
        (("kind", "configs"), ("reason", "refused")): 1,
        (("kind", "deletions"), ("reason", "over-limit")): 1,
        (("kind", "topics"), ("reason", "cannot-be-copied")): 1,
    }
    assert len(points["mirror.sync.last"]) == 3
