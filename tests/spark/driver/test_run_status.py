"""Runs and commands on different hosts know of one another by the flow's status topic. Brokers in memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mirror.client import TopicPartition
from mirror.config.models import FlowConfig
from mirror.errors import AuthorizationFailed, KafkaTimeout
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress import status_values
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.relay.progress.status_topic import StatusFollower, StatusNews, StatusWriter, write_status
from mirror.relay.progress.status_values import RunState
from mirror.spark.driver import run_status
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.driver.verify_job import main as verify
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.confirmation import Confirmed
from mirror.spark.ledger.initial_partitions import InitialPartitions, Selection
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.status_table import Reported, StatusTable, read_status
from mirror.spark.ledger.topic_obstacles import Obstacle, TargetTopics
from mirror.telemetry.evidence import LastVerification
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair
from tests.relay.progress.test_status_values import REPORT
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow
from tests.spark.verification.test_verify_on_fakes import Audit

LIMITED = flow(name=FLOW, max_partitions_in_parallel=1)
UNLIMITED = flow(name=FLOW)
LATEST = flow(name=FLOW, topics=("t", "new", "gone"), start="latest")


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

    def __init__(
        self, pair: FakePair, name: str, warned_of: str = "", flow: FlowConfig = LIMITED, *, reads: bool = True
    ) -> None:
        self.options: dict[str, Any] = {"bootstrap.servers": pair.target.bootstrap}
        self.said: list[str] = []
        self.status = RunStatus(self.options, flow, name, self.said.append, None, warned_of.__eq__)
        self.made.append(self)
        if reads:
            self.status.read()

    @property
    def table(self) -> StatusTable:
        return self.status.table

    def end(self, plan: Plan, *attempts: AttemptResult) -> None:
        self.status.copied(plan, attempts)
        self.status.report_state("ended", "why")
        self.status.close()


class HeldReading:
    """Readings of the status topic wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        news = StatusFollower.news

        def held(follower: StatusFollower, stall_ms: int) -> StatusNews:
            self.go_on.wait()
            return news(follower, stall_ms)

        monkeypatch.setattr(StatusFollower, "news", held)


PLAN = Plan(flow=FLOW, tasks=[[backlog(0, 5)]], results_without_task=[])
ZERO = TopicPartition("t", 0)


def test_a_run_with_another_report_folder_knows_turns_failures_and_obstacles(pair: FakePair) -> None:
    first, tp = Run(pair, "run-1"), TopicPartition("t", 0)
    first.status.prepared(TargetTopics(obstacles={"u": Obstacle("refused")}))
    first.status.planned(PLAN)
    first.end(PLAN, AttemptResult(0, 0, result(0, Outcome.EXPIRED, stuck_since_ms=1_700_000_000_000)))
    assert first.said == []
    second = Run(pair, "run-2")
    assert second.table.turns.keys() == {tp}
    assert second.table.health[tp].stuck_since_ms == 1_700_000_000_000
    assert second.table.obstacles == {"u": Obstacle("refused")}
    assert second.table.run is not None
    assert (second.table.run.run, second.table.run.state, second.table.run.reason) == ("run-1", "ended", "why")
    second.status.prepared(TargetTopics())
    second.end(PLAN, AttemptResult(0, 0, result(0)))
    after = read_status(second.options, FLOW, 5_000)
    assert (after.health, after.obstacles, list(after.turns)) == ({}, {}, [tp])


def test_when_a_run_was_complete_outlives_later_ones_that_are_not(pair: FakePair) -> None:
    write_something(pair)
    found, confirmed = [], []
    for name, outcome in (("run-1", Outcome.COMPLETE), ("run-2", Outcome.EXPIRED), ("run-3", Outcome.COMPLETE)):
        run = Run(pair, name, flow=UNLIMITED)
        run.status.report_state("running")
        run.status.report_state("ended", outcome.value)
        run.status.close()
        state = read_status(run.options, FLOW, 5_000).run
        assert state is not None
        assert not state.follows
        found.append((state.complete_ms, state.since_ms))
        confirmed.append(read_status(run.options, FLOW, 5_000).confirmed)
    first, second, third = found
    assert first[0] == first[1] > 0
    assert second[0] == first[0]
    assert third[0] == third[1] >= second[1]
    early, same, late = confirmed
    assert early is not None
    assert late is not None
    assert 0 < early.since_ms <= first[1] <= late.since_ms <= third[1]
    assert same == early, "it has not come to the end"


def test_a_run_that_copies_only_so_much_confirms_nothing(pair: FakePair) -> None:
    write_something(pair)
    run = Run(pair, "run-1")
    run.status.report_state("ended", Outcome.COMPLETE.value)
    run.status.close()
    assert read_status(run.options, FLOW, 5_000).confirmed is None


def test_a_run_that_ends_at_a_position_confirms_nothing(pair: FakePair) -> None:
    write_something(pair)
    run = Run(pair, "run-1", flow=flow(name=FLOW, until=10))
    run.status.report_state("ended", Outcome.COMPLETE.value)
    run.status.close()
    assert read_status(run.options, FLOW, 5_000).confirmed is None


def test_a_complete_run_confirms_no_more_than_its_plan_has_seen(pair: FakePair) -> None:
    write_something(pair)
    gone = TopicPartition("t", REPORT.result.partition)
    first = Run(pair, "run-1", flow=UNLIMITED)
    first.status._known.partitions[gone] = Reported(replace(REPORT, target=gone), 1)
    held = TopicPartition("u", 1)
    open_ = OpenTransaction(topic="u", partition=1, offset=1, records=1, seen_ms=9, since_ms=9, start_ms=4)
    first.status.planned(Plan(flow=FLOW, tasks=[], results_without_task=[], withheld={held: open_}))
    first.status.report_state("ended", Outcome.COMPLETE.value)
    first.status.close()
    found = read_status(first.options, FLOW, 5_000).confirmed
    assert found is not None
    source = TopicPartition(REPORT.result.topic, REPORT.result.partition)
    assert found.behind == {str(held): 4, str(source): 0}
    assert found.since_ms > 0


@pytest.mark.parametrize("confirmed_ms", [0, 7])
def test_what_a_run_does_not_see_is_not_confirmed_by_the_one_after_the_next(pair: FakePair, confirmed_ms: int) -> None:
    write_something(pair)
    source = TopicPartition(REPORT.result.topic, REPORT.result.partition)
    if confirmed_ms:
        records = {status_values.CONFIRMED: Confirmed(since_ms=confirmed_ms)}
        assert write_status({"bootstrap.servers": pair.target.bootstrap}, FLOW, records, 5_000) is None
    first = Run(pair, "run-1", flow=UNLIMITED)
    gone = TopicPartition("t", REPORT.result.partition)
    first.status._known.partitions[gone] = Reported(replace(REPORT, target=gone), 1)
    sees_nothing = Plan(flow=FLOW, tasks=[], results_without_task=[])
    first.status.planned(sees_nothing)
    first.status.close()  # it was killed
    second = Run(pair, "run-2", flow=UNLIMITED)
    second.status.planned(sees_nothing)
    second.status.report_state("ended", Outcome.COMPLETE.value)
    second.status.close()
    found = read_status(second.options, FLOW, 5_000).confirmed
    assert found is not None
    assert (found.behind, found.since_ms > confirmed_ms) == ({str(source): confirmed_ms}, True)


def write_something(pair: FakePair) -> None:
    records = {status_values.RUN: RunState(run="r", since_ms=1)}
    assert write_status({"bootstrap.servers": pair.target.bootstrap}, FLOW, records, 5_000) is None


def test_a_topic_that_is_denied_is_one_line_with_what_to_grant(pair: FakePair) -> None:
    write_something(pair)
    refuse(pair, Api.FETCH, None)
    refuse(pair, Api.PRODUCE, None)
    run = Run(pair, "run-1")
    assert run.table == StatusTable()
    run.status.report_state("running")
    run.end(PLAN)
    (line,) = run.said
    assert "so it is not known what has failed" in line
    assert f"grant Describe, Read and Write on topic {status_topic_of(FLOW)}" in line


def test_a_topic_whose_records_are_denied_is_named_unless_the_checks_have_warned_of_it(pair: FakePair) -> None:
    write_something(pair)
    refuse(pair, Api.PRODUCE, None)
    run = Run(pair, "run-1")
    run.end(PLAN)
    (line,) = run.said
    assert "other hosts will not know of this run" in line
    run = Run(pair, "run-2", warned_of=status_topic_of(FLOW))
    run.end(PLAN)
    assert run.said == []


def refuse(pair: FakePair, api: Api, times: int | None) -> None:
    tp = TopicPartition(status_topic_of(FLOW), 0)
    pair.target.control.on(api, Action(errors={tp: errors.TOPIC_AUTHORIZATION_FAILED}), times=times)


def test_a_run_that_could_not_read_at_first_deletes_what_is_over(pair: FakePair) -> None:
    first = Run(pair, "run-1")
    first.status.prepared(TargetTopics(obstacles={"u": Obstacle("refused")}))
    first.end(PLAN, AttemptResult(0, 0, result(0, Outcome.FAILED)))
    refuse(pair, Api.FETCH, None)
    second = Run(pair, "run-2")
    assert len(second.said) == 1
    refuse(pair, Api.PRODUCE, None)
    second.status.prepared(TargetTopics())
    second.status.planned(PLAN)
    turns = dict(second.table.turns)
    assert turns
    pair.target.control.clear()
    eventually(lambda: second.table.health)
    assert second.table.turns == turns, "they need not be written yet"
    second.end(PLAN, AttemptResult(0, 0, result(0)))
    after = read_status(second.options, FLOW, 5_000)
    assert (after.health, after.obstacles, after.turns) == ({}, {}, turns)
    assert len(second.said) == 1, "it is said once"


def test_one_client_of_the_driver_follows_the_topic_for_all_that_need_to_know(pair: FakePair) -> None:
    run, heard = Run(pair, "run-1"), list[StatusNews]()
    run.status.on_news = heard.append
    report = replace(REPORT, result=replace(REPORT.result, flow=FLOW, error="refused", outcome=Outcome.FAILED))
    writer = StatusWriter(run.options, FLOW)
    writer.send(report)
    assert writer.close(5_000) is None
    eventually(lambda: [one for news in heard for one in news.partitions] == [report])
    eventually(lambda: not heard[-1].records, what="a tick without news")
    table, unread = run.status.snapshot()
    tp = TopicPartition("t", 3)
    assert (unread, table.failures()[tp].line, table.errors[tp].line) == ("", "refused", table.errors[tp].line)
    run.status.close()
    assert read_status(run.options, FLOW, 5_000).errors == table.errors, "it stays there once it has recovered"


def test_a_listener_that_fails_ends_no_thread(pair: FakePair) -> None:
    run, ticks = Run(pair, "run-1"), list[int]()

    def fail(_: StatusNews) -> None:
        ticks.append(1)
        raise ZeroDivisionError("what")

    run.status.on_news = fail
    eventually(lambda: len(ticks) > 1)
    assert run.said == ["what its tasks report could not be used: ZeroDivisionError: what; please report this bug"]
    assert run.status.snapshot()[1] == "", "the topic was read"


def test_a_run_waits_three_seconds_for_a_topic_whose_leader_is_away(
    pair: FakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, news = list[int](), StatusFollower.news

    def noted(follower: StatusFollower, stall_ms: int) -> StatusNews:
        asked.append(stall_ms)
        return news(follower, stall_ms)

    monkeypatch.setattr(StatusFollower, "news", noted)
    away = Action(errors={TopicPartition(status_topic_of(FLOW), 0): errors.LEADER_NOT_AVAILABLE})
    pair.target.control.on(Api.LIST_OFFSETS, away, times=None)
    (unread,) = Run(pair, "run-1").said
    assert asked[0] == 3000
    waited = re.search(r"within (\d+) ms: listing offsets", unread)
    assert waited is not None
    assert 2_000 < int(waited[1]) <= 3_000, "3 s, less what connecting takes"


def test_a_run_whose_topic_could_not_be_created_does_not_wait_for_it(pair: FakePair) -> None:
    del pair.target.topics[status_topic_of(FLOW)]
    run = Run(pair, "run-1")
    run.status.report_state("running")
    run.status.planned(PLAN)
    run.end(PLAN)
    assert run.said == []
    assert run.status._writer._thread is None


def test_a_verification_on_any_host_reaches_the_next_run_and_the_next_verification(
    pair: FakePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror.spark.driver.verify_job.catch_signals", lambda: None)
    options = {"bootstrap.servers": pair.target.bootstrap}
    earlier = {status_values.VERIFICATION: LastVerification(time_ms=9, equal_ms=9)}
    assert write_status(options, FLOW, earlier, 5_000) is None
    audit = Audit(pair, tmp_path)
    elsewhere = ["--report-dir", str(tmp_path / "elsewhere"), "--from", "2020-01-01T00:00:00Z"]
    verify(["--config", str(audit.config), *elsewhere])
    found = Run(pair, "here").table.evidence.verification
    assert found is not None
    assert (found.partial, found.equal_ms) == (True, 9)


def test_errors_that_no_task_has_reported_are_reported_and_taken_back(pair: FakePair) -> None:
    """Of partitions that no task can copy, and of tasks that could not begin."""
    run = Run(pair, "run-1")
    failed = result(1, Outcome.FAILED, error="no leader")
    plan = Plan(flow=FLOW, tasks=[[backlog(0, 5)]], results_without_task=[failed])
    run.status.planned(plan)
    run.status.returned(plan, [AttemptResult(0, 0, result(0, Outcome.FAILED, error="no permission"))])
    run.status.close()
    found = read_status(run.options, FLOW, 5_000).partitions.values()
    assert {(one.report.result.partition, one.report.result.error) for one in found} == {
        (0, "no permission"),
        (1, "no leader"),
    }
    second = Run(pair, "run-2")
    second.status.planned(replace(plan, results_without_task=[result(1)]))
    second.status.close()
    found = read_status(run.options, FLOW, 5_000).partitions.values()
    errors_of = {one.report.result.partition: one.report.result.error for one in found}
    assert errors_of == {0: "no permission", 1: None}


def stored_on(pair: FakePair) -> StatusTable:
    return read_status({"bootstrap.servers": pair.target.bootstrap}, FLOW, 5_000)


def test_what_appears_between_two_processes_of_a_stream_is_not_initial(pair: FakePair) -> None:
    for found, initial in (({"t": 1, "gone": 1}, {"t": 1, "gone": 1}), ({"t": 2, "new": 1}, {"t": 1})):
        targets = TargetTopics(copyable=found, on_source=found)
        run, known = Run(pair, "run", flow=LATEST), InitialPartitions()
        run.status.began(known, targets)
        assert known.counts(targets) == initial
        run.end(PLAN)
    table = stored_on(pair)
    assert (table.initial, table.selection) == ({"t": 1}, Selection.of(LATEST))


def test_what_was_stored_stays_if_it_cannot_be_read(pair: FakePair) -> None:
    for found in ({"t": 1}, {"t": 2}):
        run, known = Run(pair, "run", flow=LATEST), InitialPartitions()
        run.status.began(known, TargetTopics(copyable=found, on_source=found))
        run.end(PLAN)
        refuse(pair, Api.FETCH, None)
    pair.target.control.clear()
    assert stored_on(pair).initial == {"t": 1}


def test_what_was_stored_stays_if_it_is_not_read_in_time(pair: FakePair, monkeypatch: pytest.MonkeyPatch) -> None:
    first, found = Run(pair, "run-1", flow=LATEST), TargetTopics(copyable={"t": 1}, on_source={"t": 1})
    first.status.began(InitialPartitions(), found)
    first.end(PLAN)
    monkeypatch.setattr(run_status, "_FIRST_READ_S", 0)
    held = HeldReading(monkeypatch)
    second = Run(pair, "run-2", flow=LATEST)
    second.status.began(InitialPartitions(), TargetTopics(copyable={"t": 2}, on_source={"t": 2}))
    held.go_on.set()
    second.end(PLAN)
    assert stored_on(pair).initial == {"t": 1}


def test_a_run_that_needs_what_was_stored_does_not_begin_without_it(
    pair: FakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_something(pair)
    refuse(pair, Api.FETCH, None)
    run = Run(pair, "run-1", flow=LATEST, reads=False)
    with pytest.raises(AuthorizationFailed, match=r"grant .* on it") as denied:
        run.status.read(needed=True)
    assert status_topic_of(FLOW) in str(denied.value)
    pair.target.control.clear()
    monkeypatch.setattr(run_status, "_NEEDED_READ_S", 0)
    held = HeldReading(monkeypatch)
    late = Run(pair, "run-2", flow=LATEST, reads=False)
    with pytest.raises(KafkaTimeout, match="could not be read within 0 s"):
        late.status.read(needed=True)
    held.go_on.set()
    assert run.said == late.said == [], "the error says it"
