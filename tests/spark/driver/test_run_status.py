"""Runs and commands on different hosts know of one another by the flow's status topic. Brokers in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress import status_values
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.relay.progress.status_topic import write_status
from mirror.relay.progress.status_values import RunState
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.driver.verify_job import main as verify
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.evidence_files import read_evidence
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.status_table import StatusTable, read_status
from mirror.spark.planning.history import read_history
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow
from tests.spark.verification.test_verify_on_fakes import Audit

LIMITED = flow(name=FLOW, max_partitions_in_parallel=1)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


class Run:
    """A run with a report folder of its own."""

    def __init__(self, pair: FakePair, folder: Path, name: str) -> None:
        self.options: dict[str, Any] = {"bootstrap.servers": pair.target.bootstrap}
        self.folder = folder / name
        self.said: list[str] = []
        self.status = RunStatus(self.options, LIMITED, name, self.said.append)
        self.status.read(self.folder)

    @property
    def table(self) -> StatusTable:
        assert self.status.table is not None
        return self.status.table

    def end(self, plan: Plan, *attempts: Attempt) -> None:
        self.status.copied(plan, attempts)
        self.status.report_state("ended", "why")
        self.status.close()


PLAN = Plan(flow=FLOW, tasks=[[backlog(0, 5)]], results_without_task=[])


def test_a_run_with_another_report_folder_knows_turns_failures_and_obstacles(pair: FakePair, tmp_path: Path) -> None:
    first, tp = Run(pair, tmp_path, "run-1"), TopicPartition("t", 0)
    first.status.prepared(TargetTopics(obstacles={"u": Obstacle("refused")}))
    first.status.planned(PLAN)
    first.end(PLAN, Attempt(0, 0, result(0, Outcome.EXPIRED, stuck_since_ms=1_700_000_000_000)))
    assert first.said == []
    second = Run(pair, tmp_path, "run-2")
    history = read_history(LIMITED, second.folder, "run-2", second.status.table)
    assert history.last_planned_ms.keys() == {tp}
    assert history.unhealthy[tp].stuck_since_ms == 1_700_000_000_000
    assert second.table.obstacles == {"u": Obstacle("refused")}
    assert second.table.run is not None
    assert (second.table.run.run, second.table.run.state, second.table.run.reason) == ("run-1", "ended", "why")
    second.status.prepared(TargetTopics())
    second.end(PLAN, Attempt(0, 0, result(0)))
    after = read_status(second.options, FLOW, 5_000)
    assert (after.health, after.obstacles, list(after.turns)) == ({}, {}, [tp])


def write_something(pair: FakePair) -> None:
    records = {status_values.RUN: RunState(run="r", since_ms=1).to_json()}
    assert write_status({"bootstrap.servers": pair.target.bootstrap}, FLOW, records, 5_000) is None


def test_a_topic_without_permissions_is_named_and_the_folder_is_read(pair: FakePair, tmp_path: Path) -> None:
    write_something(pair)
    refused = Action(errors={TopicPartition(status_topic_of(FLOW), 0): errors.TOPIC_AUTHORIZATION_FAILED})
    pair.target.control.on(Api.FETCH, refused, times=None)
    pair.target.control.on(Api.PRODUCE, refused, times=None)
    run = Run(pair, tmp_path, "run-1")
    assert run.status.table is None
    run.status.report_state("running")
    run.end(PLAN)
    unread, unwritten = run.said
    assert "the report folder says what earlier runs did" in unread
    assert "other hosts will not know of this run" in unwritten


def test_a_run_whose_topic_could_not_be_created_does_not_wait_for_it(pair: FakePair, tmp_path: Path) -> None:
    del pair.target.topics[status_topic_of(FLOW)]
    run = Run(pair, tmp_path, "run-1")
    run.status.report_state("running")
    run.status.planned(PLAN)
    run.end(PLAN)
    assert run.said == []
    assert run.status._writer._thread is None


def test_a_verification_with_another_report_folder_reaches_the_next_run(
    pair: FakePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror.spark.driver.verify_job.catch_signals", lambda: None)
    audit = Audit(pair, tmp_path)
    verify(["--config", str(audit.config), "--report-dir", str(tmp_path / "elsewhere" / "verify")])
    Run(pair, tmp_path, "here").end(PLAN)
    found = read_evidence(tmp_path / "here", FLOW).verification
    assert found is not None
    assert found == read_evidence(tmp_path / "elsewhere", FLOW).verification
