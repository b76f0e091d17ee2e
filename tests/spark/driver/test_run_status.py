"""Runs and commands on different hosts know of one another by the flow's status topic. Brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

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
from mirror.spark.ledger.evidence_files import read_evidence, read_verification, write_verification
from mirror.spark.ledger.evidence_values import verification_value
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.status_table import StatusTable, read_status
from mirror.telemetry.evidence import LastVerification
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
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePair]:
    pair = FakePair(monkeypatch)
    yield pair
    pair.target.control.clear()
    while Run.made:
        Run.made.pop().status.close()


class Run:
    """A run with a report folder of its own."""

    made: ClassVar[list[Run]] = []

    def __init__(self, pair: FakePair, folder: Path, name: str) -> None:
        self.options: dict[str, Any] = {"bootstrap.servers": pair.target.bootstrap}
        self.folder = folder / name
        self.said: list[str] = []
        self.status = RunStatus(self.options, LIMITED, name, self.said.append)
        self.made.append(self)
        self.status.read(self.folder)

    @property
    def table(self) -> StatusTable:
        return self.status.table

    def end(self, plan: Plan, *attempts: Attempt) -> None:
        self.status.copied(plan, attempts)
        self.status.report_state("ended", "why")
        self.status.close()


PLAN = Plan(flow=FLOW, tasks=[[backlog(0, 5)]], results_without_task=[])
ZERO = TopicPartition("t", 0)


def test_a_run_with_another_report_folder_knows_turns_failures_and_obstacles(pair: FakePair, tmp_path: Path) -> None:
    first, tp = Run(pair, tmp_path, "run-1"), TopicPartition("t", 0)
    first.status.prepared(TargetTopics(obstacles={"u": Obstacle("refused")}))
    first.status.planned(PLAN)
    first.end(PLAN, Attempt(0, 0, result(0, Outcome.EXPIRED, stuck_since_ms=1_700_000_000_000)))
    assert first.said == []
    second = Run(pair, tmp_path, "run-2")
    assert second.table.turns.keys() == {tp}
    assert second.table.health[tp].stuck_since_ms == 1_700_000_000_000
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


def test_a_topic_without_permissions_is_named(pair: FakePair, tmp_path: Path) -> None:
    write_something(pair)
    refuse(pair, Api.FETCH, None)
    refuse(pair, Api.PRODUCE, None)
    run = Run(pair, tmp_path, "run-1")
    assert run.table == StatusTable()
    run.status.report_state("running")
    run.end(PLAN)
    unread, unwritten = run.said
    assert "so it is not known what has failed" in unread
    assert "other hosts will not know of this run" in unwritten


def refuse(pair: FakePair, api: Api, times: int | None) -> None:
    tp = TopicPartition(status_topic_of(FLOW), 0)
    pair.target.control.on(api, Action(errors={tp: errors.TOPIC_AUTHORIZATION_FAILED}), times=times)


def test_a_run_that_could_not_read_at_first_deletes_what_is_over(pair: FakePair, tmp_path: Path) -> None:
    first = Run(pair, tmp_path, "run-1")
    first.status.prepared(TargetTopics(obstacles={"u": Obstacle("refused")}))
    first.end(PLAN, Attempt(0, 0, result(0, Outcome.FAILED)))
    refuse(pair, Api.FETCH, 1)
    second = Run(pair, tmp_path, "run-2")
    assert len(second.said) == 1
    refuse(pair, Api.PRODUCE, None)
    second.status.prepared(TargetTopics())
    second.status.planned(PLAN)
    turns = dict(second.table.turns)
    second.status.copied(PLAN, [Attempt(0, 0, result(0))])
    assert second.table.turns == turns, "they are not written yet"
    pair.target.control.clear()
    second.end(PLAN, Attempt(0, 0, result(0)))
    after = read_status(second.options, FLOW, 5_000)
    assert (after.health, after.obstacles, after.turns) == ({}, {}, turns)


def test_a_run_tries_seldom_to_read_what_it_may_not(pair: FakePair, tmp_path: Path) -> None:
    write_something(pair)
    refuse(pair, Api.FETCH, None)
    run = Run(pair, tmp_path, "run-1")
    run.status.copied(PLAN, [])
    pair.target.control.clear()
    run.status.copied(PLAN, [])
    assert run.table.run is None, "only the first one tried again"
    assert len(run.said) == 1


def test_a_run_waits_three_seconds_for_a_topic_whose_leader_is_away(pair: FakePair, tmp_path: Path) -> None:
    away = Action(errors={TopicPartition(status_topic_of(FLOW), 0): errors.LEADER_NOT_AVAILABLE})
    pair.target.control.on(Api.LIST_OFFSETS, away, times=None)
    (unread,) = Run(pair, tmp_path, "run-1").said
    assert "within 3000 ms" in unread


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


@pytest.mark.parametrize(("in_topic", "in_folder"), [(5, 9), (9, 5)])
def test_a_verification_that_was_equal_is_the_last_one_of_topic_and_folder(
    pair: FakePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_topic: int, in_folder: int
) -> None:
    monkeypatch.setattr("mirror.spark.driver.verify_job.catch_signals", lambda: None)
    earlier = [LastVerification(time_ms=equal_ms, equal_ms=equal_ms) for equal_ms in (in_topic, in_folder)]
    value = {status_values.VERIFICATION: verification_value(earlier[0])}
    assert write_status({"bootstrap.servers": pair.target.bootstrap}, FLOW, value, 5_000) is None
    write_verification(tmp_path / "verify", FLOW, earlier[1])
    audit = Audit(pair, tmp_path)
    verify(["--config", str(audit.config), "--report-dir", str(tmp_path / "verify"), "--from", "2020-01-01T00:00:00Z"])
    found = read_verification(tmp_path / "verify", FLOW)
    assert found is not None
    assert (found.partial, found.equal_ms) == (True, 9)


def test_errors_that_no_task_has_reported_are_reported_and_taken_back(pair: FakePair, tmp_path: Path) -> None:
    """Of partitions that no task can copy, and of tasks that could not begin."""
    run = Run(pair, tmp_path, "run-1")
    failed = result(1, Outcome.FAILED, error="no leader")
    plan = Plan(flow=FLOW, tasks=[[backlog(0, 5)]], results_without_task=[failed])
    run.status.planned(plan)
    run.status.returned(plan, [Attempt(0, 0, result(0, Outcome.FAILED, error="no permission"))])
    run.status.close()
    found = read_status(run.options, FLOW, 5_000).partitions.values()
    assert {(one.report.result.partition, one.report.result.error) for one in found} == {
        (0, "no permission"),
        (1, "no leader"),
    }
    second = Run(pair, tmp_path, "run-2")
    second.status.planned(replace(plan, results_without_task=[result(1)]))
    second.status.close()
    found = read_status(run.options, FLOW, 5_000).partitions.values()
    errors_of = {one.report.result.partition: one.report.result.error for one in found}
    assert errors_of == {0: "no permission", 1: None}
