"""What tasks of other hosts report in the status topic is in a status, beside what the ledger on this host has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirror.client import TopicPartition
from mirror.config.load import load
from mirror.errors import AuthorizationFailed, KafkaTimeout
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import StatusNews, StatusRecord
from mirror.relay.progress.status_values import RunState, StatusKind
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.spark.ledger import evidence_values
from mirror.spark.ledger.evidence_files import read_evidence
from mirror.spark.ledger.last_errors import LastError, LastErrors
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.status import lag_monitor, status_reader
from mirror.spark.status.lag_monitor import LagMonitor
from mirror.spark.status.recorded import Recorded
from mirror.telemetry.lag.lags import LagState
from tests.fakes.clock import FakeClock
from tests.polling import eventually
from tests.relay.progress.test_status_values import READ_BACK, REPORT, TASK
from tests.spark import fakes
from tests.spark.ledger.test_status_table import VERIFIED
from tests.spark.status_harness import T0, StatusHarness

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.errors import MirrorError
    from mirror.relay.progress.status_values import StatusKey, StatusValue
    from mirror.spark.status.flow_status import FlowStatus

ZERO = TopicPartition("t", 0)
RESULT = RangeResult(flow="f", topic="t", target_topic="a.t", partition=0, start=0, end=5)


def reported(result: RangeResult, time_ms: int = T0) -> StatusRecord:
    target = TopicPartition(result.target_topic, result.partition)
    report = replace(REPORT, target=target, result=result)
    return StatusRecord(status_values.partition_key(StatusKind.PARTITION, target), report, time_ms)


def news(*records: StatusRecord) -> StatusNews:
    return StatusNews(again=True, records=list(records))


class Ledger:
    """What the ledger on this host has."""

    def __init__(self, error: LastError | None) -> None:
        self._found = {} if error is None else {ZERO: error}

    def of(self, _: object) -> dict[TopicPartition, LastError]:
        return dict(self._found)

    def failures(self) -> dict[TopicPartition, LastError]:
        return self._found

    def way_reasons(self) -> dict[tuple[TopicPartition, str], str]:
        return {(ZERO, "sequences"): "old"}

    def target_losses(self) -> dict[TopicPartition, str]:
        return {ZERO: "old"}

    def differences(self) -> dict[TopicPartition, str]:
        return {ZERO: "old"}

    def last_targets(self) -> tuple[str, TargetTopics]:
        return "r1", TargetTopics(obstacles={"old": Obstacle("old")})


def recorded(ledger: LastError | None, *records: StatusRecord) -> Recorded:
    stand_in: Any = Ledger(ledger)
    found = Recorded(stand_in)
    found.table.apply(news(*records))
    return found


@pytest.mark.parametrize(
    ("ledger_ms", "reported_ms", "outcome", "error", "failure"),
    [
        (T0, T0 + 1, Outcome.FAILED, "new", "new"),
        (T0, T0 + 1, Outcome.UNFINISHED, "old", None),
        (T0 + 1, T0, Outcome.FAILED, "old", "old"),
        (None, T0, Outcome.FAILED, "new", "new"),
    ],
)
def test_the_later_of_what_is_reported_and_recorded_counts(
    ledger_ms: int | None, reported_ms: int, outcome: Outcome, error: str, failure: str | None
) -> None:
    old = None if ledger_ms is None else LastError("old", ledger_ms)
    result = replace(RESULT, outcome=outcome, error="new" if outcome is Outcome.FAILED else None)
    found = recorded(old, reported(result, reported_ms), reported(replace(result, topic="", partition=9)))
    assert {tp: one.line for tp, one in found.last_errors([ZERO]).items()} == {ZERO: error}
    assert {tp: one.line for tp, one in found.failures().items()} == ({} if failure is None else {ZERO: failure})


def test_ways_losses_and_differences_that_tasks_report_replace_recorded_ones() -> None:
    found = recorded(None)
    assert (found.way_reasons(), found.target_losses(), found.differences()) == (
        {(ZERO, "sequences"): "old"},
        {ZERO: "old"},
        {ZERO: "old"},
    )
    loss = {"kind": "recreated", "target_start": 0, "target_end": 0, "start": 7, "end": 7, "time": T0}
    result = replace(RESULT, way="sequences", way_reason="new", target_losses=[loss], read_back=READ_BACK)
    found = recorded(None, reported(result))
    assert found.way_reasons() == {(ZERO, "sequences"): "new"}
    assert "source offset 7" in found.target_losses()[ZERO]
    assert "1 content" in found.differences()[ZERO]


def test_obstacles_are_those_of_the_last_run_that_is_reported_or_recorded() -> None:
    obstacle = StatusRecord(status_values.obstacle_key("new"), {"reason": "new", "first": 0}, T0)
    assert recorded(None, obstacle).obstacles().keys() == {"old"}, "no run has reported yet"
    for name, found in (("r0", "old"), ("r1", "new"), ("r2", "new")):
        run = StatusRecord(status_values.RUN, RunState(run=name, since_ms=T0), T0)
        assert recorded(None, obstacle, run).obstacles().keys() == {found}, name
    assert Recorded(None).obstacles() == {}


class Follower(fakes.SilentFollower):
    """What any host has written."""

    error: AuthorizationFailed | None = None
    records: tuple[tuple[StatusKey, StatusValue], ...] = ()

    def news(self, *_: object) -> StatusNews:
        if self.error is not None:
            raise self.error
        return news(*(StatusRecord(key, value, T0) for key, value in self.records))


class Listener:
    interval_ms = 1

    def on_status(self, status: FlowStatus) -> None: ...

    def on_error(self, error: MirrorError) -> None: ...


def test_a_host_without_the_ledger_shows_what_tasks_report(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TopicPartition("a.orders", 0)
    result = replace(
        RESULT, topic="orders", target_topic="a.orders", outcome=Outcome.FAILED, error="refused: too large"
    )
    run = RunState(run="r1", since_ms=T0, state="running")
    tasks = [replace(TASK, run="r1", job=2, task=0), replace(TASK, run="r1", job=1, task=1), replace(TASK, run="r0")]
    monkeypatch.setattr(
        Follower,
        "records",
        (
            (status_values.RUN, run),
            *((status_values.task_key(task.task), task) for task in tasks),
            (status_values.partition_key(StatusKind.PARTITION, target), replace(REPORT, target=target, result=result)),
        ),
    )
    monkeypatch.setattr(status_reader, "StatusFollower", Follower)
    site.a.add_topic("orders", [100])
    site.commit(50)
    site.run()
    with site.watch() as watch:
        found = watch.read()
        (one,) = found.partitions
        assert one.lag.state is LagState.FAILED
        assert one.last_error is not None
        assert one.last_error.line == "refused: too large"
        assert (found.state, found.tasks, found.unread) == (run, tasks[:1], "")
        monkeypatch.setattr(Follower, "error", AuthorizationFailed("the permission Read is missing", 29))
        again = watch.read()
        assert (again.state, again.unread) == (run, "the permission Read is missing")
    assert "permission Read is missing" in site.invoke("status").output


def test_the_state_of_an_earlier_run_is_not_shown_beside_a_run_that_reports_none(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "StatusFollower", Follower)
    site.a.add_topic("orders", [100])
    for name, is_shown in (("r0", False), ("r1", True), ("r2", True)):
        state = RunState(run=name, since_ms=T0, state="ended")
        monkeypatch.setattr(Follower, "records", ((status_values.RUN, state),))
        site.run()
        with site.watch() as watch:
            assert watch.read().state == (state if is_shown else None), name
        site.run(ended=True)
        with site.watch() as watch:
            assert watch.read().state == state


def test_an_unreadable_topic_is_named_also_while_the_source_is_away(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "StatusFollower", Follower)
    monkeypatch.setattr(Follower, "error", AuthorizationFailed("the permission Read is missing", 29))
    with site.watch() as watch:
        assert watch.read_alone("a", KafkaTimeout("no answer")).unread == "the permission Read is missing"


def test_a_reading_waits_shortly_for_the_topic_and_that_is_no_load(
    site: StatusHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    took: list[int] = []

    class Away(Follower):
        def news(self, *limit: object) -> StatusNews:
            limits.extend(one for one in limit if isinstance(one, int))
            clock.advance(limits[-1])
            raise KafkaTimeout("its leader is away")

    def pause(_: int, took_ms: int, *, failed: bool) -> int:
        assert not failed
        took.append(took_ms)
        return 1

    clock = FakeClock()
    monkeypatch.setattr(status_reader, "StatusFollower", Away)
    monkeypatch.setattr(status_reader, "SystemClock", lambda: clock)
    monkeypatch.setattr(lag_monitor, "SystemClock", lambda: clock)
    monkeypatch.setattr(lag_monitor, "pause_ms", pause)
    site.a.add_topic("orders", [100], earliest=0)
    config = load(site.config)
    with (
        run_telemetry(tmp_path, Consoles()) as telemetry,
        LagMonitor(config, config.flows["f"], telemetry, Listener(), site.report),
    ):
        eventually(lambda: len(took) > 2)
    assert set(limits) == {3_000}
    assert set(took) == {0}


def test_last_errors_of_the_ledger_are_read_as_before(site: StatusHarness) -> None:
    assert Recorded(LastErrors(site.report, "f")).failures() == {}


def test_a_stream_keeps_what_other_hosts_verify_while_it_runs(
    site: StatusHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "StatusFollower", Follower)
    site.a.add_topic("orders", [100], earliest=0)
    config = load(site.config)
    with (
        run_telemetry(tmp_path, Consoles()) as telemetry,
        LagMonitor(config, config.flows["f"], telemetry, Listener(), site.report),
    ):
        value = evidence_values.verification_value(VERIFIED)
        monkeypatch.setattr(Follower, "records", ((status_values.VERIFICATION, value),))
        eventually(lambda: read_evidence(site.report, "f").verification == VERIFIED)
