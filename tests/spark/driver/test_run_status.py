"""Runs and commands on different hosts know of one another by the flow's status topic. Brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress import status_values
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.relay.progress.status_topic import write_status
from mirror.relay.progress.status_values import RunState
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.driver.verify_job import main as verify
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.evidence_files import read_evidence, read_verification, write_verification
from mirror.spark.ledger.evidence_values import verification_value
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.status_table import StatusTable, read_status
from mirror.spark.planning.history import read_history
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


def an_earlier_run(folder: Path, found: RangeResult, name: str = "run-0") -> None:
    """Leave the ledger of a run on this host, which planned and copied partition 0."""
    ledger = Ledger.open(folder, FLOW, name)
    ledger.write_plan(PLAN)
    ledger.write_attempts([Attempt(0, 0, found)], 0)


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
    refuse(pair, Api.FETCH, None)
    refuse(pair, Api.PRODUCE, None)
    an_earlier_run(tmp_path / "run-1", result(0, Outcome.FAILED))
    run = Run(pair, tmp_path, "run-1")
    assert (list(run.table.turns), list(run.table.health)) == ([ZERO], [ZERO])
    run.status.report_state("running")
    run.end(PLAN)
    unread, unwritten = run.said
    assert "the report folder says what earlier runs did" in unread
    assert "other hosts will not know of this run" in unwritten


def refuse(pair: FakePair, api: Api, times: int | None) -> None:
    tp = TopicPartition(status_topic_of(FLOW), 0)
    pair.target.control.on(api, Action(errors={tp: errors.TOPIC_AUTHORIZATION_FAILED}), times=times)


@pytest.mark.parametrize("kind", ["no topic", "an empty topic", "one that runs may not write"])
def test_a_topic_without_reports_takes_no_turn_and_no_failure_from_the_ledger(
    pair: FakePair, tmp_path: Path, kind: str
) -> None:
    an_earlier_run(tmp_path / "run-1", result(0, Outcome.FAILED))
    if kind == "no topic":
        del pair.target.topics[status_topic_of(FLOW)]
    if kind == "one that runs may not write":
        refuse(pair, Api.PRODUCE, None)
    run = Run(pair, tmp_path, "run-1")
    history = read_history(LIMITED, tmp_path, "run-1", run.table)
    assert (list(history.last_planned_ms), list(history.unhealthy)) == ([ZERO], [ZERO])
    run.status.close()
    other_host = Run(pair, tmp_path, "run-2")
    is_known = kind == "an empty topic"
    assert (ZERO in other_host.table.turns, ZERO in other_host.table.health) == (is_known, is_known)


def test_the_newest_of_the_topic_and_of_the_ledger_counts(pair: FakePair, tmp_path: Path) -> None:
    an_earlier_run(tmp_path / "run-2", result(0, Outcome.FAILED))
    first = Run(pair, tmp_path, "run-1")
    first.status.report_state("running")
    first.status.planned(PLAN)
    turn_ms = first.table.turns[ZERO]
    first.end(PLAN, Attempt(0, 0, result(0)))
    second = Run(pair, tmp_path, "run-2")
    assert (second.table.turns, second.table.health) == ({ZERO: turn_ms}, {}), "of another host, later"
    second.status.report_state("running")
    second.end(PLAN, Attempt(0, 0, result(0, Outcome.FAILED)))
    an_earlier_run(tmp_path / "run-4", result(0), "run-3")
    assert Run(pair, tmp_path, "run-4").table.health == {}, "it recovered in a run that could not write"


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
