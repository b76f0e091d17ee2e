"""One flow of a stream with clusters in a folder, and a hand in place of Spark: what its end is told as."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.control import RunControl
from mirror.runtime.clock import SystemClock
from mirror.spark import flow_admins
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver import copy_jobs, flow_preparation, flow_run, stream_monitor
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.output.console import Consoles
from mirror.spark.ledger.attempts import Attempt, CopiedTask
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.results import FlowReport
from mirror.spark.preflight.flow_checks import Findings
from mirror.spark.run_control import RunControlClient, RunRecord
from mirror.spark.status import status_reader
from mirror.spark.supervision.states import Began, Held, JobEnded, Lost, Refused, TakenOver
from mirror.telemetry.run import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.polling import eventually
from tests.spark.fakes import Admin, SilentFollower
from tests.spark.flow_harness import FlowHarness, configuration, use_fakes

if TYPE_CHECKING:
    from mirror.spark.datasource.task_spec import CopyTask
    from mirror.spark.supervision.states import Event


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
        self.results.append(CopiedTask([Attempt(task.spec.task, 0, one) for one in results], task.spec.job, None))


class Run(FlowHarness):
    """A run of a flow of one topic with two partitions."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *lines: str,
        topics: str = "orders.*",
        available_now: bool = False,
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
        self.stream = FlowRun(
            lambda: cast("Any", None),
            config,
            flow,
            options,
            self.flow_report,
            consoles=Consoles(),
            telemetry=RunTelemetry(TelemetrySettings(disabled=True), self.report, SystemClock()),
            findings=Findings(),
            record=RunRecord("run-1"),
            available_now=available_now,
        )
        self.event: Event | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.event = self.stream.run(self._announce)

    def _announce(self, event: Event) -> None:
        assert event == Began()
        self.began.set()

    def begin(self) -> Job:
        self._thread.start()
        assert self.began.wait(30)
        eventually(lambda: self.record().run == "run-1", what="the claim")
        return self.jobs[-1] if self.jobs else Job([])

    def ended(self) -> Event | None:
        if not self._thread.is_alive() and self._thread.ident is None:
            self._thread.start()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.flow_report.ended is not None
        return self.event

    def control(self, run: str = "") -> RunControlClient:
        return RunControlClient(cast("Any", Admin({"bootstrap.servers": "b:1"})), "f", run)

    def record(self) -> RunControl:
        record = self.control().read()
        return RunControl(run="", host="", since_ms=0) if record is None else record

    def outcomes(self) -> dict[int, Outcome]:
        return {one.partition: one.outcome for one in self.flow_report.partitions}


@pytest.fixture(autouse=True)
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(tmp_path, monkeypatch, flow_run, flow_preparation, flow_admins, stream_monitor, status_reader)
    monkeypatch.setattr(copy_jobs, "StatusFollower", SilentFollower)


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
    eventually(lambda: run.record().stop, what="the command to stop")
    eventually(lambda: run.flow_report.asked, what="the time at which it was asked to end")
    job.end()
    assert run.ended() == JobEnded("in order")
    assert run.outcomes() == dict.fromkeys((0, 1), Outcome.COMPLETE)
    assert run.record().ended


def test_a_stop_before_the_job_has_begun_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    run.stream.stop()
    assert run.ended() == JobEnded("in order")
    assert run.jobs == []


def test_tasks_that_do_not_stop_in_time_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, "shutdown-timeout-ms = 1000")
    job = run.begin()
    run.stream.stop()
    assert run.ended() == JobEnded("cut short")
    assert (job.cancelled, run.flow_report.outcome) == (True, Outcome.UNFINISHED)


def test_mirror_stop_and_another_run_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control().stop()
    eventually(lambda: run.stream._ends, what="the word of mirror stop")
    job.end()
    assert run.ended() == Held()

    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control("run-2").claim()
    eventually(lambda: run.stream._ends, what="the word of the other run")
    job.end(Outcome.FENCED)
    event = run.ended()
    assert isinstance(event, TakenOver)
    assert event.run == "run-2"
    assert run.flow_report.outcome is Outcome.FENCED
    assert run.record().run == "run-2"


def test_tasks_that_read_a_command_before_their_driver_does_have_not_ended_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_monitor, "POLL_INTERVAL_MS", 60_000)
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control().stop()
    job.end()
    assert run.ended() == Held()

    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    run.control("run-2").claim()
    job.end(Outcome.FENCED)
    assert isinstance(run.ended(), TakenOver)


def test_a_job_that_spark_gives_up_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch)
    run.begin().done.set_exception(RuntimeError("Job aborted due to stage failure"))
    assert run.ended() == Lost("RuntimeError: Job aborted due to stage failure")


def test_a_task_that_ends_by_itself_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets nothing any more: its partitions would wait for ever."""
    run = Run(tmp_path, monkeypatch)
    job = run.begin()
    job.answer(job.tasks[0], Outcome.FAILED, "no memory")
    eventually(lambda: run.record().job == 2, what="the command for the other tasks")
    job.done.set_result(job.results)
    assert run.ended() == Lost("no memory")


def test_what_keeps_a_run_from_its_start_is_refused_or_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Run(tmp_path, monkeypatch, topics="nothing").ended()
    assert isinstance(refused, Refused)
    assert "none of the" in refused.reason
    run = Run(tmp_path, monkeypatch)
    run.b.path.unlink()
    lost = run.ended()
    assert isinstance(lost, Lost)
    assert lost.outage


def test_a_flow_with_limits_has_one_job_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, "max-partitions-in-parallel = 1")
    run.begin()
    eventually(lambda: run.jobs, what="the first job")
    run.jobs[0].end()
    eventually(lambda: len(run.jobs) == 2, what="the second job")
    assert [[task.spec.job for task in job.tasks] for job in run.jobs] == [[1], [2]]
    assert [len(job.tasks[0].ranges) for job in run.jobs] == [1, 1]
    run.stream.stop()
    eventually(lambda: run.record().stop, what="the command to stop")
    assert run.record().job == 2, "tasks of the first job are to end"
    run.jobs[1].end()
    assert run.ended() == JobEnded("in order")


def test_a_run_that_drains_ends_once_all_is_copied_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, available_now=True)
    run.begin()
    eventually(lambda: run.jobs, what="its job")
    assert {one.end for task in run.jobs[0].tasks for one in task.ranges} == {10, 20}
    for partition, end in enumerate((10, 20)):
        run.commit(end, partition)
    run.jobs[0].end()
    assert run.ended() == JobEnded("drained")
    assert len(run.jobs) == 1


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
    run.stream.stop()
    eventually(lambda: run.record().stop, what="the command to stop")
    job.end()
    assert run.ended() == JobEnded("in order")
