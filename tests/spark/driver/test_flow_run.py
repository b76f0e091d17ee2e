"""A run of one flow with clusters in a folder, and a hand in place of Spark: how it ends, and what it reports."""

from __future__ import annotations

import errno
import os
import re
import threading
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import AuthorizationFailed, FlowError, KafkaTimeout
from mirror.meters import Histogram
from mirror.relay.model.ranges import CountBasis, Outcome, RangeResult
from mirror.relay.model.reports import PartitionReport
from mirror.relay.progress import status_values
from mirror.relay.progress.control_record import RunControl
from mirror.relay.progress.status_topic import StatusNews, StatusRecord
from mirror.relay.progress.status_values import StatusKind
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import is_away
from mirror.spark.driver import copy_jobs, run_ending, run_status
from mirror.spark.driver.copy_jobs import FollowedJob
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.job_results import JobResults
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.run_ending import RunEnding
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.ledger.attempt_results import AttemptResult, CopiedTask
from mirror.spark.ledger.initial_partitions import InitialPartitions
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import FlowReport, exit_status
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.flow_planner import FlowPlanner
from mirror.spark.preflight.flow_checks import Findings
from mirror.spark.run_control import RunControlClient
from mirror.spark.supervision import control_record_thread
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.supervision.flow_states import Began, Held, JobEnded, Lost, OtherRunClaimed, Resumed
from mirror.spark.tasks.options import FlowOptions
from mirror.telemetry.lineage.emitter import Lineage
from mirror.telemetry.metrics.instruments import (
    COMMIT_DURATION,
    EXPIRIES,
    FAILURES,
    OF_TASKS,
    OUTCOMES,
    PHASES,
    PLAN_DURATION,
    RECORDS,
)
from mirror.telemetry.run_telemetry import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.polling import eventually
from tests.spark.driver.test_tables import printed
from tests.spark.fakes import SilentFollower
from tests.spark.flow_harness import FlowHarness, configuration, use_fakes
from tests.telemetry.results import a_task, expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from openlineage.client.event_v2 import RunEvent

    from mirror.spark.supervision.flow_states import Event
    from mirror.spark.tasks.task_spec import CopyTask
    from mirror.telemetry.metrics.instruments import Instrument


class Job:
    """Spark's job, which ends when the test says so."""

    def __init__(self, tasks: list[CopyTask]) -> None:
        self.tasks = tasks
        self.done: Future[list[CopiedTask]] = Future()
        self.results: list[CopiedTask] = []
        self.cancelled = False

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True
        self.done.set_exception(RuntimeError("cancelled"))

    def end(self, outcome: Outcome = Outcome.COMPLETE, error: str | None = None) -> None:
        for task in self.tasks:
            self.answer(task, outcome, error)
        self.done.set_result(self.results)

    def answer(self, task: CopyTask, outcome: Outcome, error: str | None = None) -> None:
        results = [RangeResult.initial(one, one.start, outcome, error) for one in task.ranges]
        report = a_task(task.spec.task, run=task.spec.run)
        self.results.append(
            CopiedTask([AttemptResult(task.spec.task, 0, one) for one in results], task.spec.job, report)
        )


class Run(FlowHarness):
    """A run of a flow of one topic with two partitions."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *lines: str,
        topics: str = "orders.*",
        follows: bool = True,
        initial: InitialPartitions | None = None,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        super().__init__(folder, topics)
        self.config.write_text(configuration(topics) + "\n".join(lines))
        self.a.add_topic("orders", [10, 20])
        ledger = Ledger.open(self.report, "f", "run-1")
        options = FlowOptions(self.config, "f", ledger.path, None, 3)
        config, flow = options.load()
        self.flow_report = FlowReport("f", datetime.now(UTC), run="run-1")
        self.jobs: list[Job] = []
        self.began = threading.Event()

        def copy_job(_: object, __: object, tasks: list[CopyTask], ___: object) -> Job:
            self.jobs.append(Job(tasks))
            return self.jobs[-1]

        monkeypatch.setattr(copy_jobs, "copy_job", copy_job)
        self.lineage: list[tuple[str, str]] = []
        """The states of OpenLineage that were sent, with the errors."""
        settings = telemetry or TelemetrySettings(disabled=True)
        lineage = Lineage(SystemClock(), emit=self._on_lineage)
        self.telemetry = RunTelemetry(settings, self.report, SystemClock(), lineage)
        self.posted: list[object] = []
        self.context: Callable[[], Any] = lambda: SimpleNamespace(defaultParallelism=3)
        self.control_thread = ControlRecordThread(
            flow, {"bootstrap.servers": "b:1"}, self._on_control, Consoles().warning
        )
        self.stream = FlowRun(
            self._open_context,
            config,
            flow,
            options,
            self.flow_report,
            consoles=Consoles(),
            telemetry=self.telemetry,
            findings=Findings(),
            control=self.control_thread,
            follows=follows,
            initial=initial,
        )
        self.event: Event | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _open_context(self) -> Any:
        return self.context()

    def _on_lineage(self, event: RunEvent) -> None:
        facets: Any = event.run.facets
        assert event.eventType is not None
        self.lineage.append((event.eventType.value, facets["errorMessage"].message if facets else ""))

    def _on_control(self, event: Held | OtherRunClaimed | Resumed) -> None:
        """As who has opened the run, and stops it."""
        self.posted.append(event)
        if not isinstance(event, Resumed):
            self.stream.stop()

    def _run(self) -> None:
        try:
            self.event = self.stream.run(self._announce)
        except BaseException as error:  # noqa: BLE001 - a test may have raised it
            self.error = error

    def _announce(self, event: Event) -> None:
        assert event == Began()
        self.began.set()

    def begin(self) -> Job:
        self._thread.start()
        eventually(lambda: self.began.is_set() or not self._thread.is_alive(), what="the begin of the job")
        assert self.began.is_set(), (self.event, self.error)
        eventually(lambda: self.record().run == "run-1", what="the claim")
        # Another process may write the record now: the run has nothing to commit, which could overwrite that.
        self.control_thread.request().result(30)
        return self.jobs[-1] if self.jobs else Job([])

    def ended(self) -> Event | None:
        if not self._thread.is_alive() and self._thread.ident is None:
            self._thread.start()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.flow_report.ended is not None
        self.control_thread.close(30)
        self.telemetry.close()
        return self.event

    def control(self, run: str = "") -> RunControlClient:
        return RunControlClient(Admin({"bootstrap.servers": "b:1"}), "f", run)

    def record(self) -> RunControl:
        record = self.control().read()
        return RunControl(run="", host="", since_ms=0) if record is None else record

    def outcomes(self) -> dict[int, Outcome]:
        return {one.partition: one.outcome for one in self.flow_report.partitions}


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)


def reported_states(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The states, with reasons, that the status topic gets from now on."""
    states: list[tuple[str, str]] = []
    monkeypatch.setattr(RunStatus, "report_state", lambda _, state, reason="": states.append((state, reason)))
    return states


def test_a_job_has_a_task_for_each_slot_and_its_run_has_claimed_the_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    assert sorted(len(task.ranges) for task in job.tasks) == [0, 1, 1]
    assert {(task.spec.run, task.spec.job, task.spec.tasks) for task in job.tasks} == {("run-1", 1, 3)}
    assert {task.spec.generation for task in job.tasks} == {run.record().generation}
    assert run.flow_report.asked is None
    run.stream.stop()
    eventually(lambda: run.record().job == 2, what="the command to the tasks")
    eventually(lambda: run.flow_report.asked, what="the time at which it was asked to end")
    job.end()
    assert run.ended() == JobEnded("in order")
    assert run.outcomes() == dict.fromkeys((0, 1), Outcome.COMPLETE)
    assert run.record().ended


@pytest.mark.parametrize(
    ("how", "last"),
    [("stop", ("COMPLETE", "")), ("end", ("FAIL", "its tasks have ended")), ("cancel", ("ABORT", ""))],
)
def test_the_lineage_of_a_stream_says_how_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, last: tuple[str, str]
) -> None:
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    if how != "end":
        getattr(run.stream, how)()
    if how != "cancel":
        job.end()
    run.ended()
    assert (run.lineage[0], run.lineage[-1]) == (("START", ""), last)


def test_the_lineage_of_a_scheduled_run_says_why_it_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)

    def context() -> Any:
        raise FlowError("no Spark")

    run.context = context
    run.ended()
    assert run.lineage == [("START", ""), ("FAIL", "no Spark")]


def test_the_lineage_of_a_scheduled_run_is_a_failure_if_a_partition_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    run.begin().end(Outcome.EXPIRED, "too late")
    run.ended()
    assert [state for state, _ in run.lineage] == ["START", "RUNNING", "FAIL"]


def test_a_stop_before_the_job_has_begun_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    run.stream.stop()
    assert run.ended() == JobEnded("in order")
    assert run.jobs == []
    assert (run.record().run, run.control_thread._waits) == ("", False), "the control may be that of a later start"


def test_a_scheduled_run_that_is_stopped_before_its_job_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    states = reported_states(monkeypatch)
    run.stream.stop()
    assert run.ended() == JobEnded("cut short")
    assert (run.flow_report.outcome, exit_status([run.flow_report])) == (Outcome.UNFINISHED, 3)
    assert states == [], "the flow's state may be that of another run: this one has not claimed the flow"


def test_a_stream_that_is_stopped_before_its_copies_begin_says_so_and_has_ended_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_record_thread, "POLL_INTERVAL_MS", 60_000)
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control().stop()
    job.end(Outcome.UNFINISHED, "the run was asked to stop")
    assert run.ended() == JobEnded("in order")
    assert exit_status([run.flow_report], {"f"}) == 0
    assert "0 of 2 complete when it was stopped" in printed(run.flow_report)


def test_a_run_that_another_one_ends_while_it_prepares_leaves_the_state_of_the_flow_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, states = Run(tmp_path, monkeypatch, follows=False), reported_states(monkeypatch)

    def context() -> Any:
        eventually(lambda: run.record().run == run.control_thread.run, what="the claim of a flow that nothing copies")
        run.control("run-2").claim()
        eventually(run.stream._ending.is_asked, what="the word of the other run")
        return SimpleNamespace(defaultParallelism=3)

    run.context = context
    assert run.ended() == JobEnded("cut short")
    assert (states, run.record().run) == ([], "run-2")


@pytest.mark.parametrize("cancels", [True, False])
def test_what_ends_a_run_is_noticed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cancels: bool) -> None:
    monkeypatch.setattr(run_ending, "_POLL_S", 60.0)
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    if cancels:
        run.stream.cancel()
    else:
        job.end()
    assert run.ended() == (JobEnded("cut short") if cancels else Lost("its tasks have ended"))
    assert job.cancelled is cancels


def test_tasks_that_do_not_stop_in_time_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, "shutdown-timeout-ms = 1000")
    job = run.begin()
    run.stream.stop()
    assert run.ended() == JobEnded("cut short")
    assert (job.cancelled, run.flow_report.outcome) == (True, Outcome.UNFINISHED)


def test_mirror_stop_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control().stop()
    eventually(run.stream._ending.is_asked, what="the word of mirror stop")
    job.end()
    assert (run.ended(), Held() in run.posted) == (JobEnded("in order"), True)


def test_another_run_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control("run-2").claim()
    eventually(run.stream._ending.is_asked, what="the word of the other run")
    job.end(Outcome.FENCED)
    assert run.ended() == JobEnded("in order")
    assert run.flow_report.outcome is Outcome.FENCED
    assert (run.record().run, Held() in run.posted) == ("run-2", False)


def test_tasks_that_read_a_command_before_their_driver_does_have_not_ended_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_record_thread, "POLL_INTERVAL_MS", 60_000)
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control().stop()
    job.end()
    assert (run.ended(), Held() in run.posted) == (JobEnded("in order"), True)


def test_a_job_that_spark_gives_up_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    run.begin().done.set_exception(RuntimeError("Job aborted due to stage failure"))
    assert run.ended() is None
    assert str(run.error) == "Job aborted due to stage failure"
    assert run.record().ended


def test_a_task_that_ends_by_itself_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets nothing any more: its partitions would wait for ever."""
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    job.answer(job.tasks[0], Outcome.FAILED, "no memory")
    eventually(lambda: run.record().job == 2, what="the command for the other tasks")
    job.done.set_result(job.results)
    assert run.ended() == Lost("no memory")


def test_a_task_without_a_valid_configuration_ends_the_job_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    assert job.tasks[2].ranges == [], "it has no result"
    job.results.append(CopiedTask([], 1, None, invalid="task 2 on host h: mirror.toml is missing"))
    eventually(lambda: run.record().job == 2, what="the command for the other tasks")
    job.answer(job.tasks[0], Outcome.UNFINISHED)
    job.done.set_result(job.results)
    assert run.ended() == Lost("task 2 on host h: mirror.toml is missing")


def test_what_keeps_a_run_from_its_start_is_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, topics="nothing")
    run.ended()
    assert "none of the" in str(run.error)
    run = Run(tmp_path, monkeypatch)
    run.b.stop()
    run.ended()
    assert run.error is not None
    assert is_away(run.error)


def test_a_stream_refuses_a_flow_that_ends_and_a_scheduled_run_copies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, "max-partitions-in-parallel = 1")
    run.ended()
    assert isinstance(run.error, FlowError)
    assert "schedule `mirror run`" in str(run.error)
    assert run.record().run == "", "it has not claimed the flow"
    run = Run(tmp_path, monkeypatch, "max-partitions-in-parallel = 1", follows=False)
    job = run.begin()
    assert [len(task.ranges) for task in job.tasks] == [1]
    job.end()
    assert run.ended() == JobEnded("in order")
    assert sorted(run.outcomes().values()) == [Outcome.COMPLETE, Outcome.UNFINISHED], "one waits for its turn"


def test_a_job_is_cancelled_if_the_run_cannot_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(FollowedJob, "_update", fail)
    run = Run(tmp_path, monkeypatch)
    run.ended()
    assert (str(run.error), run.jobs[0].cancelled) == ("a bug", True)


class MeasuringTasks(SilentFollower):
    """As a follower of the status topic, where task 0 has reported what it has measured, and an expired partition."""

    def news(self, *_: object) -> StatusNews:
        measured = status_values.measured_key(0)
        value = status_values.decode(measured, status_values.encode(a_task(run="run-1")), "f")
        result = replace(expired(0), target_topic="a.orders", timeline=None)
        target = TopicPartition("a.orders", 0)
        report = PartitionReport(
            target=target,
            run="run-1",
            job=1,
            task=0,
            attempt=0,
            taken=0,
            state=result.outcome.value,
            sequence=1,
            version=0,
            result=result,
        )
        key = status_values.partition_key(StatusKind.PARTITION, target)
        return StatusNews(again=True, records=[StatusRecord(measured, value, 1), StatusRecord(key, report, 1)])


def measured_by(run: Run) -> dict[Instrument, float]:
    """The instruments that have a value, and how much they have counted."""
    with run.telemetry.metrics.lock:
        return {
            one: sum(point.value.count if isinstance(point.value, Histogram) else point.value for point in points)
            for one, points in run.telemetry.metrics.points()
        }


@pytest.mark.parametrize("follows", [True, False])
def test_what_tasks_report_is_in_the_metrics_while_they_live_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, follows: bool
) -> None:
    of_tasks = OF_TASKS | {PHASES, PLAN_DURATION, RECORDS, FAILURES, EXPIRIES}
    monkeypatch.setattr(run_status, "StatusFollower", MeasuringTasks)
    run = Run(tmp_path, monkeypatch, follows=follows, telemetry=TelemetrySettings())
    job = run.begin()
    eventually(lambda: measured_by(run).keys() >= of_tasks, what="what the task has reported")
    found = measured_by(run)
    assert (found[COMMIT_DURATION], found[PLAN_DURATION]) == (1, 1)
    assert (found[RECORDS], found[FAILURES], found[EXPIRIES]) == (40, 1, 1)
    assert OUTCOMES not in found
    if follows:
        run.stream.stop()
    job.end()
    assert run.ended() == JobEnded("in order")
    found = measured_by(run)
    assert found[COMMIT_DURATION] == len(job.tasks), "one of the tasks was counted before"
    assert (found[RECORDS], found[FAILURES], found[EXPIRIES]) == (40, 1, 1)
    assert found[OUTCOMES] == 2


def test_what_has_appeared_between_two_starts_of_a_flow_is_copied_from_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial = InitialPartitions()
    run = Run(tmp_path, monkeypatch, 'start = "latest"', initial=initial)
    initial.on_start(run.stream._flow, TargetTopics(copyable={"orders": 1}, on_source={"orders": 1}))
    job = run.begin()
    assert {one.partition: one.start for task in job.tasks for one in task.ranges} == {0: 10, 1: 0}
    job.end()
    run.ended()


class UnreadFollower(SilentFollower):
    """As a follower of a status topic whose broker is away."""

    def news(self, *_: object) -> StatusNews:
        raise KafkaTimeout("broker b:1 does not answer")


@pytest.mark.parametrize(("start", "follows"), [("latest", True), ("latest", False), ("earliest", True)])
def test_only_a_stream_that_begins_at_the_end_needs_what_earlier_ones_have_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, *, follows: bool
) -> None:
    monkeypatch.setattr(run_status, "StatusFollower", UnreadFollower)
    run = Run(tmp_path, monkeypatch, f'start = "{start}"', follows=follows)
    if (start, follows) == ("latest", True):
        assert run.ended() is None
        assert is_away(run.error or AssertionError()), "it is tried again"
        assert "broker b:1 does not answer" in str(run.error)
        assert run.jobs == []
    else:
        run.begin().end()
        run.stream.stop()
        run.ended()
        assert run.error is None


# --- a scheduled run


def test_a_scheduled_run_has_one_job_with_ends_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    job = run.begin()
    assert {one.end for task in job.tasks for one in task.ranges} == {10, 20}
    assert {(task.spec.run, task.spec.job, task.spec.tasks, task.spec.renew_ms) for task in job.tasks} == {
        ("run-1", 0, 2, 0)
    }
    states = reported_states(monkeypatch)
    job.end()
    assert run.ended() == JobEnded("in order")
    assert run.flow_report.outcome is Outcome.COMPLETE
    assert states == [("ended", "complete")]
    assert len(run.jobs) == 1
    assert run.record().ended
    assert [len(found) for found in (run.stream.ledger.plan(0).ranges, run.stream.ledger.attempts(0))] == [2, 2]  # type: ignore[union-attr]


def test_a_scheduled_run_that_has_nothing_to_copy_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both directions, with an empty cluster: its flow waits for topics that the other flow creates."""
    local = ('naming = "identity"', 'origin = "local"')
    back = ("[flows.g]", 'source = "b"', 'target = "a"', 'topics = ["first.*"]')
    monkeypatch.setattr(FlowPreparation, "prepare", lambda _: TargetTopics())
    run = Run(tmp_path, monkeypatch, *local, *back, *local, topics="first.*", follows=False)
    states = reported_states(monkeypatch)
    assert run.ended() == JobEnded("in order"), run.error
    assert (run.flow_report.outcome, run.flow_report.partitions, run.jobs) == (Outcome.COMPLETE, [], [])
    assert states == [("running", ""), ("ended", "complete")]


def test_a_scheduled_run_with_nothing_to_copy_has_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    for partition, end in enumerate((10, 20)):
        run.commit(end, partition)
    assert run.ended() == JobEnded("in order")
    assert run.jobs == []
    assert run.outcomes() == dict.fromkeys((0, 1), Outcome.COMPLETE)


def test_what_lost_tasks_have_copied_is_read_from_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    job = run.begin()
    job.answer(job.tasks[0], Outcome.COMPLETE)
    lost = job.tasks[1].ranges[0]
    run.commit(7, lost.partition)
    job.done.set_exception(RuntimeError("Job aborted due to stage failure"))
    assert run.ended() == JobEnded("in order")
    (one,) = [one for one in run.flow_report.partitions if one.partition == lost.partition]
    assert (one.outcome, one.end, one.records, one.counted) == (Outcome.UNFINISHED, 7, 7, CountBasis.OFFSETS)
    assert exit_status([run.flow_report]) == 3
    assert "flow f: RuntimeError: Job aborted due to stage failure" in capsys.readouterr().err


def test_a_scheduled_run_that_a_signal_ends_reports_the_progress_on_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes as an exception while Spark works; no task can answer any more."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunEnding, "_await_or_cancel", interrupt)
    run = Run(tmp_path, monkeypatch, follows=False)
    run.commit(7)
    run.ended()
    assert isinstance(run.error, KeyboardInterrupt)
    assert (run.jobs[0].cancelled, run.flow_report.outcome) == (True, Outcome.UNFINISHED)
    first = run.flow_report.partitions[0]
    assert (first.start, first.end, first.counted) == (7, 7, CountBasis.OFFSETS)
    assert "cut short" in str(first.error)


def test_results_that_could_not_be_written_do_not_count_as_lost_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    job = run.begin()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    job.end()
    run.ended()
    assert re.match("the ledger .* cannot be written: No space left on device", str(run.error))
    assert run.outcomes() == dict.fromkeys((0, 1), Outcome.COMPLETE), "the table has its rows"


@pytest.mark.parametrize("follows", [True, False])
def test_the_run_that_took_over_is_one_line_which_a_stream_prints_with_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, follows: bool
) -> None:
    run = Run(tmp_path, monkeypatch, follows=follows)
    job = run.begin()
    run.control("run-2").claim()
    eventually(run.stream._ending.is_asked, what="the word of the other run")
    job.end(Outcome.FENCED)
    run.ended()
    assert "another run of this flow took over: run-2 on" in str(run.flow_report.fenced)
    assert ("another run of this flow took over" in capsys.readouterr().err) is not follows


@pytest.mark.parametrize("outcome", [Outcome.FENCED, Outcome.COMPLETE])
def test_a_scheduled_run_that_another_one_has_ended_names_it_unless_it_was_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    run, states = Run(tmp_path, monkeypatch, follows=False), reported_states(monkeypatch)
    completed: list[FlowReport] = []
    monkeypatch.setattr(FlowRun, "_complete", lambda self: completed.append(self.report))
    job = run.begin()
    run.control("run-2").claim()
    eventually(run.stream._ending.is_asked, what="the word of the other run")
    job.end(outcome)
    run.ended()
    assert completed == [], "the other run brings the groups"
    assert states == [("running", "")], "what follows is the other run's to report"
    assert run.flow_report.outcome is outcome
    assert ("another run of this flow took over: run-2 on" in str(run.flow_report.fenced)) is (
        outcome is Outcome.FENCED
    )


def test_a_scheduled_run_that_cannot_claim_its_flow_copies_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AuthorizationFailed("Write on the group is missing", 30)

    monkeypatch.setattr(RunControlClient, "claim", refuse)
    monkeypatch.setattr(RunControlClient, "sync", refuse)
    run = Run(tmp_path, monkeypatch, follows=False)
    run._thread.start()
    assert run.began.wait(30)
    assert {task.spec.run for task in run.jobs[0].tasks} == {""}
    run.jobs[0].end()
    run.ended()
    assert run.flow_report.outcome is Outcome.COMPLETE
    assert "another run of it could not be asked to end" in capsys.readouterr().err


def test_a_run_without_spark_does_not_end_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, follows=False)
    run.control("run-0").claim()

    def fail() -> None:
        raise RuntimeError("no executor has registered")

    run.context = fail
    run.ended()
    assert str(run.error) == "no executor has registered"
    assert (run.record().run, run.record().ended) == ("run-0", False)


@pytest.mark.parametrize("follows", [True, False])
def test_mirror_stop_ends_a_run_that_prepares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, follows: bool
) -> None:
    monkeypatch.setattr(control_record_thread, "POLL_INTERVAL_MS", 5)
    run = Run(tmp_path, monkeypatch, follows=follows)
    prepare, prepared = run.stream._preparation.prepare, threading.Event()

    def wait() -> TargetTopics:
        assert prepared.wait(30)
        return prepare()

    monkeypatch.setattr(run.stream._preparation, "prepare", wait)
    run._thread.start()
    eventually(lambda: run.control().stop() is not None, what="the run that prepares")
    eventually(lambda: Held() in run.posted, what="the command")
    prepared.set()
    assert isinstance(run.ended(), JobEnded)
    assert (run.jobs, run.record().ended) == ([], True)


# --- beside the copies


def test_a_later_plan_does_not_report_of_what_a_task_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of its source may not answer the driver at that moment: the task reports by itself."""
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    ranges = [one for task in job.tasks for one in task.ranges]
    failed = [
        RangeResult.initial(one, one.start, Outcome.FAILED, "the source partition does not answer")
        for one in (ranges[0], replace(ranges[0], partition=9))
    ]
    plans: list[Plan] = []
    monkeypatch.setattr(FlowPlanner, "plan", lambda *_: Plan(flow="f", tasks=[], results_without_task=failed))
    monkeypatch.setattr(RunStatus, "planned", lambda _, plan: plans.append(plan))
    monkeypatch.setattr(JobResults, "on_planned", lambda _, plan: plans.append(plan))
    cast("FollowedJob", run.stream._job).refresh(TargetTopics(copyable={"orders": 10}))
    assert [[one.partition for one in plan.results_without_task] for plan in plans] == [[9], [9]]
    run.stream.stop()
    job.end()
    run.ended()


def test_new_topics_get_a_task_of_the_job_and_gone_ones_lose_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, monkeypatch, "refresh-ms = 1000")
    job = run.begin()
    run.a.add_topic("orders-2", [5])
    eventually(lambda: run.record().version > 0, what="the version that gives it to a task")
    announced = run.record().version
    with run.a.change() as state:
        del state["topics"]["orders-2"]
    eventually(lambda: run.record().version > announced, what="the version that takes it away")
    said = list[str]()

    def says(line: str) -> bool:
        said.append(capsys.readouterr().err)
        return line in " ".join("".join(said).split())

    eventually(lambda: says("followed no more: orders-2 (1 partition)"), what="the line about it")
    assert isinstance(run.stream._job, copy_jobs.FollowedJob)
    known = {tp.topic for tp in run.stream._job._additions._reported}
    assert known == {"orders"}, "the other one is news if it comes back"
    run.stream.stop()
    eventually(lambda: run.record().job == 2, what="the command to the tasks")
    job.end()
    assert run.ended() == JobEnded("in order")
