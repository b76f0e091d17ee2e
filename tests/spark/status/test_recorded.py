"""What tasks of any host report in the status topic is in a status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
from mirror.spark.status import lag_monitor, status_reader
from mirror.spark.status.lag_monitor import LagMonitor
from mirror.spark.status.recorded import LastError, Recorded
from mirror.telemetry.lag.lags import LagState
from tests.fakes.clock import FakeClock
from tests.polling import eventually
from tests.relay.progress.test_status_values import REPORT, TASK
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


def recorded(*records: StatusRecord) -> Recorded:
    found = Recorded()
    found.table.apply(news(*records))
    return found


@pytest.mark.parametrize(("outcome", "error"), [(Outcome.FAILED, "new"), (Outcome.UNFINISHED, None)])
def test_what_fails_and_why_is_what_was_reported_last(outcome: Outcome, error: str | None) -> None:
    result = replace(RESULT, outcome=outcome, error=error)
    found = recorded(reported(result), reported(replace(result, topic="", partition=9)))
    expected = {} if error is None else {ZERO: LastError(error, T0)}
    assert (found.last_errors([ZERO]), found.failures()) == (expected, expected)
    assert found.last_errors([]) == {}


def test_the_last_expiry_is_an_error_until_its_copy_has_recovered() -> None:
    """Also where the copy goes on since."""
    expiry = {"time_ms": T0 - 7, "phase": "commit", "cause": "no answer", "last_error": "timed out"}
    found = recorded(reported(replace(RESULT, expiries=[{**expiry, "time_ms": 1}, expiry])))
    assert found.last_errors([ZERO]) == {ZERO: LastError("expired (commit, no answer): timed out", T0 - 7)}
    assert found.failures() == {}


def test_ways_and_losses_are_reported() -> None:
    loss = {"kind": "recreated", "target_start": 0, "target_end": 0, "start": 7, "end": 7, "time": T0}
    result = replace(RESULT, way="sequences", way_reason="new", target_losses=[loss])
    found = recorded(reported(result))
    assert found.way_reasons() == {(ZERO, "sequences"): "new"}
    assert "source offset 7" in found.target_losses()[ZERO]


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
